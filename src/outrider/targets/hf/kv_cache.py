"""Keys and values of the committed tokens, row by row. A row's roll-back is a length.

Each row owns one buffer (L, 2, T, KH, HD) that grows by need in whole blocks; slots beyond the row's length may hold
the nodes of the last pass. Kept nodes are moved together; dropped ones are set to zero, so that a rejected node leaves
no trace, not even a NaN. Nothing here knows about attention or about transformers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 512  # slots; attention reads whole blocks (see attention.py)


@dataclass(frozen=True)
class CacheShape:
    """What one cached token consists of."""

    num_layers: int
    key_heads: int
    head_size: int


class _Row:
    """One row's buffer, its committed length, and how far it has been written."""

    def __init__(self, buffer: Tensor) -> None:
        self.buffer = buffer
        self.length = 0
        self.written = 0


class KVCache:
    """The cache rows of one target. Not safe for concurrent use."""

    def __init__(self, shape: CacheShape, dtype: torch.dtype, device: torch.device) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self._rows: dict[int, _Row] = {}

    def length(self, row: int) -> int:
        """Committed tokens of the row; 0 for a row that is free."""
        entry = self._rows.get(row)
        return entry.length if entry else 0

    def holds(self, row: int) -> bool:
        """Whether the row has memory, committed or only written."""
        return row in self._rows

    def reserve(self, row: int, num_nodes: int) -> Tensor:
        """The row's buffer (L, 2, T, KH, HD) with room for num_nodes beyond its length, soon to be written."""
        entry = self._rows.get(row)
        if entry is None:
            entry = self._rows[row] = _Row(self._zeros(0))
        needed = entry.length + num_nodes
        if needed > entry.buffer.shape[2]:
            self._grow(entry, needed)
        entry.written = max(entry.written, needed)
        return entry.buffer

    def keep(self, row: int, path: Sequence[int]) -> None:
        """Commit these nodes of the last pass (increasing, counted from the row's first node) and drop the others."""
        entry = self._rows[row]
        if tuple(path) != tuple(range(len(path))):
            slots = torch.tensor(path, device=self.device) + entry.length
            entry.buffer[:, :, entry.length : entry.length + len(path)] = entry.buffer.index_select(2, slots)
        entry.length += len(path)
        self._clear(entry)

    def truncate(self, row: int, length: int) -> None:
        """Drop what lies beyond `length`, committed or not; a shorter row stays as long as it is."""
        if entry := self._rows.get(row):
            entry.length = min(entry.length, length)
            self._clear(entry)

    def copy(self, source: int, row: int, length: int) -> None:
        """Row `row` becomes a copy of the first `length` tokens of `source`."""
        self.free(row)
        buffer = self.reserve(row, length)
        buffer[:, :, :length] = self._rows[source].buffer[:, :, :length]
        self._rows[row].length = length

    def free(self, row: int) -> None:
        """Forget the row and its memory."""
        self._rows.pop(row, None)

    def num_bytes(self) -> int:
        """Memory held by all rows."""
        return sum(entry.buffer.nbytes for entry in self._rows.values())

    def _zeros(self, capacity: int) -> Tensor:
        shape = self.shape
        size = (shape.num_layers, 2, capacity, shape.key_heads, shape.head_size)
        return torch.zeros(size, dtype=self.dtype, device=self.device)

    def _grow(self, entry: _Row, needed: int) -> None:
        """At least double, so that a long text is copied a few times only."""
        capacity = max(needed, 2 * entry.buffer.shape[2])
        grown = self._zeros(-(-capacity // BLOCK) * BLOCK)
        grown[:, :, : entry.length] = entry.buffer[:, :, : entry.length]
        entry.buffer = grown
        entry.written = entry.length

    def _clear(self, entry: _Row) -> None:
        if entry.written > entry.length:
            entry.buffer[:, :, entry.length : entry.written].zero_()
        entry.written = entry.length
