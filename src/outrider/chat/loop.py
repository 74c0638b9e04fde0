"""The conversation's terminal: reads a line, shows the answer as it comes, until the person leaves.

Ctrl-C stops an answer and keeps the chat; at the prompt it drops the line. Ctrl-D leaves.
"""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console

from outrider.chat.commands import Commands
from outrider.chat.conversation import Conversation
from outrider.engine.completion import Completion, TokenEvent
from outrider.errors import OutriderError

PROMPT = "> "


class Chat:
    """read(prompt): the next line; EOFError leaves. console: for the answers. notes: for everything else.

    show: prints an event's text on the console; default: as it is. figures(completion, whole): an answer's figures in
    words, in one line or in several.
    """

    def __init__(
        self,
        conversation: Conversation,
        read: Callable[[str], str],
        console: Console,
        notes: Console,
        *,
        figures: Callable[[Completion, bool], str],
        show: Callable[[TokenEvent, Console], None] | None = None,
    ) -> None:
        self._conversation = conversation
        self._figures = figures
        self._commands = Commands(conversation, lambda completion: figures(completion, True))
        self._read = read
        self._console = console
        self._notes = notes
        self._print = show or _plainly

    def run(self) -> None:
        """Until the person leaves. An error of one answer is told in a line, and the chat goes on."""
        going = True
        while going:
            try:
                going = self._turn()
            except KeyboardInterrupt:  # at the prompt, or just before it
                self._note("\nCtrl-D leaves, /help tells what else there is")

    def _turn(self) -> bool:
        """One line of the person's, and what it leads to; whether the chat goes on."""
        try:
            line = self._read(PROMPT).strip()
        except EOFError:
            self._notes.print()
            return False
        except UnicodeDecodeError as error:
            self._note(f"that line is no text ({error.reason}); it was left out")
            return True
        return not line or self._take(line)

    def _take(self, line: str) -> bool:
        """Whether the chat goes on after this line."""
        try:
            if not line.startswith("/") or line.startswith("//"):
                self._show(self._conversation.ask(line[1:] if line.startswith("//") else line))
                return True
            return self._command(line)
        except OutriderError as error:
            self._note(f"{error}")
            return True

    def _command(self, line: str) -> bool:
        same = line.startswith("/regenerate") and self._conversation.always_the_same
        answer = self._commands.run(line)
        if answer is None:
            return False
        if isinstance(answer, str):
            self._note(answer)
            return True
        if same:
            self._note("temperature is 0, so the answer is the same again; `--temperature 0.8` would change it")
        self._show(answer)
        return True

    def _show(self, events: Iterator[TokenEvent]) -> None:
        """The answer as it comes; an interrupt stops it."""
        try:
            with contextlib.closing(events):  # pyright: ignore[reportArgumentType]  # generators can be closed
                for event in events:
                    self._print(event, self._console)
        except KeyboardInterrupt:
            self._console.print()
            self._note("stopped; what was written is kept")
            return
        self._console.print()
        if self._conversation.last is not None:
            self._note(self._figures(self._conversation.last, False))

    def _note(self, text: str) -> None:
        self._notes.print(text, style="dim", markup=False, highlight=False)


def _plainly(event: TokenEvent, console: Console) -> None:
    console.print(event.text, end="", markup=False, highlight=False)
    console.file.flush()
