"""What commands and drafters say of themselves, read from their source without running it.

To import them all takes seconds (torch, transformers), which a mere list of them must not. The tests hold what is read
here against what the imported ones say.
"""

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent.parent
ENTRY_POINTS = "outrider.drafters"


@dataclasses.dataclass(frozen=True)
class Told:
    """about: its text. is_group: a command with commands of its own. options: a drafter's, each as it is shown."""

    about: str
    is_group: bool = False
    options: tuple[str, ...] = ()


def commands() -> dict[str, Told]:
    """Every command by name: the files of this folder that register one."""
    found: dict[str, Told] = {}
    for path, tree in _modules("cli"):
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        if "register" in functions:
            calls = [node for node in ast.walk(functions["register"]) if isinstance(node, ast.Call)]
            is_group = any(isinstance(call.func, ast.Attribute) and call.func.attr == "add_typer" for call in calls)
            own = functions.get(path.stem)
            found[path.stem] = Told((own and ast.get_docstring(own)) or _given_help(calls), is_group)
    return found


def drafters() -> dict[str, Told]:
    """Every drafter by name, as `registry.py` finds them; only those of other packages are imported."""
    found = dict(told for _, tree in _modules("drafters") for told in _drafters(tree))
    for point in entry_points(group=ENTRY_POINTS):
        found[point.name] = told_by(point.name)
    return dict(sorted(found.items()))


def _modules(folder: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((PACKAGE / folder).glob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def _given_help(calls: list[ast.Call]) -> str:
    """The text in `typer.Typer(help="...")`."""
    texts = [word.value for call in calls for word in call.keywords if word.arg == "help"]
    return next((str(text.value) for text in texts if isinstance(text, ast.Constant)), "")


def _drafters(tree: ast.Module) -> Iterator[tuple[str, Told]]:
    about = (ast.get_docstring(tree) or "").partition("\n")[0]
    for node in tree.body:
        fields = _fields(node) if isinstance(node, ast.ClassDef) else {}
        name = fields.get("name")
        if name and isinstance(name.value, ast.Constant) and "ClassVar" in ast.unparse(name.annotation):
            options = [
                option + _default(field)
                for option, field in fields.items()
                if not option.startswith("_") and "ClassVar" not in ast.unparse(field.annotation)
            ]
            yield str(name.value.value), Told(about, options=tuple(options))


def _fields(node: ast.ClassDef) -> dict[str, ast.AnnAssign]:
    lines = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    return {one.target.id: one for one in lines if isinstance(one.target, ast.Name)}


def _default(field: ast.AnnAssign) -> str:
    return " (required)" if field.value is None else f" = {ast.literal_eval(field.value)}"


def told_by(name: str) -> Told:
    """The same of one drafter, by importing it."""
    from outrider.drafters.registry import drafter_class, options_of  # slow import: torch

    module = inspect.getmodule(drafter_class(name))
    about = inspect.cleandoc((module and module.__doc__) or "").partition("\n")[0]
    return Told(about, options=tuple(option + _of_field(field) for option, field in options_of(name).items()))


def _of_field(field: dataclasses.Field[Any]) -> str:
    required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    return " (required)" if required else f" = {field.default}"
