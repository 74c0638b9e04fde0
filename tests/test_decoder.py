"""The native decoder against float64 sums, over odd sizes; every node's bits independent of all that it may not see."""

import ctypes
import random
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from outrider.errors import TargetError
from outrider.kernels import available, quantize_rows
from outrider.kernels.decoder import (
    ACTIVATIONS,
    NORMS,
    PRODUCTS,
    CacheRow,
    DecoderLayer,
    DecoderShape,
    LinearWeights,
    NativeDecoder,
    native_decoder,
)
from outrider.kernels.library import load
from outrider.kernels.linear import native_linear

pytestmark = pytest.mark.skipif(not available()[0], reason=available()[1])

LENGTHS = (0, 1, 31, 32, 33, 70)
SHAPES = {  # hidden, heads, key heads, head size, inner
    "plain": DecoderShape(48, 4, 4, 16, 40, 1e-5, "silu"),
    "grouped": DecoderShape(37, 6, 2, 64, 51, 1e-6, "silu"),
    "seven": DecoderShape(64, 7, 1, 80, 33, 1e-6, "gelu_tanh"),
    "pairs": DecoderShape(50, 4, 2, 96, 70, 1e-5, "gelu_tanh"),
    "wide": DecoderShape(30, 3, 1, 128, 45, 1e-5, "silu"),
    "small": DecoderShape(20, 5, 1, 10, 17, 1e-5, "silu"),
}
TREE = (-1, 0, 0, 1, 1, 2, 5, 6)


@dataclass
class World:
    """A random decoder, its layers' tensors, one table of rotations per kind."""

    native: NativeDecoder
    shape: DecoderShape
    layers: list[DecoderLayer]
    final_norm: Tensor
    ropes: list[Tensor]

    def row(self, length: int, capacity: int = 128, seed: int = 0) -> Tensor:
        """A buffer whose committed slots are random, and whose other slots are poison."""
        size = (len(self.layers), 2, capacity, self.shape.key_heads, self.shape.head_size)
        buffer = torch.full(size, float("nan"))
        buffer[:, :, :length] = draw((size[0], 2, length, *size[3:]), seed + 99)
        return buffer

    def run(self, states: Tensor, rows: list[CacheRow], **options: object) -> Tensor:
        wanted = torch.arange(states.shape[0])
        final, _ = self.native.run(states.clone(), rows, self.ropes, wanted, **options)
        assert final is not None
        return final


def draw(size: tuple[int, ...], seed: int, scale: float = 1.0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * scale


def make(name: str, kind: str = "fp32", num_layers: int = 2, everything: bool = False) -> World:
    """everything: biases, norms of heads and branches, a window, two tables."""
    shape, seed = SHAPES[name], 0
    width, key_width = shape.heads * shape.head_size, shape.key_heads * shape.head_size
    sizes = [(width, shape.hidden), (key_width, shape.hidden), (key_width, shape.hidden), (shape.hidden, width)]
    sizes += [(shape.inner, shape.hidden), (shape.inner, shape.hidden), (shape.hidden, shape.inner)]
    layers = []
    for index in range(num_layers):
        products = {}
        for product, size in zip(PRODUCTS, sizes, strict=True):
            seed += 1
            weight, bias = draw(size, seed, size[1] ** -0.5), draw(size[:1], seed + 500) if everything else None
            scale = None
            if kind == "int8":
                weight, scale = quantize_rows(weight)
            elif kind == "bf16":
                weight = weight.bfloat16()
            products[product] = LinearWeights(weight, bias, scale)
        norms = {}
        for place, norm in enumerate(NORMS):
            length = shape.head_size if place > 3 else shape.hidden
            if place < 2 or everything:
                norms[norm] = 1 + draw((length,), seed + 100 * place, 0.1)
        window = (None, 20)[index % 2] if everything else None
        rope = index % 2 if everything else 0
        layers.append(DecoderLayer(**products, **norms, scale=0.2, window=window, rope=rope))
    angles = torch.arange(256)[:, None] * torch.logspace(0, -3, shape.head_size // 2)[None]
    ropes = []
    for table in (angles, angles * 0.1)[: 2 if everything else 1]:
        whole = torch.cat([table, table], 1)
        ropes.append(torch.stack([whole.cos(), whole.sin()], 1))
    final_norm = 1 + draw((shape.hidden,), 7, 0.1)
    native = native_decoder(shape, layers, final_norm)
    assert isinstance(native, NativeDecoder), native
    return World(native, shape, layers, final_norm, ropes)


# ---- the slow twin: one node after another, in float64


def norm(x: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
    return x if weight is None else x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight.double()


def product(weights: LinearWeights, x: Tensor) -> Tensor:
    layer = native_linear(weights.weight, weights.bias, weights.scale)
    if weights.scale is not None:  # its rounding of activations is its own matter (test_kernels.py)
        assert layer is not None
        return layer(x.float()[None])[0].double()
    return F.linear(x, weights.weight.double(), None if weights.bias is None else weights.bias.double())


def rotate(x: Tensor, table: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * table[0].double() + torch.cat([-second, first], -1) * table[1].double()


def reference(world: World, states: Tensor, row: CacheRow) -> Tensor:
    """Final states of one row's nodes; the row's buffer is read, not written."""
    shape, count = world.shape, row.end - row.start
    parents = row.parents or range(-1, count - 1)
    ways: list[list[int]] = []
    for node, parent in enumerate(parents):
        ways.append([*(ways[parent] if parent >= 0 else []), node])
    x = states[row.start : row.end].double()
    for index, layer in enumerate(world.layers):
        normed = norm(x, layer.input_norm, shape.epsilon)
        keys, values = [], []
        for node in range(count):
            table = world.ropes[layer.rope][row.length + len(ways[node]) - 1]
            heads = product(layer.key, normed[node]).view(-1, shape.head_size)
            keys.append(rotate(norm(heads, layer.key_norm, shape.epsilon), table))
            values.append(product(layer.value, normed[node]).view(-1, shape.head_size))
        out = []
        for node in range(count):
            position = row.length + len(ways[node]) - 1
            table = world.ropes[layer.rope][position]
            query = product(layer.query, normed[node]).view(-1, shape.head_size)
            query = rotate(norm(query, layer.query_norm, shape.epsilon), table) * layer.scale
            before = row.buffer[index, :, : row.length].double()
            own = [torch.stack([part[n] for n in ways[node]]) for part in (keys, values)]
            seen_keys, seen_values = (torch.cat([before[half], own[half]]) for half in (0, 1))
            start = 0 if layer.window is None else max(0, position - layer.window + 1)
            group = shape.heads // shape.key_heads
            read = []
            for head in range(shape.heads):
                weights = torch.softmax(seen_keys[start:, head // group] @ query[head], 0)
                read.append(weights @ seen_values[start:, head // group])
            out.append(norm(product(layer.output, torch.cat(read)), layer.after_attention, shape.epsilon))
        x = x + torch.stack(out)
        ends = []
        for node in range(count):
            normed = norm(x[node], layer.mlp_norm, shape.epsilon)
            gate = product(layer.gate, normed)
            gate = F.silu(gate) if shape.activation == "silu" else F.gelu(gate, approximate="tanh")
            ends.append(norm(product(layer.down, gate * product(layer.up, normed)), layer.after_mlp, shape.epsilon))
        x = x + torch.stack(ends)
    return norm(x, world.final_norm, shape.epsilon)


@pytest.mark.parametrize("everything", [False, True], ids=["bare", "everything"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_pass_equals_its_definition(name, everything):
    world = make(name, "bf16" if everything else "fp32", everything=everything)
    for length in LENGTHS:
        states = draw((len(TREE), world.shape.hidden), length)
        for parents in (None, TREE):
            row = CacheRow(world.row(length), length, 0, len(TREE), parents)
            right = reference(world, states, row)
            assert torch.allclose(world.run(states, [row]).double(), right, rtol=1e-4, atol=2e-5), (length, parents)


def test_int8_weights_are_served_too():
    world = make("grouped", "int8", num_layers=1)
    states, row = draw((4, world.shape.hidden), 3), CacheRow(world.row(9), 9, 0, 4)
    assert torch.allclose(world.run(states, [row]).double(), reference(world, states, row), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_nodes_bits_depend_on_its_path_alone(name, kind):
    world, length = make(name, kind, everything=True), 45
    states = draw((len(TREE), world.shape.hidden), 5)
    tree = world.run(states, [CacheRow(world.row(length), length, 0, len(TREE), TREE)])
    for leaf in (3, 4, 7):
        way = []
        node = leaf
        while node >= 0:
            way.insert(0, node)
            node = TREE[node]
        buffer = world.row(length)
        chain = world.run(states[way], [CacheRow(buffer, length, 0, len(way))])
        assert torch.equal(chain, tree[way])
        stepwise, buffer = [], world.row(length)
        for step, node in enumerate(way):
            stepwise.append(world.run(states[node : node + 1], [CacheRow(buffer, length + step, 0, 1)]))
        assert torch.equal(torch.cat(stepwise), tree[way])


def test_rows_of_a_batch_in_any_order_with_any_threads_have_the_same_bits():
    world, random_ = make("seven", "bf16", everything=True), random.Random(1)
    lengths = [70, 3, 40, 0]
    sizes, trees = [8, 1, 100, 5], [TREE, None, None, (-1, 0, 0, 0, 0)]
    states = [draw((size, world.shape.hidden), size) for size in sizes]
    alone = [
        world.run(states[i], [CacheRow(world.row(lengths[i], 256, seed=i), lengths[i], 0, sizes[i], trees[i])])
        for i in range(4)
    ]
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            order = random_.sample(range(4), 4)
            rows, start = [], 0
            for i in order:
                buffer = world.row(lengths[i], 192, seed=i)
                rows.append(CacheRow(buffer, lengths[i], start, start + sizes[i], trees[i]))
                start += sizes[i]
            together = world.run(torch.cat([states[i] for i in order]), rows)
            assert torch.equal(together, torch.cat([alone[i] for i in order])), (threads, order)
    finally:
        torch.set_num_threads(before)


def test_a_broken_node_reaches_only_those_below_it():
    world, length = make("grouped", everything=True), 33
    states = draw((len(TREE), world.shape.hidden), 8)
    clean = world.run(states, [CacheRow(world.row(length), length, 0, len(TREE), TREE)])
    states[1] = float("nan")
    broken = world.run(states, [CacheRow(world.row(length), length, 0, len(TREE), TREE)])
    assert torch.equal(broken[[0, 2, 5, 6, 7]], clean[[0, 2, 5, 6, 7]])
    assert broken[[1, 3, 4]].isnan().all()


def test_keys_and_values_lie_in_the_nodes_own_slots_and_nowhere_else():
    world, length = make("pairs"), 5
    buffer, chained = world.row(length), world.row(length)
    states = draw((3, world.shape.hidden), 2)
    world.run(states, [CacheRow(buffer, length, 0, 3, (-1, 0, 0))])
    world.run(states[[0, 2]], [CacheRow(chained, length, 0, 2)])
    assert torch.equal(buffer[:, :, : length + 1], chained[:, :, : length + 1])
    assert torch.equal(buffer[:, :, length + 2], chained[:, :, length + 1])
    assert buffer[:, :, length + 3 :].isnan().all()


def test_nothing_wanted_fills_the_cache_all_the_same():
    world, states = make("plain"), None
    first, second = world.row(0), world.row(0)
    states = draw((6, world.shape.hidden), 2)
    world.run(states, [CacheRow(first, 0, 0, 6)])
    assert world.native.run(states.clone(), [CacheRow(second, 0, 0, 6)], world.ropes) == (None, {})
    assert torch.equal(first.nan_to_num(), second.nan_to_num())


def test_outputs_of_layers_and_passes_over_some_layers():
    world, few = make("plain", num_layers=3), None
    states, wanted = draw((4, world.shape.hidden), 2), torch.tensor([3, 1])
    final, hidden = world.native.run(states.clone(), [CacheRow(world.row(0), 0, 0, 4)], world.ropes, wanted, (0, 2))
    few = native_decoder(world.shape, [world.layers[0]], world.final_norm)
    assert isinstance(few, NativeDecoder)
    first, alone = few.run(states.clone(), [CacheRow(world.row(0)[:1], 0, 0, 4)], world.ropes, wanted, (0,))
    assert torch.equal(hidden[0], alone[0])
    assert not torch.equal(hidden[2], hidden[0])
    some, _ = world.native.run(states.clone(), [CacheRow(world.row(0), 0, 0, 4)], world.ropes, wanted, layers=[0])
    assert torch.equal(some, first)
    assert torch.equal(world.run(states, [CacheRow(world.row(0), 0, 0, 4)])[wanted], final)


def test_calls_that_would_harm_memory_are_refused():
    world = make("plain")
    states, row = draw((4, world.shape.hidden), 2), CacheRow(world.row(0), 0, 0, 4)
    with pytest.raises(TargetError, match="layer 2 does not exist; this model has 0 to 1"):
        world.run(states, [row], layers=[2])
    with pytest.raises(TargetError, match="layer 1 does not run"):
        world.run(states, [row], layers=[0], hidden_layers=(1,))
    with pytest.raises(TargetError, match="no room for 129 tokens"):
        world.run(states, [replace(row, length=125)])
    with pytest.raises(TargetError, match="no room for 204 tokens"):
        world.native.run(states, [CacheRow(world.row(0, 512), 200, 0, 4)], [world.ropes[0][:203]])
    with pytest.raises(TargetError, match="fp32 states"):
        world.run(states.double(), [row])


def test_what_the_decoder_cannot_serve_gets_a_reason():
    world = make("plain")
    narrow = replace(world.shape, heads=132, key_heads=4)
    assert "33 query heads share" in str(native_decoder(narrow, world.layers, world.final_norm))
    odd = replace(world.shape, activation="relu")
    assert native_decoder(odd, world.layers, world.final_norm) == "its activation is relu"
    half = replace(world.layers[0], gate=LinearWeights(world.layers[0].gate.weight.half()))
    assert native_decoder(world.shape, [half], world.final_norm) == "gate: weight is torch.float16"


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("size", [1, 5, 8, 20_003])
def test_activations_are_right_to_a_few_units_in_the_last_place(kind, size):
    gate = torch.cat([draw((size,), 1, 4.0), torch.tensor([0.0, -0.0, 88.0, -86.0, 1e-30, 3e4, -3e4])])
    up, out, library = torch.ones_like(gate), torch.empty_like(gate), load()
    assert library is not None
    library.activate(ACTIVATIONS[kind], gate.data_ptr(), up.data_ptr(), out.data_ptr(), gate.numel())
    x = gate.double()
    y = x if kind == "silu" else 2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)
    right = x * torch.sigmoid(y)
    allowed = right.abs() * 2**-21 * (1 + y.abs() / 2) + 1e-33
    assert bool(((out.double() - right).abs() <= allowed).all())
    out[:] = float("nan")
    library.activate(ACTIVATIONS[kind], out.data_ptr(), up.data_ptr(), out.data_ptr(), ctypes.c_int64(size).value)
    assert out.isnan().all()
