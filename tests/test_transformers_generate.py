"""`model.generate(..., custom_generate=outrider.transformers_generate)` against `model.generate(...)` itself."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GemmaConfig, GPT2Config, LlamaConfig, PreTrainedModel, Qwen2Config
from transformers.generation import (
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.generation.streamers import BaseStreamer
from transformers.models.auto import AutoModelForCausalLM

import outrider
from outrider.errors import OptionError, UnsupportedError
from outrider.sampling.params import SamplingParams
from outrider.sampling.process import law
from outrider.targets.hf.generate_settings import RowProcessor, Settings, read_settings
from outrider.testing import FunctionDrafter

VOCAB = 48
SIZES = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
EOS, PAD = 7, 0
PROMPT = [5, 9, 11, 5, 9, 11, 5, 9]


@cache
def model_of(kind: str = "llama", dtype: torch.dtype = torch.float64, seed: int = 0) -> PreTrainedModel:
    """A tiny model with random weights, large enough to make its choices far apart."""
    common = {**SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 160}
    configs = {
        "llama": lambda: LlamaConfig(**common),
        "qwen2": lambda: Qwen2Config(**common),
        "gemma": lambda: GemmaConfig(**common, head_dim=8),
        "gpt2": lambda: GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=160),
    }
    torch.manual_seed(seed)
    config = configs[kind]()
    config.initializer_range = 0.5
    config.eos_token_id, config.pad_token_id, config.bos_token_id = EOS, PAD, 1
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = EOS, PAD
    return model


def inputs_of(*rows: list[int]) -> dict[str, Tensor]:
    """Rows padded on the left, with their mask."""
    width = max(map(len, rows))
    ids = torch.tensor([[PAD] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


def ours(model: PreTrainedModel, inputs: dict[str, Tensor], **options: Any) -> Any:
    return model.generate(**inputs, custom_generate=outrider.transformers_generate, **options)


def both(model: PreTrainedModel, inputs: dict[str, Tensor], **options: Any) -> tuple[Any, Any]:
    options = {"max_new_tokens": 24, "do_sample": False, **options}
    return model.generate(**inputs, **options), ours(model, inputs, **options)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products are slower on several threads, and much slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def three_rows() -> dict[str, Tensor]:
    return inputs_of(PROMPT, [3], [20, 21, 20, 21, 20])


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma", "gpt2"])
def test_greedy_ids_are_those_of_transformers(kind: str) -> None:
    for inputs in (inputs_of(PROMPT), inputs_of([10]), three_rows()):
        theirs, own = both(model_of(kind), inputs, eos_token_id=None)
        assert torch.equal(theirs, own)
        assert theirs.shape[1] == inputs["input_ids"].shape[1] + 24


def test_float32_too() -> None:
    theirs, own = both(model_of("llama", torch.float32), three_rows())
    assert torch.equal(theirs, own)


SETTINGS: dict[str, dict[str, Any]] = {
    "max_length": {"max_new_tokens": None, "max_length": 20},
    "one token": {"max_new_tokens": 1},
    "many end tokens": {"eos_token_id": list(range(0, VOCAB, 3))},
    "no end token": {"eos_token_id": None, "pad_token_id": None},
    "end token out of the vocabulary": {"eos_token_id": [VOCAB + 5]},
    "min_new_tokens": {"eos_token_id": list(range(0, VOCAB, 2)), "min_new_tokens": 9},
    "min_length": {"eos_token_id": list(range(0, VOCAB, 2)), "min_length": 14},
    "repetition_penalty": {"repetition_penalty": 1.3},
    "bad words": {"bad_words_ids": [*([token] for token in range(20, 40)), [4, 12], [11, 10]]},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "suppress_tokens": {"suppress_tokens": list(range(20, 40))},
    "begin_suppress_tokens": {"begin_suppress_tokens": list(range(16, 40))},
    "forced_eos": {"forced_eos_token_id": EOS},
    "sequence_bias": {"sequence_bias": [[[9], 4.0], [[5, 9], -8.0]]},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 1.5},
    "exponential decay": {"exponential_decay_length_penalty": (3, 1.2)},
    "allowed tokens": {"prefix_allowed_tokens_fn": lambda batch, ids: [4 + batch, 9, 12, 15 + int(ids[-1]) % 3]},
    "no cache": {"use_cache": False},
    "static cache": {"cache_implementation": "static"},
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("batch", ["one", "three"])
def test_every_setting_has_its_effect(name: str, batch: str) -> None:
    inputs = inputs_of(PROMPT) if batch == "one" else three_rows()
    theirs, own = both(model_of(), inputs, **SETTINGS[name])
    assert torch.equal(theirs, own)


WITHOUT_CHANGE = {
    "no cache",
    "static cache",
    "one token",
    "max_length",
    "no end token",
    "end token out of the vocabulary",
}


@pytest.mark.parametrize("name", sorted(SETTINGS.keys() - WITHOUT_CHANGE))
def test_these_settings_do_change_the_text(name: str) -> None:
    """Else the test above would prove nothing."""
    options = {"max_new_tokens": 24, "do_sample": False, "eos_token_id": SETTINGS[name].get("eos_token_id", EOS)}
    if name == "many end tokens":
        options["eos_token_id"] = EOS
    plain = model_of().generate(**three_rows(), **options)
    changed = model_of().generate(**three_rows(), **{**options, **SETTINGS[name]})
    assert not torch.equal(plain, changed)


def always_wrong(tokens: list[int], max_depth: int) -> list[int]:
    return [(tokens[-1] + 1) % VOCAB] * max_depth


@pytest.mark.parametrize(
    "drafter",
    [
        None,
        "none",
        "lookup:max_ngram=2",
        lambda: FunctionDrafter(always_wrong),
        lambda: model_of(seed=0),
        lambda: model_of(seed=3),
    ],
)
def test_every_drafter_writes_the_same(drafter: Any) -> None:
    drafter = drafter() if callable(drafter) else drafter
    options = {"max_new_tokens": 16, "do_sample": False}
    theirs = model_of().generate(**three_rows(), **options)
    for depth in (0, 3):
        assert torch.equal(theirs, ours(model_of(), three_rows(), drafter=drafter, max_depth=depth, **options))


def test_drafts_are_kept_and_passes_saved() -> None:
    """A drafter that is the target itself: far fewer passes than tokens."""
    model, draft = model_of(), model_of(seed=0)
    passes: list[int] = []
    counting = FunctionDrafter(lambda tokens, depth: passes.append(1) or greedy_of(draft)(tokens, depth))
    out = ours(model, inputs_of(PROMPT), drafter=counting, max_depth=5, max_new_tokens=24, eos_token_id=None)
    assert out.shape[1] == len(PROMPT) + 24
    assert len(passes) <= 4


def greedy_of(model: PreTrainedModel) -> Callable[[list[int], int], list[int]]:
    def propose(tokens: list[int], depth: int) -> list[int]:
        options = {"max_new_tokens": depth, "do_sample": False, "eos_token_id": None}
        return model.generate(torch.tensor([tokens]), attention_mask=torch.ones(1, len(tokens)), **options)[0][
            len(tokens) :
        ].tolist()

    return propose


# ---- processors and criteria of the user


class Forbid(LogitsProcessor):
    """Forbids the last token, and writes down which texts it saw."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.seen.append(input_ids[0].tolist())
        scores[:, input_ids[0, -1]] = -torch.inf
        return scores


class StopAtSum(StoppingCriteria):
    """Stops once the written tokens add up to a limit: it can hold in the middle of a round."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        return input_ids[:, len(PROMPT) :].sum(1) >= self.limit


def test_a_users_processor_sees_every_text_once_in_order() -> None:
    seen = []
    for custom in (None, outrider.transformers_generate):
        processor = Forbid()
        options = {"custom_generate": custom} if custom else {}
        model_of().generate(
            **inputs_of(PROMPT), logits_processor=LogitsProcessorList([processor]), max_new_tokens=12, **options
        )
        seen.append(processor.seen)
    assert seen[1][: len(seen[0])] == seen[0]


@pytest.mark.parametrize("limit", [1, 30, 77, 200, 1000])
def test_a_users_stopping_criterion_cuts_inside_a_round(limit: int) -> None:
    criteria = StoppingCriteriaList([StopAtSum(limit)])
    theirs, own = both(model_of(), inputs_of(PROMPT), stopping_criteria=criteria, eos_token_id=None)
    assert torch.equal(theirs, own)


class Recorder(BaseStreamer):
    def __init__(self) -> None:
        self.pieces: list[list[int]] = []
        self.ended = 0

    def put(self, value: Tensor) -> None:
        self.pieces.append(value.flatten().tolist())

    def end(self) -> None:
        self.ended += 1


def test_a_streamer_gets_the_same_pieces() -> None:
    theirs, own = Recorder(), Recorder()
    model_of().generate(**inputs_of(PROMPT), max_new_tokens=12, streamer=theirs)
    ours(model_of(), inputs_of(PROMPT), max_new_tokens=12, streamer=own)
    assert own.pieces == theirs.pieces
    assert own.ended == theirs.ended == 1


def test_the_output_object_has_scores_and_logits() -> None:
    options = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True, "repetition_penalty": 1.2}
    theirs, own = both(model_of(), inputs_of(PROMPT), **options)
    assert type(own) is type(theirs)
    assert torch.equal(theirs.sequences, own.sequences)
    for one, other in ((theirs.scores, own.scores), (theirs.logits, own.logits)):
        assert len(one) == len(other)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(one, other, strict=True))
    assert ours(model_of(), three_rows(), max_new_tokens=4, return_dict_in_generate=True).scores is None


# ---- sampling


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7},
        {"top_k": 5},
        {"top_p": 0.6},
        {"min_p": 0.2, "temperature": 1.4},
        {"top_k": 20, "top_p": 0.9, "min_p": 0.01, "temperature": 0.5},
        {"top_k": 1},
        {"typical_p": 0.5, "top_k": 9},
        {"epsilon_cutoff": 0.02},
    ],
)
def test_sampling_has_the_law_of_transformers(options: dict[str, Any]) -> None:
    """What is drawn from: transformers' scores of one step against the law made of what it handed over."""
    model, handed = model_of(), list[Settings]()

    def capture(model: Any, input_ids: Tensor, logits_processor: Any, stopping_criteria: Any, **rest: Any) -> Tensor:
        config = rest.pop("generation_config")
        handed.append(read_settings(input_ids, logits_processor, stopping_criteria, config, rest))
        return input_ids

    given = {"do_sample": True, "max_new_tokens": 1, "top_k": 0, **options}
    model.generate(**inputs_of(PROMPT), **given, custom_generate=capture)
    theirs = model.generate(
        **inputs_of(PROMPT), **given, return_dict_in_generate=True, output_scores=True, output_logits=True
    )
    settings = handed[0]
    params = SamplingParams(**settings.sampling).resolve({}, (), VOCAB)
    logits = theirs.logits[0][0]
    if settings.processors:
        logits = RowProcessor(settings, 0)(PROMPT, logits)
    assert torch.allclose(law(logits, params).exp(), theirs.scores[0][0].softmax(0), atol=1e-6)


def test_sampling_follows_torchs_seed() -> None:
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(ours(model_of(), three_rows(), do_sample=True, max_new_tokens=6, eos_token_id=None))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_return_sequences_are_drawn_apart() -> None:
    out = ours(
        model_of(), inputs_of(PROMPT), do_sample=True, num_return_sequences=4, max_new_tokens=8, eos_token_id=None
    )
    assert out.shape == (4, len(PROMPT) + 8)
    assert len({tuple(row) for row in out.tolist()}) > 1


# ---- refused by name


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_beams": 2}, "beam"),
        ({"assistant_model": "other"}, "assisted generation"),
        ({"prompt_lookup_num_tokens": 3}, "assisted generation"),
        ({"guidance_scale": 1.5}, "guidance_scale"),
        ({"return_dict_in_generate": True, "output_attentions": True}, "output_attentions"),
        ({"return_dict_in_generate": True, "output_hidden_states": True}, "output_hidden_states"),
        ({"max_new_tokens": 1000}, "beyond the 160 positions"),
        ({"position_ids": torch.arange(8)[None] + 3}, "position_ids"),
        ({"inputs_embeds": torch.zeros(1, 8, 32, dtype=torch.float64)}, "inputs_embeds"),
    ],
)
def test_what_has_no_effect_is_refused_by_name(options: dict[str, Any], match: str) -> None:
    if options.get("assistant_model"):
        options = {"assistant_model": model_of(seed=3)}
    with pytest.raises(UnsupportedError, match=match):
        ours(model_of(), inputs_of(PROMPT), **{"max_new_tokens": 4, **options})


def test_batches_refuse_what_sees_one_row_only() -> None:
    options: list[tuple[dict[str, Any], str]] = [
        ({"logits_processor": LogitsProcessorList([Forbid()])}, "Forbid sees one row"),
        ({"stopping_criteria": StoppingCriteriaList([StopAtSum(9)])}, "StopAtSum sees one row"),
        ({"streamer": Recorder()}, "one row"),
        ({"return_dict_in_generate": True, "output_scores": True}, "output_scores"),
        ({"max_time": 100.0, "eos_token_id": None}, "without eos_token_id"),
    ]
    for given, match in options:
        with pytest.raises(UnsupportedError, match=match):
            ours(model_of(), three_rows(), max_new_tokens=4, **given)


def test_right_padding_and_training_mode_are_refused() -> None:
    inputs = inputs_of(PROMPT, [3])
    flipped = {name: value.flip(1) for name, value in inputs.items()}
    with pytest.raises(UnsupportedError, match="pad on the left"):
        ours(model_of(), flipped, max_new_tokens=4)
    model = model_of(seed=5).train()
    with pytest.raises(UnsupportedError, match="training mode"):
        ours(model, inputs_of(PROMPT), max_new_tokens=4)


def test_unknown_drafters_and_rules_are_refused() -> None:
    for options in ({"drafter": "lokup"}, {"rule": "identicle"}):
        with pytest.raises(OptionError, match="did you mean"):
            ours(model_of(), inputs_of(PROMPT), max_new_tokens=4, **options)


# ---- the caller's model


def test_the_model_is_left_as_it_was() -> None:
    model = model_of(seed=11)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kinds, attention = [type(m) for m in model.modules()], model.config._attn_implementation
    config, defaults = model.config.to_dict(), model.generation_config.to_dict()
    first = model.generate(**three_rows(), max_new_tokens=8)
    ours(model, three_rows(), max_new_tokens=8, repetition_penalty=1.2)
    assert [type(m) for m in model.modules()] == kinds
    assert model.config._attn_implementation == attention
    assert (model.config.to_dict(), model.generation_config.to_dict()) == (config, defaults)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model.generate(**three_rows(), max_new_tokens=8), first)


def test_see4_repeated_calls_and_changed_weights() -> None:
    model = model_of("llama", torch.float32, seed=12)
    a, b = inputs_of(PROMPT), inputs_of([30, 31, 30, 31])
    first = ours(model, a, max_new_tokens=12)
    ours(model, b, max_new_tokens=12)
    assert torch.equal(first, ours(model, a, max_new_tokens=12))
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(-1.0)
    theirs, own = both(model, a)
    assert torch.equal(theirs, own)
    assert not torch.equal(own[:, : first.shape[1]], first)
