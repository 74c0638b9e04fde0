"""int8 targets: the arithmetic to the last bit, the same text whatever the drafter, and what is kept on disk."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers_hf import tiny
from outrider import Engine
from outrider.bench.quality import compare, read_texts
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.recycle import RecycleDrafter
from outrider.errors import OptionError, UnsupportedError
from outrider.kernels import available, library, native_linear, quantize_rows
from outrider.kernels.quantize import activation_levels, quantize_activations
from outrider.targets.hf import int8
from outrider.targets.hf.loader import load_target
from outrider.types import DraftTree, pack
from test_hf_loader import word_tokenizer

needs_kernels = pytest.mark.skipif(not available()[0], reason=available()[1])
PROMPTS = [[5, 9, 5, 9, 5, 9, 5], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [8]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A checkpoint of a tiny model, and a cache of its own for what is made of it."""
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "model"
    tiny("qwen2", torch.bfloat16).save_pretrained(place)
    word_tokenizer().save_pretrained(place)
    return str(place)


def logits(target: object) -> Tensor:
    target.prefill([0], [[5, 9, 5]])  # pyright: ignore
    scored = target.score(pack([DraftTree.chain(9, [5, 9])], [0], [3], torch.device("cpu")))  # pyright: ignore
    target.free([0])  # pyright: ignore
    return scored.logits


@needs_kernels
@pytest.mark.parametrize("size", [1, 5, 31, 133, 134, 1536, 8960])
def test_the_product_is_its_definition_to_the_last_bit(size: int) -> None:
    torch.manual_seed(size)
    weight, scale = quantize_rows(torch.randn(23, size))
    bias = torch.randn(23)
    layer = native_linear(weight, bias, scale)
    assert layer is not None
    x = torch.cat([torch.randn(6, size) * torch.logspace(-20, 20, 6)[:, None], torch.zeros(1, size)])
    whole, x_scale = quantize_activations(x)
    sums = (whole.long() @ weight.long().T).float()
    assert torch.equal(layer(x), sums * (x_scale[:, None] * scale) + bias)


@needs_kernels
def test_the_largest_sums_of_products_do_not_overflow() -> None:
    for size in (1, 133, 134, 8960):
        weight = torch.full((4, size), -127, dtype=torch.int8)
        layer = native_linear(weight, None, torch.ones(4))
        assert layer is not None
        x = torch.full((3, size), float(activation_levels(size)))
        exact = -127 * size * activation_levels(size)
        assert exact >= -(2**31)
        assert layer(x).tolist() == [[torch.tensor(float(exact)).item()] * 4] * 3


@needs_kernels
def test_a_broken_row_stays_alone() -> None:
    weight, scale = quantize_rows(torch.randn(9, 40))
    layer = native_linear(weight, None, scale)
    assert layer is not None
    x = torch.randn(5, 40)
    clean = layer(x)
    x[1, 3], x[3, 39] = float("nan"), float("inf")
    broken = layer(x)
    assert bool(broken[[1, 3]].isnan().all())
    assert torch.equal(broken[[0, 2, 4]], clean[[0, 2, 4]])


@needs_kernels
@pytest.mark.parametrize("drafter", [LookupDrafter, RecycleDrafter])
def test_speculative_and_plain_runs_are_equal_bit_for_bit(folder: str, drafter: type) -> None:
    target = load_target(folder, quantize="int8", max_rows=3)
    assert (target.info.exact, target.info.quantize) == ("bitwise", "int8")
    settings = {"max_new_tokens": 24, "temperature": 0.8, "seed": 3, "logprobs": 2}
    plain = Engine(target).generate_batch(PROMPTS, **settings)
    found = Engine(target, drafter(), policy="fixed").generate_batch(PROMPTS, **settings)
    assert [c.token_ids for c in found] == [c.token_ids for c in plain]
    assert [c.logprobs for c in found] == [c.logprobs for c in plain]
    assert sum(c.stats.proposed for c in found) > 0


@needs_kernels
def test_the_second_load_reads_what_the_first_one_kept(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = logits(load_target(folder, quantize="int8"))
    assert not torch.equal(first, logits(load_target(folder)))  # it is another model, strictly speaking
    monkeypatch.setattr("outrider.targets.hf.loader.quantize_model", None)  # not called again
    again, stock = load_target(folder, quantize="int8"), load_target(folder)
    assert torch.equal(logits(again), first)
    assert again.tokenizer is not None
    assert stock.tokenizer is not None
    assert again.tokenizer.encode("w3 w5") == stock.tokenizer.encode("w3 w5")


@needs_kernels
def test_another_checkpoint_is_quantised_anew(folder: str) -> None:
    before = int8.int8_folder(folder)
    first = logits(load_target(folder, quantize="int8"))
    tiny("qwen2", torch.bfloat16, seed=1).save_pretrained(folder)
    os.utime(Path(folder) / "model.safetensors", (1, 1))
    assert int8.int8_folder(folder) != before
    assert not torch.equal(logits(load_target(folder, quantize="int8")), first)


@needs_kernels
def test_a_changed_chat_template_is_another_checkpoint(folder: str) -> None:
    before = int8.int8_folder(folder)
    (Path(folder) / "chat_template.jinja").write_text("{{ messages }}")
    assert int8.int8_folder(folder) != before


@needs_kernels
def test_broken_kept_weights_are_made_again(folder: str) -> None:
    first = logits(load_target(folder, quantize="int8"))
    (int8.int8_folder(folder) / int8.WEIGHTS).write_bytes(b"no weights")
    assert torch.equal(logits(load_target(folder, quantize="int8")), first)
    assert (int8.int8_folder(folder) / int8.WEIGHTS).stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantize": "int4"}, "quantize is 'int4'; it must be 'int8' or None"),
        ({"quantize": "int8", "dtype": "float32"}, "exclude each other"),
    ],
)
def test_what_cannot_be_is_refused(folder: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        load_target(folder, **options)  # pyright: ignore


def test_without_kernels_the_reason_is_told(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_load", lambda: (None, "no C compiler on PATH"))
    with pytest.raises(UnsupportedError, match=r"needs the native kernels.*no C compiler"):
        load_target(folder, quantize="int8")


@needs_kernels
def test_quality_compares_readings_of_the_same_texts(folder: str) -> None:
    texts = [list(range(1, 40)) * 4, [7, 7, 8]]
    stock, small = (read_texts(load_target(folder, quantize=how), texts) for how in (None, "int8"))
    same, other = compare(stock, stock), compare(stock, small)
    assert (same.num_tokens, same.agreement, same.mean_change) == (157, 1.0, 0.0)
    assert same.perplexity_before == same.perplexity_after > 1
    assert 0 < other.mean_change < 0.5
    assert 0.8 < other.agreement <= 1
    whole = load_target(folder)
    whole.prefill([0], [texts[1][:1]])
    last = whole.score(pack([DraftTree.chain(7, [])], [0], [1], torch.device("cpu"))).logits[0].double()
    assert torch.equal(stock[1].logprobs[1], last.log_softmax(-1)[8])
