"""Who is told what happens in an engine: requests that join and end, and every round in between.

Observers are called in the thread that steps the engine and must return soon. Without any of them nothing is made for
them. One that raises is warned about, and nobody else is disturbed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.engine.completion import Completion
from outrider.engine.onlookers import tell
from outrider.engine.row import Row
from outrider.engine.trace import RoundTrace


@dataclass(frozen=True)
class RequestTrace:
    """A request as it joins the batch. reused: prompt tokens found in the cache. waited: seconds in the queue."""

    request_id: int
    prompt_token_ids: tuple[int, ...]
    reused: int
    rule: str
    lossless: bool
    params: Mapping[str, Any]
    waited: float


class Observer:
    """Base of all observers; override what is of interest."""

    @property
    def who(self) -> str:
        """What a warning calls it."""
        return f"observer {type(self).__name__}"

    @property
    def detailed(self) -> bool:
        """Whether it needs what the target thought of every node, which costs a softmax per node."""
        return True

    def began(self, request: RequestTrace) -> None:
        """A request got its row; its prompt is computed next."""

    def round_done(self, trace: RoundTrace) -> None:
        """A round is over, and its rows have taken over what it brought."""

    def ended(self, request_id: int, completion: Completion) -> None:
        """A request that had joined, or that waited, is over."""


class Observers:
    """Those who watch one engine, in the order in which they came."""

    def __init__(self) -> None:
        self._all: list[Observer] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def detailed(self) -> bool:
        return any(observer.detailed for observer in self._all)

    def add(self, observer: Observer) -> None:
        self._all.append(observer)

    def remove(self, observer: Observer) -> None:
        """No further news to this one; nothing happens to one that is not there."""
        self._all = [one for one in self._all if one is not observer]

    def began(self, row: Row) -> None:
        if self._all:
            request = _request(row)
            for observer in self._all:
                tell(observer.who, observer.began, request)

    def round_done(self, trace: RoundTrace) -> None:
        for observer in self._all:
            tell(observer.who, observer.round_done, trace)

    def ended(self, row: Row) -> None:
        if self._all:
            completion = row.completion()
            for observer in self._all:
                tell(observer.who, observer.ended, row.id, completion)


class OnRound(Observer):
    """A function that is called with every round."""

    def __init__(self, function: Callable[[RoundTrace], None]) -> None:
        self._function = function

    @property
    def who(self) -> str:
        return "the on_round observer"

    def round_done(self, trace: RoundTrace) -> None:
        self._function(trace)


def _request(row: Row) -> RequestTrace:
    return RequestTrace(
        request_id=row.id,
        prompt_token_ids=tuple(row.tokens[: row.num_prompt]),
        reused=row.tally.reused,
        rule=row.rule.name,
        lossless=row.rule.lossless,
        params=row.params.to_dict(),
        waited=row.waited,
    )
