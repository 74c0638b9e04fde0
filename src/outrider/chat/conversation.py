"""A conversation on one engine: messages, the next answer, and what can be taken back.

The engine should reuse prefixes, so that a turn computes only what the earlier ones did not. An answer that is stopped
keeps what was written so far, and the conversation goes on from there.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from outrider.engine.completion import Completion, TokenEvent
from outrider.engine.engine import Engine
from outrider.errors import OptionError


class Conversation:
    """messages: what was said so far, OpenAI's way. last: the newest answer's completion; None before the first.

    sampling: settings of every answer. system: what the model is told first.
    """

    def __init__(self, engine: Engine, sampling: Mapping[str, Any] | None = None, *, system: str = "") -> None:
        self.engine = engine
        self.messages: list[dict[str, str]] = []
        self.last: Completion | None = None
        self._sampling = dict(sampling or {})
        self._system = system
        self._tries = 0
        self._before: list[dict[str, str]] = []  # the messages as they were before the newest question

    @property
    def prompt(self) -> list[dict[str, str]]:
        """The messages as the model gets them, the system's first."""
        system = [{"role": "system", "content": self._system}] if self._system else []
        return [*system, *self.messages]

    def ask(self, text: str) -> Iterator[TokenEvent]:
        """The answer to a message, as it comes. The message is taken back if nothing at all was answered to it."""
        self._before = [*self.messages]
        self.messages.append({"role": "user", "content": text})
        self._tries = 0
        return self._answer()

    def regenerate(self) -> Iterator[TokenEvent]:
        """Another answer to the newest message, with another seed; if none comes, the earlier one stays.

        Raises OptionError if nothing was asked yet.
        """
        if not self.messages:
            raise OptionError("nothing was asked yet, so there is nothing to answer again")
        self._before = [*self.messages]
        if self.messages[-1]["role"] == "assistant":
            self.messages.pop()
        self._tries += 1
        return self._answer()

    @property
    def always_the_same(self) -> bool:
        """Whether answering again gives the same text: no chance is involved."""
        return self.last is not None and self.last.effective_params["temperature"] == 0

    def reset(self) -> None:
        """Forget what was said; the system's message stays."""
        self.messages.clear()
        self.last = None

    def set_system(self, text: str) -> None:
        """What the model is told first, from the next answer on; "" for nothing."""
        self._system = text

    def _answer(self) -> Iterator[TokenEvent]:
        """Events of the next answer. Closing the iterator, or an interrupt, stops it; what was written stays."""
        try:
            handle = self.engine.submit(self.prompt, **self._settings())
        except Exception:
            self._take_back()
            raise
        try:
            while True:
                yield from handle.take_events()
                if handle.done and not handle.row.events:
                    break
                self.engine.step()
        finally:
            handle.cancel()
            self._keep(handle.completion)
        if handle.completion.error is not None:
            raise handle.completion.error

    def _settings(self) -> dict[str, Any]:
        """A further try draws with another seed, where the user has fixed one; else every answer has its own."""
        if self._tries == 0 or self._sampling.get("seed") is None:
            return self._sampling
        return {**self._sampling, "seed": (self._sampling["seed"] + self._tries) % 2**64}

    def _keep(self, completion: Completion) -> None:
        self.last = completion
        if completion.text or completion.finish_reason in ("stop", "length"):
            self.messages.append({"role": "assistant", "content": completion.text or ""})
        else:
            self._take_back()

    def _take_back(self) -> None:
        """A message without an answer is not part of the conversation: the next turn would be a second question."""
        self.messages[:] = self._before
