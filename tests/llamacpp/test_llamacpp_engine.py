"""The engine over llama.cpp: every drafter writes what plain decoding writes, or a certificate explains the difference.

The cases of llama.cpp's own trackers (GRE-2, GRE-6, GRE-7, VOC-2, CON-1, KVR-7) are run on it here.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from transformers import AutoTokenizer

import outrider
from helpers import run
from outrider import Completion, Engine
from outrider.certify.grid import Grid
from outrider.certify.judge import Judge
from outrider.certify.probe import Probe
from outrider.certify.runner import certify
from outrider.drafters.base import Drafter
from outrider.drafters.model import ModelDrafter
from outrider.errors import PairingError
from outrider.prompts import TestPrompt
from outrider.sampling.params import SamplingParams
from outrider.targets.base import Target
from outrider.targets.hf.gguf import demo_folder
from outrider.targets.llamacpp.target import LlamaTarget
from outrider.testing import FunctionDrafter
from outrider.types import DraftTree

pytestmark = pytest.mark.real

CODE = 'def cat():\n    """Return it."""\n    return "meow"\n\n\ndef dog():\n    """Return'
PROSE = "Once upon a time there was a miller who had three sons, and"
Loads = Callable[..., LlamaTarget]


def assert_explained(engine: Engine, prompts: Mapping[str, str], count: int = 14, **options: Any) -> None:
    """Plain and speculative runs write the same, up to near ties as measured here; something must have been drafted."""
    certificate = certify(
        engine,
        [TestPrompt(name, "test", text) for name, text in prompts.items()],
        Grid((options.pop("temperature", 0.0),), 1, (options.pop("depth", 4),), count, len(prompts)),
        drafter="the drafter",
        options=options,
        floor_prompts=0,
    )
    assert certificate.passed, (certificate.faults, [result.difference for result in certificate.results])
    assert sum(result.proposed for result in certificate.results) > 0


def assert_judged(target: Target, one: Completion, other: Completion) -> None:
    """Two runs of one request wrote the same, up to a near tie as measured on this target."""
    greedy = SamplingParams(temperature=0.0).resolve({}, (), target.info.vocab_size)
    difference = Judge(Probe(target), bitwise=target.info.exact == "bitwise").compare(one, other, greedy)
    assert difference is None or difference.verdict == "near tie", difference


@pytest.mark.parametrize("drafter", ["lookup", "suffix", "recycle"])
def test_drafters_write_the_plain_text(llamacpp: Loads, drafter: str) -> None:
    engine = outrider.load(llamacpp("smollm2-135m"), drafter, policy="fixed")
    assert_explained(engine, {"code": CODE, "rhyme": "one two three one two three one two"}, 16)


def test_sampled_text_does_not_depend_on_the_draft(llamacpp: Loads) -> None:
    engine = outrider.load(llamacpp("smollm2-135m"), "suffix", policy="fixed")
    assert_explained(engine, {"code": CODE}, temperature=0.8, top_k=20)


def test_a_text_written_by_hostile_trees_is_the_plain_one(llamacpp: Loads) -> None:
    """Wide trees, right on one branch and wrong on all others, in two rows at once."""
    target = llamacpp("smollm2-135m")
    prompts = [CODE, PROSE]
    plain = run(Engine(target), prompts, max_new_tokens=12)
    texts = [[*one.prompt_token_ids, *one.token_ids] for one in plain]

    class Bush(Drafter):
        name = "bush"
        preferred_depth, preferred_nodes = 3, 9

        def propose_row(self, context: Any) -> DraftTree:
            text = next(text for text in texts if text[: len(context.tokens)] == list(context.tokens))
            right = text[len(context.tokens) :][: context.plan.max_depth]
            tokens, parents, tip = [context.root], [-1], 0
            for token in right:
                tokens += [token + 1, token, token + 2]
                parents += [tip] * 3
                tip = len(tokens) - 2
            return DraftTree(tuple(tokens), tuple(parents))

    engine = outrider.load(target, Bush(), policy="fixed")
    drafted = run(engine, prompts, max_new_tokens=12)
    assert [one.token_ids for one in drafted] == [one.token_ids for one in plain]
    assert all(one.stats.tokens_per_round > 3 for one in drafted)


def test_gre_7_the_same_file_as_target_and_draft(llamacpp: Loads) -> None:
    target = llamacpp("smollm2-135m")
    drafter = ModelDrafter("smollm2-135m", backend="llama.cpp")
    plain = run(Engine(target), ["You are"], max_new_tokens=4)[0]
    spec = run(outrider.load(target, drafter, policy="fixed"), ["You are"], max_new_tokens=4, max_depth=4)[0]
    assert spec.token_ids == plain.token_ids
    assert len(spec.token_ids) == 4
    assert spec.stats.accepted == spec.stats.proposed == 3


@pytest.mark.slow
def test_a_gguf_draft_under_a_torch_target_and_the_reverse(llamacpp: Loads) -> None:
    """The same weights by both backends agree on nearly everything, so nearly everything drafted is kept."""
    gguf, torch_target = (
        llamacpp("smollm2-135m"),
        outrider.load("smollm2-135m", backend="torch", max_rows=1, exact="near-tie").target,
    )
    for target, draft in ((torch_target, llamacpp("smollm2-135m", max_rows=1)), (gguf, torch_target)):
        engine = outrider.load(target, ModelDrafter(draft), policy="fixed")
        completion = run(engine, [CODE], max_new_tokens=8, max_depth=3, seed=0)[0]
        assert_judged(target, completion, run(Engine(target), [CODE], max_new_tokens=8, seed=0)[0])
        assert completion.stats.accepted >= 0.7 * completion.stats.proposed > 0


def test_voc_2_a_draft_of_another_vocabulary_is_refused(llamacpp: Loads) -> None:
    from helpers_models import llama, target

    with pytest.raises(PairingError, match="49152"):
        outrider.load(target(llama()), ModelDrafter(llamacpp("smollm2-135m")))


def test_gre_6_special_tokens_in_the_prompt_are_read_as_such(llamacpp: Loads) -> None:
    target = llamacpp("smollm2-135m")
    prompt = "<|im_start|>user\nhi<|im_end|>"
    plain = run(Engine(target), [prompt], max_new_tokens=2)[0]
    spec = run(outrider.load(target, "lookup"), [prompt], max_new_tokens=2)[0]
    assert plain.prompt_token_ids == spec.prompt_token_ids
    assert plain.prompt_token_ids[0] == target.tokenizer.vocabulary()["<|im_start|>"]


def test_the_files_tokenizer_reads_and_writes_as_torchs_does(llamacpp: Loads) -> None:
    """Ids, text, chat template and vocabulary agree, so both backends see the same prompt."""
    ours, theirs = llamacpp("smollm2-135m").tokenizer, AutoTokenizer.from_pretrained(demo_folder("smollm2-135m"))
    for text in (
        "Hello world",
        "  two\n\n\ttabs ",
        "naïve café 😀 日本語",
        "<|im_start|>user\nhi<|im_end|>",
        "x**2 # 3.14",
        "",
    ):
        ids = ours.encode(text)
        assert ids == theirs.encode(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids, skip_special_tokens=False) == text
    assert ours.vocabulary() == theirs.get_vocab()
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert ours.encode_chat(talk) == theirs.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)


def test_con_1_a_batch_writes_what_each_writes_alone(llamacpp: Loads) -> None:
    engine = outrider.load(llamacpp("smollm2-135m"), "lookup", policy="fixed")
    prompts = [CODE, PROSE, "The"]
    together = run(engine, prompts, max_new_tokens=10, seed=0)
    for prompt, one in zip(prompts, together, strict=True):
        assert_judged(engine.target, one, run(engine, [prompt], max_new_tokens=10, seed=0)[0])


def test_kvr_7_a_second_turn_on_a_warm_row_equals_a_cold_one(llamacpp: Loads) -> None:
    target = llamacpp("smollm2-135m")
    warm = Engine(target, reuse_prefixes=True)
    first = warm.generate(CODE, max_new_tokens=6)
    turn = [*first.prompt_token_ids, *first.token_ids, *target.tokenizer.encode("\n\n\ndef cow")]
    again = [warm.generate(prompt, max_new_tokens=8, seed=0) for prompt in (turn, CODE[:50])]
    target.free(range(4))
    assert again[0].stats.reused > len(first.prompt_token_ids)
    for prompt, one in zip((turn, CODE[:50]), again, strict=True):
        assert_judged(target, one, run(Engine(target), [prompt], max_new_tokens=8, seed=0)[0])


@pytest.mark.slow
@pytest.mark.parametrize("depth", [2, 4])
def test_gre_2_gemma_past_its_window(llamacpp: Loads, depth: int) -> None:
    """Gemma-3-270m sees 512 positions in most layers; the run crosses position 512, every draft half wrong."""
    target = llamacpp("gemma3-270m", max_rows=1)
    prompt = ("The tide came in and the boats went out. " * 50)[:1980]
    plain = run(Engine(target), [prompt], max_new_tokens=64)[0]
    start = len(plain.prompt_token_ids)
    assert start < 512 < start + len(plain.token_ids)

    def half_wrong(tokens: list[int], max_depth: int) -> list[int]:
        right = plain.token_ids[len(tokens) - start :][:max_depth]
        return [token if place < max_depth // 2 else token + 1 for place, token in enumerate(right)]

    engine = outrider.load(target, FunctionDrafter(half_wrong), policy="fixed")
    assert_explained(engine, {"tide": prompt}, 64, depth=depth)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["lookup", "recycle", "model"])
def test_the_qwen_pair(llamacpp: Loads, drafter: str) -> None:
    target = llamacpp("qwen-1.5b", max_rows=2)
    chosen = ModelDrafter("qwen-0.5b", backend="llama.cpp") if drafter == "model" else drafter
    engine = outrider.load(target, chosen, policy="fixed")
    assert_explained(engine, {"code": CODE, "prose": PROSE}, 48)
