"""Trying what does not seem to pay, now and then, from a bank: it can never cost more than its share of all time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

TRY_SHARE = 0.01  # of all time, for trying what does not seem to pay
FIRST_WAIT, LONGEST_WAIT = 12, 384  # rounds between tries in one row


@dataclass
class _Wait:
    wait: int = FIRST_WAIT
    rounds: int = 0


class Tries:
    """When a row may try, and what is in the bank (seconds)."""

    def __init__(self) -> None:
        self._bank = 0.0
        self._waits: dict[int, _Wait] = {}

    def earn(self, seconds: float) -> None:
        """A round took this long."""
        self._bank += TRY_SHARE * seconds

    def next(
        self, rows: Sequence[int], names: Sequence[str], cost: Callable[[int, str], float]
    ) -> tuple[int, str] | None:
        """The row whose turn it is and a drafter for it, if the bank holds what that costs (row, drafter: seconds)."""
        for row in rows:
            self._waits.setdefault(row, _Wait()).rounds += 1
        row = max(rows, key=lambda one: self._waits[one].rounds - self._waits[one].wait)
        turn = self._waits[row]
        if turn.rounds < turn.wait:
            return None
        name = names[turn.wait.bit_length() % len(names)]
        if not self.afford(cost(row, name)):
            return None
        turn.rounds, turn.wait = 0, min(LONGEST_WAIT, 2 * turn.wait)
        return row, name

    def afford(self, seconds: float) -> bool:
        """Pay this from the bank, if it holds as much."""
        if seconds > self._bank:
            return False
        self._bank -= seconds
        return True

    def forget(self, row: int) -> None:
        self._waits.pop(row, None)
