"""docs/drafters/NAME.md for every drafter, made from its file's docstring, its options and their text. `make pages`.

What stands below the line `<!-- measured -->` is written by hand, or by a benchmark, and is kept.
"""

import dataclasses
import inspect
import re
from pathlib import Path

from outrider.drafters.base import Drafter
from outrider.drafters.registry import available_drafters, drafter_class, options_of

FOLDER = Path(__file__).parent.parent / "docs" / "drafters"
MEASURED = "<!-- measured: what stands below is kept when this page is made again -->"
NOTHING = (
    "\n## Measured\n\nBeside the others, by kind of prompt, rule and temperature: [drafters.md](../drafters.md).\n"
)


def page(name: str, kept: str = NOTHING) -> str:
    """The page of one drafter; kept: what stands below the line."""
    cls = drafter_class(name)
    module = inspect.getmodule(cls)
    first, _, rest = inspect.cleandoc((module and module.__doc__) or "").partition("\n\n")
    parts = [f"# {name}", first, rest, _use(name, cls), _options(name, cls), MEASURED]
    return "\n\n".join(part for part in parts if part) + "\n" + kept


def pages() -> dict[Path, str]:
    """Every page as it should be, with what is kept of the present one."""
    return {path: page(name, kept_of(path)) for name in available_drafters() for path in [FOLDER / f"{name}.md"]}


def kept_of(path: Path) -> str:
    text = path.read_text("utf-8") if path.exists() else ""
    return text.partition(f"{MEASURED}\n")[2] or NOTHING


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, "utf-8")
    for path in FOLDER.glob("*.md"):
        if path not in pages():
            path.unlink()


def _use(name: str, cls: type[Drafter]) -> str:
    needed = [option for option, field in options_of(name).items() if _required(field)]
    spec = name + "".join(f":{option}=..." for option in needed[:1])
    shape = f"Where nothing else decides (`--policy fixed`) it drafts up to {cls.preferred_depth} tokens deep"
    nodes = f", {cls.preferred_nodes} in all" if cls.preferred_nodes > cls.preferred_depth else ""
    source = f"[drafters/{name}.py](../../src/outrider/drafters/{name}.py)"
    if name == "none":
        return f"Use: `--drafter none`. Source: {source}."
    return f"Use: `--drafter {spec}`, `outrider.load(target, {spec!r})`. {shape}{nodes}. Source: {source}."


def _options(name: str, cls: type[Drafter]) -> str:
    fields = options_of(name)
    if not fields:
        return "## Options\n\nIt has none."
    rows = [f"| `{option}` | {_kind(cls, option)} | {_default(field)} |" for option, field in fields.items()]
    about = re.sub(r"\s+", " ", inspect.cleandoc(cls.__doc__ or ""))
    return "\n".join(["## Options", "", about, "", "| option | type | default |", "| --- | --- | --- |", *rows])


def _kind(cls: type[Drafter], option: str) -> str:
    kind = cls.__annotations__[option]
    text = kind if isinstance(kind, str) else getattr(kind, "__name__", "") if isinstance(kind, type) else str(kind)
    return "`" + re.sub(r"\b(?:\w+\.)+(\w)", r"\1", text).replace("|", "or") + "`"


def _default(field: dataclasses.Field[object]) -> str:
    return "required" if _required(field) else f"`{field.default}`"


def _required(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


if __name__ == "__main__":
    write()
