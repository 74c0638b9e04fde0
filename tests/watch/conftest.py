import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))  # worlds, live
sys.path.insert(0, str(Path(__file__).parent))

from tapes import tape


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded trace, its prompts included."""
    found = tmp_path_factory.mktemp("trace") / "t.jsonl"
    tape(found, prompts=True)
    return found
