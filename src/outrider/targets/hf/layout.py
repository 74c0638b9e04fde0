"""One pass over the model as its attention layers see it: where nodes are written and what each may see.

A node sees its row's committed tokens, its ancestors and itself. The last bit of a sum depends on where its terms lie,
so a tree is not masked where its nodes happen to lie: each path from the root to a leaf is laid out in turn as the
chain that it would be if it were committed, and answers the nodes that no earlier path answered. So a node's result has
the same bits in any tree. Afterwards every node lies in its own slot, for `KVCache.keep`. What does not differ between
layers is computed once per pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from outrider.targets.hf.attention import attend, tile_mask
from outrider.targets.hf.kv_cache import BLOCK, KVCache
from outrider.types import Packed


@dataclass(frozen=True)
class Settings:
    """What one layer asks for. window: newest positions seen, None for all. scale, softcap: of the scores."""

    window: int | None
    scale: float
    softcap: float | None = None


@dataclass(eq=False)
class PathPass:
    """A chain below the committed tokens. nodes: its nodes; queries: those it answers, at `depths` on it.

    nodes None: the row is a chain, and this is all of it.
    """

    nodes: Tensor | None
    queries: Tensor | None
    depths: Tensor
    _masks: dict[tuple[int | None, int], Tensor] = field(default_factory=dict[tuple[int | None, int], Tensor])

    def mask(self, window: int | None, group: int, length: int, num_seen: int, dtype: torch.dtype) -> Tensor:
        """The tiled additive mask for layers with this window and this many query heads per key head."""
        key = (window, group)
        if key not in self._masks:
            slots = torch.arange(num_seen, device=self.depths.device)
            own = (length + self.depths)[:, None]
            allowed = slots <= own if window is None else (slots <= own) & (slots > own - window)
            self._masks[key] = tile_mask(allowed, group, dtype)
        return self._masks[key]


@dataclass(eq=False)
class RowPass:
    """One row's share of a pass: nodes [start, end) of the pack, written to slots from `length` on."""

    start: int
    end: int
    length: int
    buffer: Tensor  # (L, 2, T, KH, HD)
    paths: Sequence[PathPass]
    drafted: bool  # some nodes may be rejected; in a prefill a NaN must show in all that follows

    def __post_init__(self) -> None:
        num_nodes = self.end - self.start
        self._num_seen = -(-(self.length + num_nodes) // BLOCK) * BLOCK
        seen = self.buffer[:, :, : self._num_seen]
        self._keys, self._values = seen[:, 0].unbind(0), seen[:, 1].unbind(0)
        own = self.buffer[:, :, self.length : self.length + num_nodes]
        self._own_keys, self._own_values = own[:, 0].unbind(0), own[:, 1].unbind(0)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, settings: Settings) -> Tensor:
        """Stores the row's keys and values (n, KH, HD) of one layer; returns what its nodes read, (n, H, HD)."""
        if self.drafted:  # a mask hides numbers, but no NaN: a broken draft must not reach its ancestors
            keys, values = (states.nan_to_num(0.0, 0.0, 0.0) for states in (keys, values))
        if self.paths[0].nodes is None:
            self._own_keys[layer].copy_(keys)
            self._own_values[layer].copy_(values)
            return self._read(layer, query, self.paths[0], settings)
        out = torch.empty(query.shape, dtype=self.buffer.dtype, device=query.device)
        for path in self.paths:
            assert path.nodes is not None
            assert path.queries is not None
            self._own_keys[layer][: len(path.nodes)] = keys[path.nodes].to(self.buffer.dtype)
            self._own_values[layer][: len(path.nodes)] = values[path.nodes].to(self.buffer.dtype)
            out[path.queries] = self._read(layer, query[path.queries], path, settings)
        self._own_keys[layer].copy_(keys)
        self._own_values[layer].copy_(values)
        return out

    def _read(self, layer: int, query: Tensor, path: PathPass, settings: Settings) -> Tensor:
        keys = self._keys[layer]
        mask = path.mask(settings.window, query.shape[1] // keys.shape[1], self.length, self._num_seen, keys.dtype)
        return attend(query, keys, self._values[layer], mask, settings.scale, settings.softcap)


@dataclass(eq=False)
class Pass:
    """What travels with one call of the model to every attention layer. layers: those that have been here, settings:
    what each of them asked for."""

    rows: list[RowPass]
    layers: list[int] = field(default_factory=list[int])
    settings: list[Settings] = field(default_factory=list[Settings])

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "N H HD"],
        keys: Float[Tensor, "N KH HD"],
        values: Float[Tensor, "N KH HD"],
        settings: Settings,
    ) -> Float[Tensor, "N H HD"]:
        """One layer's attention for all rows, in the dtype of the cache."""
        self.layers.append(layer)
        self.settings.append(settings)
        parts: list[Tensor] = []
        for row in self.rows:
            nodes = slice(row.start, row.end)
            parts.append(row.attend(layer, query[nodes], keys[nodes], values[nodes], settings))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def lay_out(packed: Packed, cache: KVCache, drafted: bool) -> Pass:
    """Room in the cache for every node of the pack, and the facts that its attention layers need."""
    rows: list[RowPass] = []
    for index, row in enumerate(packed.row_ids):
        start, end = packed.starts[index], packed.starts[index + 1]
        if packed.is_chain(index):
            paths = [PathPass(None, None, torch.arange(end - start, device=cache.device))]
        else:
            paths = _paths([parent - start for parent in packed.parents[start:end]], cache.device)
        buffer = cache.reserve(row, end - start)
        rows.append(RowPass(start, end, cache.length(row), buffer, paths, drafted and end - start > 1))
    return Pass(rows)


def _paths(parents: Sequence[int], device: torch.device) -> list[PathPass]:
    """The ways from the root (node 0) to each leaf; every node is answered by the first that it lies on."""
    answered: set[int] = set()
    paths: list[PathPass] = []
    for leaf in sorted(set(range(len(parents))) - set(parents)):
        nodes = _way_to(leaf, parents)
        queries = [node for node in nodes if node not in answered]
        answered.update(queries)
        depths = torch.arange(len(nodes) - len(queries), len(nodes), device=device)
        paths.append(PathPass(torch.tensor(nodes, device=device), torch.tensor(queries, device=device), depths))
    return paths


def _way_to(node: int, parents: Sequence[int]) -> list[int]:
    way: list[int] = []
    while node >= 0:
        way.append(node)
        node = parents[node]
    return way[::-1]
