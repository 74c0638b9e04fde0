"""Which sequences of llama.cpp's unified cache hold which row, and how drafted branches share a row's text.

Row r's committed text is sequence r. A tree's first branch is written into that sequence; every other branch needs a
sequence of its own that shares the row's text (cells are shared, not copied). Branch sequences stay with their row and
are only brought up to date when next used, so that a round costs a few cells and not the whole text. Kept paths and
roll-back are calls to llama.cpp's memory. Nothing here decodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.errors import CapacityError, TargetError

END = -1  # of a range of positions: to the end


@dataclass
class _Branch:
    """A sequence that holds the first `length` tokens of its row's text."""

    sequence: int
    length: int


@dataclass
class _Row:
    length: int = 0
    branches: list[_Branch] = field(default_factory=list[_Branch])
    drafted: list[int] = field(default_factory=list[int])  # sequences that hold nodes not yet committed


class Sequences:
    """The rows of one context. window: of the model's sliding attention, 0 if it has none."""

    def __init__(self, native: Any, context: Any, num_rows: int, num_branches: int, window: int) -> None:
        memory = native.llama_get_memory(context)
        self._remove = _bound(native.llama_memory_seq_rm, memory)
        self._copy = _bound(native.llama_memory_seq_cp, memory)
        self._first = _bound(native.llama_memory_seq_pos_min, memory)
        self._last = _bound(native.llama_memory_seq_pos_max, memory)
        self._window = window
        self._rows: dict[int, _Row] = {}
        self._idle = list(range(num_rows + num_branches - 1, num_rows - 1, -1))
        self._num_branches = num_branches

    def length(self, row: int) -> int:
        return self._rows[row].length if row in self._rows else 0

    @property
    def total(self) -> int:
        """Committed tokens of all rows (shared ones counted with each)."""
        return sum(row.length for row in self._rows.values())

    def begin(self, row: int, num_leaves: int) -> list[int]:
        """Sequences for the leaves of a tree over the row's text, the row's own first. Raises CapacityError."""
        held = self._rows.setdefault(row, _Row())
        self.drop_drafted(row)
        while len(held.branches) < num_leaves - 1:
            held.branches.append(_Branch(self._take(row, num_leaves), 0))
        for branch in held.branches[: num_leaves - 1]:
            self._bring_up(row, held.length, branch)
        held.drafted = [row, *(branch.sequence for branch in held.branches[: num_leaves - 1])]
        return held.drafted

    def grow(self, row: int, length: int) -> None:
        """What was decoded into the row's own sequence up to `length` is committed text."""
        held = self._rows[row]
        held.length, held.drafted = length, []

    def keep(self, row: int, sequence: int, length: int, written: int) -> None:
        """Commit the first `length` tokens of a drafted sequence; `written`: tokens in the row's own one by now."""
        held = self._rows[row]
        before = held.length
        if sequence != row:
            self._cut(row, before)
            self._copy(sequence, row, before, length)
        elif written > length:
            self._cut(row, length)
        for other in held.drafted[1:]:
            self._cut(other, before)
        held.length, held.drafted = length, []

    def drop_drafted(self, row: int) -> None:
        """Only committed tokens are left. Safe at any time, as after a pass that failed."""
        held = self._rows.get(row)
        if held is None or not held.drafted:
            return
        for sequence in held.drafted:
            self._cut(sequence, held.length)
        held.drafted = []

    def drop_all_drafted(self) -> None:
        for row in list(self._rows):
            self.drop_drafted(row)

    def truncate(self, row: int, length: int) -> None:
        """Drop the newest beyond `length`. A row whose window has left the cache by then is freed as a whole."""
        self.drop_drafted(row)
        held = self._rows.get(row)
        if held is None or length >= held.length:
            return
        self._cut(row, length)
        for branch in held.branches:
            if branch.length > length:
                self._cut(branch.sequence, length)
                branch.length = length
        held.length = length
        if not self._is_whole(row, length):
            self.free(row)

    def copy(self, source: int, row: int, length: int) -> None:
        """The free row becomes the first `length` tokens of the source, which costs no memory.

        It stays empty if the source no longer holds the window before them.
        """
        self.free(row)
        self.drop_drafted(source)
        self._copy(source, row, 0, length)
        self._rows[row] = _Row(length)
        if not self._is_whole(row, length):
            self.free(row)

    def free(self, row: int) -> None:
        held = self._rows.pop(row, None)
        if held is None:
            return
        self._cut(row, 0)
        for branch in held.branches:
            self._cut(branch.sequence, 0)
            self._idle.append(branch.sequence)

    def _take(self, row: int, num_leaves: int) -> int:
        """An idle sequence, or one that another row's draft does not use now."""
        if self._idle:
            return self._idle.pop()
        for other, held in self._rows.items():
            if other != row and held.branches and held.branches[-1].sequence not in held.drafted:
                sequence = held.branches.pop().sequence
                self._cut(sequence, 0)
                return sequence
        raise CapacityError(
            f"a tree of {num_leaves} leaves needs more branches than are free; all rows together may have "
            f"{self._num_branches} beside their first ones: raise the backend option branches, or draft fewer nodes"
        )

    def _bring_up(self, row: int, length: int, branch: _Branch) -> None:
        """The branch holds the row's text up to `length`, from the same first position on."""
        if branch.length and self._first(branch.sequence) != self._first(row):
            self._cut(branch.sequence, 0)
            branch.length = 0
        if branch.length < length:
            self._copy(row, branch.sequence, branch.length, length)
            branch.length = length

    def _is_whole(self, row: int, length: int) -> bool:
        """Whether everything is in the cache that the token at position `length` attends to."""
        if length == 0:
            return True
        needed = max(0, length - self._window + 1) if self._window else 0
        return 0 <= self._first(row) <= needed and self._last(row) == length - 1

    def _cut(self, sequence: int, length: int) -> None:
        if not self._remove(sequence, length, END):
            raise TargetError(f"llama.cpp cannot roll sequence {sequence} back to {length} tokens")


def num_leaves(parents: Sequence[int]) -> int:
    """Leaves of a tree given by its parents."""
    return len(parents) - len(set(parents) - {-1})


def _bound(function: Callable[..., Any], memory: Any) -> Callable[..., Any]:
    return lambda *arguments: function(memory, *arguments)
