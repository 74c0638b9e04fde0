"""Makes the helpers of the folder above importable wherever pytest is started from."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
