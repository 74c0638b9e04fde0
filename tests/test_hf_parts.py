"""The parts below the Hugging Face target, each against its slow twin or its definition."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers.pytorch_utils import Conv1D

from outrider.targets.hf.attention import TILE, attend, attend_plain, tile_mask
from outrider.targets.hf.kv_cache import BLOCK, CacheShape, KVCache
from outrider.targets.hf.layout import _paths
from outrider.targets.hf.linear import (
    DoubledLinear,
    PackedLinear,
    PaddedLinear,
    RowwiseActivation,
    make_row_independent,
)

WIDTHS = (1, 2, 3, 5, 8, 17, 64)


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def attention_case(num_nodes: int, length: int, num_seen: int, heads: int = 6, key_heads: int = 2, size: int = 16):
    keys, values = random(num_seen, key_heads, size, seed=1), random(num_seen, key_heads, size, seed=2)
    allowed = torch.arange(num_seen) <= length + torch.arange(num_nodes)[:, None]
    return random(num_nodes, heads, size), keys, values, tile_mask(allowed, heads // key_heads, torch.float32), allowed


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_attention_equals_its_definition(softcap):
    query, keys, values, mask, allowed = attention_case(5, 20, BLOCK)
    ours = attend(query, keys, values, mask, 0.25, softcap)
    for node in range(5):
        for head in range(6):
            seen = allowed[node]
            scores = keys[seen, head // 3] @ query[node, head] * 0.25
            scores = scores if softcap is None else torch.tanh(scores / softcap) * softcap
            assert torch.allclose(ours[node, head], torch.softmax(scores, 0) @ values[seen, head // 3], atol=1e-5)


@pytest.mark.parametrize("num_nodes", WIDTHS)
def test_fused_and_plain_attention_agree(num_nodes):
    query, keys, values, mask, _ = attention_case(num_nodes, 600, 2 * BLOCK)
    fused = attend(query, keys, values, mask, 0.25)
    assert torch.allclose(fused, attend_plain(query, keys, values, mask, 0.25), atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_attention_bits_do_not_depend_on_width_length_or_threads(threads):
    query, keys, values, mask, allowed = attention_case(17, 505, 3 * BLOCK)
    reference = attend(query, keys, values, mask, 0.25)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for node in range(17):
            seen = BLOCK if 505 + node < BLOCK else 2 * BLOCK
            alone = tile_mask(allowed[node : node + 1, :seen], 3, torch.float32)
            assert alone.shape == (1, 1, TILE, seen)
            assert torch.equal(
                attend(query[node : node + 1], keys[:seen], values[:seen], alone, 0.25)[0], reference[node]
            )
    finally:
        torch.set_num_threads(before)


def test_blocks_that_are_masked_altogether_add_nothing():
    query, keys, values, _, _ = attention_case(1, 1100, 3 * BLOCK)
    allowed = (torch.arange(3 * BLOCK) > 1090) & (torch.arange(3 * BLOCK) <= 1100)
    windowed = attend(query, keys, values, tile_mask(allowed[None], 3, torch.float32), 0.25)
    late = attend(query, keys[1024:], values[1024:], tile_mask(allowed[None, 1024:], 3, torch.float32), 0.25)
    assert torch.isfinite(windowed).all()
    assert torch.equal(windowed, late)


LAYERS = {
    "packed": (PackedLinear, torch.float32),
    "doubled": (DoubledLinear, torch.bfloat16),
    "padded": (PaddedLinear, torch.float64),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_linear_layers_equal_torch_and_their_rows_are_independent(name, bias):
    kind, dtype = LAYERS[name]
    weight, inputs = random(40, 24, dtype=dtype), random(64, 24, dtype=dtype, seed=3)
    offset = random(40, dtype=dtype, seed=4) if bias else None
    layer = kind(weight, offset)
    whole = layer(inputs)
    assert torch.allclose(whole, F.linear(inputs, weight, offset), atol=0.1 if dtype == torch.bfloat16 else 1e-5)
    for width in WIDTHS:
        assert torch.equal(layer(inputs[None, :width])[0], whole[:width]), width


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("width", [40, 100, 1536, 40_000])
@pytest.mark.parametrize("function", [nn.SiLU(), nn.GELU(), nn.GELU(approximate="tanh"), nn.Tanh()])
def test_activations_are_the_same_for_any_number_of_rows(function, width, dtype):
    layer, inputs = RowwiseActivation(function), random(33, width, dtype=dtype) * 3
    whole = layer(inputs)
    assert torch.allclose(whole, function(inputs), atol=1e-6, rtol=1e-2)
    for row in (0, 1, 16, 32):
        assert torch.equal(layer(inputs[row : row + 1])[0], whole[row])


def test_every_linear_layer_and_activation_is_swapped():
    model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), Conv1D(4, 16), nn.Softmax(-1)).double()
    inputs = random(3, 8, dtype=torch.float64)
    with torch.no_grad():
        before = model(inputs)
        make_row_independent(model)
        assert [type(part) for part in model] == [PaddedLinear, RowwiseActivation, PaddedLinear, nn.Softmax]
        assert torch.allclose(model(inputs), before)


def fresh_cache() -> KVCache:
    return KVCache(CacheShape(2, 1, 4), torch.float32, torch.device("cpu"))


def write(cache: KVCache, row: int, numbers: list[int]) -> None:
    buffer, length = cache.reserve(row, len(numbers)), cache.length(row)
    for offset, number in enumerate(numbers):
        buffer[:, :, length + offset] = number


def held(cache: KVCache, row: int) -> list[int]:
    """One number per slot, zeros at the end left out."""
    numbers = cache.reserve(row, 0)[1, 1, :, 0, 3].int().tolist()
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


def test_the_cache_keeps_a_path_and_clears_the_rest():
    cache = fresh_cache()
    write(cache, 0, [1, 2, 3])
    cache.keep(0, [0, 1])
    assert held(cache, 0) == [1, 2]
    write(cache, 0, [10, 11, 12, 13])
    cache.keep(0, [0, 2, 3])
    assert (held(cache, 0), cache.length(0)) == ([1, 2, 10, 12, 13], 5)
    cache.truncate(0, 1)
    cache.truncate(0, 4)
    assert (held(cache, 0), cache.length(0)) == ([1], 1)


def test_a_shorter_second_score_leaves_nothing_of_the_first():
    cache = fresh_cache()
    write(cache, 0, [1, 2, 3])
    write(cache, 0, [4])
    cache.keep(0, [0])
    assert held(cache, 0) == [4]


def test_the_cache_grows_in_blocks_and_rows_are_apart():
    cache = fresh_cache()
    write(cache, 0, list(range(1, BLOCK + 1)))
    cache.keep(0, range(BLOCK))
    write(cache, 3, [7])
    write(cache, 0, [9, 9])
    cache.keep(0, [0, 1])
    assert held(cache, 0) == [*range(1, BLOCK + 1), 9, 9]
    assert cache.reserve(0, 0).shape[2] == 2 * BLOCK
    cache.free(0)
    assert (cache.length(0), held(cache, 3)) == (0, [7])


def test_paths_of_a_tree_answer_every_node_once():
    paths = _paths((-1, 0, 0, 1, 2, 2, 5), torch.device("cpu"))
    assert [path.nodes.tolist() for path in paths] == [[0, 1, 3], [0, 2, 4], [0, 2, 5, 6]]
    assert [path.queries.tolist() for path in paths] == [[0, 1, 3], [2, 4], [5, 6]]
    assert [path.depths.tolist() for path in paths] == [[0, 1, 2], [1, 2], [2, 3]]
