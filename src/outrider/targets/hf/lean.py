"""The lean pass: the layers of a known decoder in one native call, instead of transformers' modules one by one.

The modules stay the reference, and serve whatever is not known (family.py). Between the products activations are fp32,
where a bf16 model's modules round after every operation: the same function, nearer to what the weights say. Embedding,
head, rotations and the cap of the logits are still the model's own modules.
"""

import os
from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from outrider.kernels import NativeLinear
from outrider.kernels.decoder import CacheRow, NativeDecoder, native_decoder
from outrider.targets.hf.family import NotKnown, read_decoder
from outrider.targets.hf.kv_cache import KVCache
from outrider.targets.hf.layout import Settings
from outrider.targets.hf.linear import RowwiseActivation
from outrider.types import Packed

SWITCH = "OUTRIDER_LEAN"
ROPE_BLOCK = 64  # positions whose rotations are computed at once, always in a tensor of the same shape


def lean_pass(model: Any, settings: Sequence[Settings], max_length: int) -> "LeanPass | str":
    """The lean pass over this model's weights, or the reason why it does not fit.

    settings: what each layer asked its attention for in a plain pass. max_length: positions to be prepared for.
    """
    if os.environ.get(SWITCH, "1") == "0":
        return f"switched off by {SWITCH}=0"
    try:
        decoder = read_decoder(model, settings)
    except NotKnown as reason:
        return str(reason)
    native = native_decoder(decoder.shape, decoder.layers, decoder.final_norm)
    if isinstance(native, str):
        return native
    rotary = model.base_model.rotary_emb
    ropes = [RopeTable(rotary, kind, decoder.shape.head_size, max_length) for kind in decoder.rope_kinds]
    if not all(rope.fits() for rope in ropes):
        return "its rotations do not cover whole heads"
    return LeanPass(native, ropes, decoder.logit_cap)


class LeanPass:
    """Scores packed nodes against cache rows, as the model's own forward does through bridge.py."""

    def __init__(self, native: NativeDecoder, ropes: "list[RopeTable]", logit_cap: float | None) -> None:
        self._native = native
        self._ropes = ropes
        self._logit_cap = logit_cap
        self._tanh = RowwiseActivation(nn.Tanh())

    def run(
        self,
        model: Any,
        packed: Packed,
        cache: KVCache,
        want: Int[Tensor, "M"] | None,
        hidden_layers: Sequence[int] = (),
        layers: Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "M V"] | None, dict[int, Tensor]]:
        """Logits (fp32) of the wanted nodes, or None, and the outputs of hidden_layers in the model's dtype.

        model: whose embedding and head are used. layers: those that run, None for all. Raises TargetError.
        """
        states = model.get_input_embeddings()(packed.tokens).float()
        final, hidden = self.advance(states, packed, cache, want, hidden_layers, layers)
        logits = None if final is None else self.logits(model, final)
        return logits, {layer: output.to(model.dtype) for layer, output in hidden.items()}

    def advance(
        self,
        states: Float[Tensor, "N H"],
        packed: Packed,
        cache: KVCache,
        want: Int[Tensor, "M"] | None,
        hidden_layers: Sequence[int] = (),
        layers: Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "M H"] | None, dict[int, Tensor]]:
        """Normed final states of the wanted nodes and outputs of layers, in fp32; the states are overwritten."""
        rows = [_cache_row(packed, index, cache) for index in range(len(packed.row_ids))]
        longest = max(row.length + row.end - row.start for row in rows)
        ropes = [rope.upto(longest) for rope in self._ropes]
        return self._native.run(states, rows, ropes, want, hidden_layers, layers)

    def logits(self, model: Any, final: Float[Tensor, "M H"]) -> Float[Tensor, "M V"]:
        """The model's head over normed final states."""
        head = model.get_output_embeddings()
        logits = head(final if isinstance(head, NativeLinear) else final.to(head.weight.dtype)).float()
        return logits if self._logit_cap is None else self._tanh(logits / self._logit_cap) * self._logit_cap


class RopeTable:
    """Cosines and sines of positions 0, 1, ..., from the model's own rotary module, computed once and kept."""

    def __init__(self, rotary: nn.Module, kind: tuple[str, ...], head_size: int, max_length: int) -> None:
        self._rotary, self._kind, self._head_size, self._max_length = rotary, kind, head_size, max_length
        self._table = torch.empty(0, 2, head_size)

    def upto(self, length: int) -> Float[Tensor, "P 2 HD"]:
        """At least `length` positions."""
        while self._table.shape[0] < length:
            self._table = torch.cat([self._table, self._block(self._table.shape[0])])
        return self._table

    def fits(self) -> bool:
        """Whether the module turns all of a head."""
        return self._block(0).shape == (ROPE_BLOCK, 2, self._head_size)

    def _block(self, start: int) -> Tensor:
        """Positions from `start` on; none beyond the limit, where some kinds of rotation would change all others."""
        positions = torch.arange(start, start + ROPE_BLOCK).clamp(max=self._max_length - 1)
        cosines, sines = cast("tuple[Tensor, Tensor]", self._rotary(torch.empty(1), positions[None], *self._kind))
        return torch.stack([cosines[0], sines[0]], 1)


def _cache_row(packed: Packed, index: int, cache: KVCache) -> CacheRow:
    row, start, end = packed.row_ids[index], packed.starts[index], packed.starts[index + 1]
    parents = None
    if not packed.is_chain(index):
        parents = [parent - start if parent >= 0 else -1 for parent in packed.parents[start:end]]
    return CacheRow(cache.reserve(row, end - start), cache.length(row), start, end, parents)
