"""Lists that import nothing slow say what the slow ones say."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from outrider.cli import outline
from outrider.cli.main import help_app, make_app
from outrider.drafters.registry import available_drafters


def test_help_without_importing_the_commands_is_that_of_the_commands() -> None:
    quick, full = (CliRunner().invoke(app, ["--help"]).output for app in (help_app(), make_app()))
    assert quick == full
    assert "generate" in quick


def test_drafters_are_read_as_they_are() -> None:
    assert outline.drafters() == {name: outline.told_by(name) for name in available_drafters()}


@pytest.mark.parametrize("words", [["--help"], [], ["models", "list"], ["drafters"], ["drafters", "--help"]])
def test_what_only_lists_does_not_import_torch(words: list[str]) -> None:
    program = (
        "import sys; from outrider.cli.main import run; code = run(sys.argv[1:]); "
        "sys.exit(code or sorted({'torch', 'transformers'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
