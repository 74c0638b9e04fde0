"""One pass over the model as its attention layers see it: where nodes are written and what each may see.

Everything that does not differ between layers (slots, masks) is computed once per pass and per window. A node may see
its row's committed tokens, its ancestors and itself; with a sliding window of w only the newest w of these positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outrider.targets.hf.attention import tile_mask
from outrider.targets.hf.kv_cache import BLOCK, KVCache
from outrider.types import Packed


@dataclass(eq=False)
class RowPass:
    """One row's share of a pass: nodes [start, end) of the pack, written to slots from `length` on."""

    start: int
    end: int
    length: int
    buffer: Tensor  # (L, 2, T, KH, HD)
    depths: Tensor  # (n,) of the nodes below the root
    ancestors: Tensor  # (n, n) bool, with the node itself
    _masks: dict[tuple[int | None, int], Tensor] = field(default_factory=dict[tuple[int | None, int], Tensor])

    @property
    def num_seen(self) -> int:
        """Slots that attention reads: whole blocks."""
        return -(-(self.length + self.end - self.start) // BLOCK) * BLOCK

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the nodes' keys and values (KH, n, HD) of one layer; returns all that is to be read, (T, KH, HD) each."""
        all_keys, all_values = self.buffer[layer, :, : self.num_seen].unbind(0)
        slots = slice(self.length, self.length + self.end - self.start)
        all_keys[slots] = keys.transpose(0, 1)
        all_values[slots] = values.transpose(0, 1)
        return all_keys, all_values

    def mask(self, window: int | None, group: int) -> Tensor:
        """The tiled additive mask for layers with this window and this many query heads per key head."""
        key = (window, group)
        if key not in self._masks:
            self._masks[key] = tile_mask(self._allowed(window), group, self.buffer.dtype)
        return self._masks[key]

    def _allowed(self, window: int | None) -> Tensor:
        """(n, T): whether node n may see slot t."""
        num_nodes = self.end - self.start
        allowed = torch.zeros(num_nodes, self.num_seen, dtype=torch.bool, device=self.buffer.device)
        allowed[:, : self.length] = True
        allowed[:, self.length : self.length + num_nodes] = self.ancestors
        if window is not None:
            slots = torch.arange(self.num_seen, device=allowed.device)
            slots[self.length : self.length + num_nodes] = self.length + self.depths  # a node's position, not its slot
            allowed &= slots > (self.length + self.depths - window)[:, None]
        return allowed


@dataclass(eq=False)
class Pass:
    """What travels with one call of the model to every attention layer. layers: those that have been here."""

    rows: list[RowPass]
    layers: list[int] = field(default_factory=list[int])


def lay_out(packed: Packed, cache: KVCache) -> Pass:
    """Room in the cache for every node of the pack, and the facts that its attention layers need."""
    rows: list[RowPass] = []
    for index, row in enumerate(packed.row_ids):
        start, end = packed.starts[index], packed.starts[index + 1]
        parents = [parent - start for parent in packed.parents[start:end]]
        depths, ancestors = _family(parents, packed.is_chain(index), cache.device)
        rows.append(RowPass(start, end, cache.length(row), cache.reserve(row, end - start), depths, ancestors))
    return Pass(rows)


def _family(parents: Sequence[int], chain: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Depths (n,) and ancestors (n, n) of a tree whose root is node 0."""
    num_nodes = len(parents)
    if chain:
        square = torch.ones(num_nodes, num_nodes, dtype=torch.bool, device=device)
        return torch.arange(num_nodes, device=device), square.tril_()
    ancestors = torch.eye(num_nodes, dtype=torch.bool)
    for node in range(1, num_nodes):
        ancestors[node] |= ancestors[parents[node]]
    return (ancestors.sum(1) - 1).to(device), ancestors.to(device)
