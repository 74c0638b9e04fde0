"""How tokens of different origin look in a terminal: in colours, or in marks where there are none."""

from typing import TYPE_CHECKING

from rich.style import Style

if TYPE_CHECKING:
    from outrider.engine.completion import Origin

STYLES: "dict[Origin, Style]" = {
    "accepted": Style(color="green"),
    "recovered": Style(color="yellow", underline=True),
    "bonus": Style(color="cyan", bold=True),
    "plain": Style(dim=True),
}
MARKS: "dict[Origin, tuple[str, str]]" = {
    "accepted": ("", ""),
    "recovered": ("⟦", "⟧"),
    "bonus": ("«", "»"),
    "plain": ("⟨", "⟩"),
}
MEANINGS: "dict[Origin, str]" = {
    "accepted": "(kept)",
    "recovered": "(rejected)",
    "bonus": "(all kept)",
    "plain": "(no draft)",
}
