"""Shows the pages one by one; in a terminal, waits for Enter in between."""

from rich.console import Console

from outrider.explain.pages import pages
from outrider.explain.tables import play_story


def run_explain(console: Console, *, pause: bool) -> None:
    """Print the explanation. pause: wait for Enter after each step; the end of input ends the waiting."""
    for number, page in enumerate(pages(play_story())):
        if number:
            pause = pause and _wait(console)
            console.print()
        console.print(page)


def _wait(console: Console) -> bool:
    """True once Enter was pressed; False if there is nobody to press it."""
    try:
        console.input("[dim]   Enter: next step [/dim]")
    except EOFError:
        return False
    return True
