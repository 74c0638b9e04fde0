"""What a person can say to the chat itself: lines that begin with a slash."""

import json
from collections.abc import Callable, Iterator

from outrider.chat.conversation import Conversation
from outrider.engine.completion import Completion, TokenEvent
from outrider.errors import OptionError, did_you_mean
from outrider.files import user_path

Answer = Iterator[TokenEvent] | str | None
"""What a command leads to: an answer of the model, a line to be shown, or the end of the chat (None)."""


ALIASES = {"exit": "quit", "bye": "quit"}


class Commands:
    """The commands of one conversation. Their docstrings are the help. tell: an answer's figures, in words."""

    def __init__(self, conversation: Conversation, tell: Callable[[Completion], str]) -> None:
        self._conversation = conversation
        self._tell = tell
        self._all: dict[str, Callable[[str], Answer]] = {
            "figures": self.figures,
            "regenerate": self.regenerate,
            "reset": self.reset,
            "system": self.system,
            "save": self.save,
            "help": self.help,
            "quit": self.quit,
        }

    def run(self, line: str) -> Answer:
        """Carry out `/name argument`. Raises OptionError for a name that is none."""
        name, _, argument = line.removeprefix("/").partition(" ")
        name = ALIASES.get(name, name)
        if name not in self._all:
            raise OptionError(f"there is no /{name}{did_you_mean(name, self._all)}; a message may begin with //")
        return self._all[name](argument.strip())

    def figures(self, argument: str) -> str:
        """what the newest answer took, and how much of the conversation was there already"""
        completion = self._conversation.last
        if completion is None:
            return "nothing was answered yet"
        stats = completion.stats
        read = f"{len(completion.prompt_token_ids)} tokens read, {stats.reused} of them were there already"
        return f"{self._tell(completion)}\n{read}"

    def regenerate(self, argument: str) -> Iterator[TokenEvent]:
        """another answer to the newest message"""
        return self._conversation.regenerate()

    def reset(self, argument: str) -> str:
        """begin a new conversation"""
        self._conversation.reset()
        return "a new conversation"

    def system(self, argument: str) -> str:
        """TEXT: what the model is told first; without text: nothing"""
        self._conversation.set_system(argument)
        return (
            "the model is told this first, from the next message on" if argument else "the model is told nothing first"
        )

    def save(self, argument: str) -> str:
        """FILE: write the conversation as JSON, as OpenAI's messages; an existing file is left alone"""
        if not argument:
            raise OptionError("/save needs the name of a file")
        try:
            path = user_path(argument)
            with path.open("x", encoding="utf-8") as file:
                json.dump({"messages": self._conversation.prompt}, file, ensure_ascii=False, indent=1)
        except FileExistsError:
            raise OptionError(f"{argument} exists; choose another name") from None
        except (OSError, RuntimeError, ValueError) as error:  # no such place, no such user, no such name
            raise OptionError(f"cannot write {argument!r}: {error}") from error
        return f"saved to {path}"

    def help(self, argument: str) -> str:
        """these lines"""
        lines = [f"/{name:<11}{(command.__doc__ or '').strip()}" for name, command in self._all.items()]
        return "\n".join([*lines, "Ctrl-C stops an answer, Ctrl-D leaves; a message may begin with // for one slash"])

    def quit(self, argument: str) -> None:
        """leave, as Ctrl-D does"""
