"""The README's file tree, made from the first sentence of every file's docstring. `make tree` writes it."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- file tree: `make tree` writes it -->\n```text\n", "```\n<!-- end of file tree -->"
WIDTH = 118


def tree() -> str:
    """Every source file of the package, folder by folder, with one comment each."""
    lines = ["src/outrider/"]
    for path in _sorted(ROOT / "src" / "outrider"):
        depth = len(path.relative_to(ROOT / "src" / "outrider").parts)
        name = "  " * depth + path.name + ("/" if path.is_dir() else "")
        comment = _comment(path / "__init__.py" if path.is_dir() else path)
        lines.append(_fit(f"{name:<28}{comment}") if comment else name)
    return "\n".join(lines) + "\n"


def written() -> str:
    """The tree as the README has it now."""
    readme = (ROOT / "README.md").read_text("utf-8")
    return readme[readme.index(BEGIN) + len(BEGIN) : readme.index(END)]


def write() -> None:
    path = ROOT / "README.md"
    readme = path.read_text("utf-8")
    start = readme.index(BEGIN) + len(BEGIN)
    path.write_text(readme[:start] + tree() + readme[readme.index(END) :], "utf-8")


def _sorted(folder: Path) -> list[Path]:
    """Files first, then folders with what is in them; a folder's __init__.py speaks for the folder."""
    found = [p for p in sorted(folder.iterdir()) if not p.name.startswith((".", "__")) or p.name == "__main__.py"]
    files = [p for p in found if p.is_file() and p.suffix in (".py", ".c", ".h", ".jsonl")]
    inside = {p: _sorted(p) for p in found if p.is_dir()}
    return [*files, *(line for folder, lines in inside.items() if lines for line in (folder, *lines))]


def _comment(path: Path) -> str:
    if not path.is_file() or path.suffix == ".jsonl":
        return ""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    else:
        match = re.match(r"\s*/\*+\s*(.*?)\*/|\s*//\s*(.*?)\n", text, re.DOTALL)
        text = (match.group(1) or match.group(2)) if match else ""
    text = " ".join(text.replace("\n *", "\n").split())
    return re.split(r"(?<=[.?!])\s", text)[0].rstrip(".:")


def _fit(line: str) -> str:
    return line if len(line) <= WIDTH else line[: line.rindex(" ", 0, WIDTH - 3)].rstrip(",;:") + " ..."


if __name__ == "__main__":
    write()
