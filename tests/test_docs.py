"""What the pages say is true: their code runs, their commands exist, their pictures match the files."""

import ast
import re
import shlex
import types
from pathlib import Path

import pytest

import outrider
import readme_tree
from helpers_cli import outrider as command_line

ROOT = readme_tree.ROOT
SOURCE = ROOT / "src" / "outrider"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def run_blocks(page: Path) -> dict[str, object]:
    module = types.ModuleType(page.stem.replace("-", "_"))
    exec(compile("\n".join(blocks(page, "python")), str(page), "exec"), vars(module))
    return vars(module)


def test_the_tutorials_code_runs():
    assert len(blocks(ROOT / "docs" / "drafter-tutorial.md", "python")) >= 5
    run_blocks(ROOT / "docs" / "drafter-tutorial.md")


def test_the_tutorial_starts_at_ten_lines():
    first = blocks(ROOT / "docs" / "drafter-tutorial.md", "python")[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 10


@pytest.mark.real
def test_the_readmes_lines_run(models, capsys):
    models("smollm2-135m")
    completion = run_blocks(ROOT / "README.md")["completion"]
    assert len(completion.token_ids) == 32
    assert completion.text in capsys.readouterr().out


COMMANDS = [
    line
    for page in PAGES
    for block in blocks(page, "sh")
    for line in block.splitlines()
    if line.startswith(("outrider ", "make "))
]


GROUPS = ("drafters", "models")  # commands with commands of their own


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_on_the_pages_exist_with_their_options(line):
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text("utf-8")
        return
    options = [word for word in words if word.startswith("--")]
    shown = command_line(*words[1 : 3 if words[1] in GROUPS and words[2:] else 2], "--help")
    assert shown.code == 0, shown.err
    assert [option for option in options if option not in shown.out] == []


def test_the_readmes_file_tree_matches_the_files():
    assert readme_tree.written() == readme_tree.tree(), "run `make tree`"


def test_every_file_says_what_it_is():
    silent = [p for p in SOURCE.rglob("*.py") if not ast.get_docstring(ast.parse(p.read_text("utf-8")))]
    assert silent == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_public_list_is_true():
    """Everything on it is there, nothing else is public, and it holds what the README's users call."""
    assert [name for name in outrider.__all__ if getattr(outrider, name, None) is None] == []
    public = {name for name, value in vars(outrider).items() if not name.startswith("_") and not _is_module(value)}
    assert public - {"TYPE_CHECKING"} - set(outrider.__all__) == set()
    promised = {
        "load",
        "Engine",
        "SamplingParams",
        "Completion",
        "available_drafters",
        "errors",
        "transformers_generate",
    }
    assert promised - set(outrider.__all__) == set()


def _is_module(value: object) -> bool:
    return isinstance(value, types.ModuleType)


# ---- imports point one way

LAYERS = (
    {"errors", "types"},
    {"sampling", "kernels", "models", "simulate", "charts", "machine", "files"},
    {"acceptance"},
    {"targets", "text", "tokens", "prompts"},
    {"drafters", "policy"},
    {"engine", "testing"},
    {"traces", "calibrate"},
    {"api", "looks"},
    {"__init__"},
    {"structured", "certify", "explain", "watch", "chat", "planner"},
    {"server", "bench"},
    {"cli"},
)
EDGES = {unit for units in LAYERS[-3:] for unit in units}  # of one layer they do not know each other
EDGE_FILES = {"targets/hf/generate.py", "targets/hf/generate_settings.py"}  # they use the engine


def _layer(unit: str) -> int:
    found = [rank for rank, units in enumerate(LAYERS) if unit in units]
    assert found, f"give {unit!r} a place in LAYERS, and in docs/architecture.md"
    return found[0]


def _imported(path: Path) -> set[str]:
    """First part below `outrider` of everything that the file imports, also inside functions."""
    units: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names] if node.module == "outrider" else [node.module or ""]
        units |= {_home(name) for name in names if name == "outrider" or name.startswith("outrider.")}
    return units


def _home(name: str) -> str:
    """The unit that is imported: of a name that the package itself exports, the one that defines it."""
    part = name.split(".")[1] if "." in name else "__init__"
    if part not in outrider.__all__ or _is_module(getattr(outrider, part)):
        return "__init__" if part.startswith("__") else part
    return getattr(outrider, part).__module__.split(".")[1]


def _wrong_imports(path: Path) -> list[str]:
    relative = path.relative_to(SOURCE)
    own = relative.parts[0].removesuffix(".py")
    rank = len(LAYERS) if str(relative) in EDGE_FILES else _layer(own)
    others = sorted(_imported(path) - {own})
    return [f"{relative} imports {u}" for u in others if _layer(u) > rank or (_layer(u) == rank and own in EDGES)]


@pytest.mark.parametrize("folder", sorted({p.relative_to(SOURCE).parts[0] for p in SOURCE.rglob("*.py")}))
def test_imports_point_one_way(folder):
    files = [SOURCE / folder] if folder.endswith(".py") else sorted((SOURCE / folder).rglob("*.py"))
    assert [line for path in files for line in _wrong_imports(path)] == []


@pytest.mark.parametrize(
    ("line", "file", "found"),
    [
        ("from outrider.engine.row import Row", "sampling/bad.py", "engine"),
        ("from outrider import Engine", "sampling/bad.py", "engine"),
        ("from outrider import load", "engine/bad.py", "api"),
        ("import outrider", "drafters/bad.py", "__init__"),
        ("from outrider import transformers_generate", "sampling/bad.py", "targets"),
        ("from outrider.cli.terminal import show", "explain/bad.py", "cli"),
        ("from outrider.certify.grid import Grid", "explain/bad.py", "certify"),
        ("import outrider.server.app", "bench/bad.py", "server"),
    ],
)
def test_an_import_that_points_back_is_found(line, file, found, monkeypatch):
    """Negative controls."""
    monkeypatch.setattr(Path, "read_text", lambda self, *_: f"def f():\n    {line}\n")
    assert _wrong_imports(SOURCE / file) == [f"{file} imports {found}"]
