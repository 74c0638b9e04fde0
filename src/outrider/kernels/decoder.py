"""A decoder of the Llama family as one native call per pass: its layers described once, its passes by addresses.

Knows csrc/decoder.h's structs, tensors and their addresses; not transformers. What a node gets depends on the weights
and on its own path alone, bit for bit (csrc/decoder.c, attend.h).
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from outrider.errors import TargetError
from outrider.kernels.library import (
    MAX_ROPES,
    LayerStruct,
    Library,
    LinearStruct,
    PassStruct,
    RowStruct,
    ShapeStruct,
    available,
    load,
)
from outrider.kernels.linear import linear_obstacle, linear_struct

ACTIVATIONS = {"silu": 0, "gelu_tanh": 1}  # as in csrc/activation.h
MAX_GROUP = 32  # query heads per key head, as in csrc/attend.h
PRODUCTS = ("query", "key", "value", "output", "gate", "up", "down")  # both in the order of csrc/decoder.h
NORMS = ("input_norm", "mlp_norm", "after_attention", "after_mlp", "query_norm", "key_norm")


@dataclass(frozen=True)
class DecoderShape:
    """Sizes of a decoder. epsilon: of every norm. activation: of the gate, a key of ACTIVATIONS."""

    hidden: int
    heads: int
    key_heads: int
    head_size: int
    inner: int
    epsilon: float
    activation: str


@dataclass(frozen=True, eq=False)
class LinearWeights:
    """One product's tensors, as `native_linear` takes them."""

    weight: Tensor
    bias: Tensor | None = None
    scale: Tensor | None = None


@dataclass(frozen=True, eq=False)
class DecoderLayer:
    """One layer: products and norms (fp32, ready to multiply with). window: newest positions seen, None for all.

    scale: of the attention scores. rope: which of the pass's tables turns its queries and keys.
    """

    query: LinearWeights
    key: LinearWeights
    value: LinearWeights
    output: LinearWeights
    gate: LinearWeights
    up: LinearWeights
    down: LinearWeights
    input_norm: Float[Tensor, "H"]
    mlp_norm: Float[Tensor, "H"]
    scale: float
    window: int | None = None
    rope: int = 0
    after_attention: Float[Tensor, "H"] | None = None
    after_mlp: Float[Tensor, "H"] | None = None
    query_norm: Float[Tensor, "HD"] | None = None
    key_norm: Float[Tensor, "HD"] | None = None


@dataclass(frozen=True, eq=False)
class CacheRow:
    """One row of a pass: its buffer, its committed length, and its nodes [start, end).

    parents: each node's parent, counted from the row's first (-1 for the root, else an earlier node); None: a chain.
    Node i is written to slot length + i.
    """

    buffer: Float[Tensor, "L 2 T KH HD"]
    length: int
    start: int
    end: int
    parents: Sequence[int] | None = None


class NativeDecoder:
    """The layers of one decoder. Its tensors are neither copied nor let go; a change made in them in place counts."""

    def __init__(
        self, library: Library, shape: DecoderShape, layers: Sequence[DecoderLayer], final_norm: Float[Tensor, "H"]
    ) -> None:
        self.shape = shape
        self.num_layers = len(layers)
        self._function = library.decode
        self._alive: list[object] = [*layers, final_norm]
        self._final_norm = final_norm.data_ptr()
        self._layers = [ctypes.addressof(self._describe(layer, index)) for index, layer in enumerate(layers)]
        self._shape = ShapeStruct(*_shape_fields(shape))

    def run(
        self,
        states: Float[Tensor, "N H"],
        rows: Sequence[CacheRow],
        ropes: Sequence[Float[Tensor, "P 2 HD"]],
        wanted: Int[Tensor, "M"] | None = None,
        hidden_layers: Sequence[int] = (),
        layers: Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "M H"] | None, dict[int, Tensor]]:
        """One pass over embedded nodes: keys and values of every node go into the rows, `states` is overwritten.

        Returns the normed final states of the wanted nodes (None: of none), and the outputs (N, H) of hidden_layers.
        ropes: per table, cosines and sines of every position in the pass. layers: those that run, in this order (None:
        all); hidden_layers must be among them. The rows must have room for their nodes. Raises TargetError.
        """
        order = range(self.num_layers) if layers is None else layers
        captured = {layer: torch.empty_like(states) for layer in hidden_layers}
        self._check(states, rows, ropes, order, captured)
        nodes = None if wanted is None else wanted.long().contiguous()
        final = None if nodes is None else states.new_empty(nodes.shape[0], self.shape.hidden)
        kept = [captured[layer].data_ptr() if layer in captured else None for layer in order]
        call = PassStruct(
            ctypes.addressof(self._shape),
            _addresses([self._layers[layer] for layer in order]),
            (RowStruct * len(rows))(*(_row_fields(row) for row in rows)),
            _parents(rows, states.shape[0]),
            (ctypes.c_void_p * MAX_ROPES)(*(table.data_ptr() for table in ropes)),
            states.data_ptr(),
            _addresses(kept),
            None if nodes is None else nodes.data_ptr(),
            self._final_norm,
            None if final is None else final.data_ptr(),
            len(kept),
            len(rows),
            states.shape[0],
            0 if nodes is None else nodes.shape[0],
            torch.get_num_threads(),
        )
        if self._function(ctypes.addressof(call)):
            raise TargetError(f"no memory for the activations of a pass over {states.shape[0]} nodes")
        return final, captured

    def _describe(self, layer: DecoderLayer, index: int) -> "LayerStruct":
        """The layer as C reads it; it stays alive with the decoder, as do the products that it names."""
        products = [_struct(getattr(layer, name)) for name in PRODUCTS]
        norms = [None if (norm := getattr(layer, name)) is None else norm.data_ptr() for name in NORMS]
        addresses = [ctypes.addressof(product) for product in products]
        struct = LayerStruct(*addresses, *norms, index, layer.window or 0, layer.scale, layer.rope)
        self._alive += [products, struct]
        return struct

    def _check(
        self,
        states: Tensor,
        rows: Sequence[CacheRow],
        ropes: Sequence[Tensor],
        order: Sequence[int],
        captured: dict[int, Tensor],
    ) -> None:
        """What a wrong caller could do to memory; costs little beside a pass."""
        shape = self.shape
        if not states.is_contiguous() or states.dtype != torch.float32 or states.shape[1] != shape.hidden:
            raise TargetError(f"a pass takes contiguous fp32 states (N, {shape.hidden}), not {tuple(states.shape)}")
        if strange := [layer for layer in (*order, *captured) if not 0 <= layer < self.num_layers]:
            raise TargetError(f"layer {strange[0]} does not exist; this model has 0 to {self.num_layers - 1}")
        if missing := [layer for layer in captured if layer not in order]:
            raise TargetError(f"layer {missing[0]} does not run in this pass, so it has no output")
        positions = min(table.shape[0] for table in ropes)
        for row in rows:
            last = row.length + row.end - row.start
            if last > row.buffer.shape[2] or last > positions or not row.buffer.is_contiguous():
                raise TargetError(f"a row of {row.buffer.shape[2]} slots has no room for {last} tokens")


def native_decoder(
    shape: DecoderShape, layers: Sequence[DecoderLayer], final_norm: Float[Tensor, "H"]
) -> "NativeDecoder | str":
    """The decoder over these very tensors, or the reason why the kernels cannot serve it. Raises OptionError."""
    library = load()
    if library is None:
        return f"no native kernels: {available()[1]}"
    if shape.heads // shape.key_heads > MAX_GROUP:
        return f"{shape.heads // shape.key_heads} query heads share a key head; the native pass takes {MAX_GROUP}"
    if shape.head_size % 2 or shape.heads % shape.key_heads:
        return f"heads of size {shape.head_size}, {shape.heads} over {shape.key_heads} key heads, cannot be rotated"
    if shape.activation not in ACTIVATIONS:
        return f"its activation is {shape.activation}"
    for layer in layers:
        for name in PRODUCTS:
            weights: LinearWeights = getattr(layer, name)
            if obstacle := linear_obstacle(weights.weight, weights.bias, weights.scale):
                return f"{name}: {obstacle}"
        if obstacle := _norm_obstacle(layer):
            return obstacle
    return NativeDecoder(library, shape, layers, final_norm)


def _norm_obstacle(layer: DecoderLayer) -> str:
    for name in NORMS:
        norm: Tensor | None = getattr(layer, name)
        if norm is not None and (norm.dtype != torch.float32 or not norm.is_cpu or not norm.is_contiguous()):
            return f"{name} is not fp32 on the CPU"
    return ""


def _struct(weights: LinearWeights) -> LinearStruct:
    return linear_struct(weights.weight, weights.bias, weights.scale)


def _shape_fields(shape: DecoderShape) -> tuple[int | float, ...]:
    sizes = (shape.hidden, shape.heads, shape.key_heads, shape.head_size, shape.inner)
    return (*sizes, shape.epsilon, ACTIVATIONS[shape.activation])


def _row_fields(row: CacheRow) -> tuple[int, ...]:
    buffer = row.buffer
    return buffer.data_ptr(), buffer.shape[2], row.length, row.start, row.end, int(row.parents is None)


def _addresses(pointers: Sequence[int | None]) -> "ctypes.Array[ctypes.c_void_p]":
    return (ctypes.c_void_p * len(pointers))(*pointers)


def _parents(rows: Sequence[CacheRow], num_nodes: int) -> "ctypes.Array[ctypes.c_int32] | None":
    """(N,) the parents' places in the pass; None where all rows are chains."""
    if all(row.parents is None for row in rows):
        return None
    places = (ctypes.c_int32 * num_nodes)()
    for row in rows:
        if row.parents is not None:
            places[row.start : row.end] = [parent + row.start if parent >= 0 else -1 for parent in row.parents]
    return places
