"""EOS: end tokens, stop ids and stop strings inside an accepted block."""

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from helpers import World, run, script, tokens_of, with_text
from helpers_drafters import Oracle
from helpers_reference import decode
from outrider import Engine
from outrider.targets.hf.tokenizer import HFTokenizer
from outrider.testing import FunctionDrafter, FunctionTarget

WORLD = World(vocab_size=40, seed=61, habit=0.5)
GREEDY = decode(WORLD.target_logits, [9], max_new_tokens=16)[0]
SPOKEN = "zero one two three four five six seven eight nine ten ha ionized at"
WORDS = [f" {word}".encode() for word in SPOKEN.split()]


@pytest.mark.parametrize("place", range(13))
@pytest.mark.parametrize("ignore", [False, True])
def test_eos_1_eos_2_the_first_end_token_ends_the_text(place: int, ignore: bool) -> None:
    """The token that greedy decoding writes at this place is declared to be the end; the draft is always right."""
    eos = (GREEDY[place],)
    engine = Engine(WORLD.target(eos), Oracle(WORLD, eos))
    options = {"max_new_tokens": 16, "ignore_eos": ignore, "max_depth": 5}
    events = list(engine.stream([9], **options))
    expected = decode(WORLD.target_logits, [9], eos, max_new_tokens=16, ignore_eos=ignore)
    assert tuple(token for event in events for token in event.token_ids) == expected[0]
    assert events[-1].finish_reason == expected[1] == ("length" if ignore else "stop")
    assert tokens_of(run(engine, [[9]], **options)) == [expected]
    assert expected[0] == (GREEDY if ignore else GREEDY[: GREEDY.index(eos[0]) + 1])


def test_eos_3_a_rejected_end_in_the_draft_ends_nothing() -> None:
    eos = 39
    drafter = FunctionDrafter(lambda tokens, depth: [eos, eos] if len(tokens) % 2 else [])
    options = {"max_new_tokens": 30, "banned_token_ids": [eos]}
    completion = run(Engine(WORLD.target((eos,)), drafter), [[9]], **options)[0]
    assert completion.token_ids == decode(WORLD.target_logits, [9], (eos,), **options)[0]
    assert completion.finish_reason == "length"
    assert completion.stats.accepted == 0 < completion.stats.proposed


@pytest.mark.parametrize("depth", [0, 1, 2, 5, 8])
def test_eos_4_the_earlier_of_stop_and_budget_decides(depth: int) -> None:
    """One block holds [10, 11, STOP, 20, 21, 22]: a stop inside the budget is a stop, one beyond it is a length."""
    stop = 7
    for line, budget, expected in [
        ((10, 11, stop, 20, 21, 22), 5, ((10, 11, stop), "stop")),
        ((10, 11, 12, 13, 14, stop), 5, ((10, 11, 12, 13, 14), "length")),
        ((10, 11, 12, 13, stop, 20), 5, ((10, 11, 12, 13, stop), "stop")),
    ]:
        logits = script({(1,): line}, 30)
        drafter = FunctionDrafter(lambda tokens, depth, line=line: line[len(tokens) - 1 :])
        engine = Engine(FunctionTarget(logits, 30), drafter)
        found = run(engine, [[1]], max_new_tokens=budget, stop_token_ids=[stop], max_depth=depth)
        assert tokens_of(found) == [expected]
        assert found[0].stop_match == (stop if expected[1] == "stop" else None)


@pytest.mark.parametrize("higher", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_eos_7_any_of_several_end_tokens_ends_the_text(second: bool, higher: bool) -> None:
    """Wherever it stands in the list, and whether its id is the lower or the higher."""
    unused = sorted(set(range(40)) - set(GREEDY))
    other = unused[-1] if higher else unused[0]
    assert (other > GREEDY[4]) == higher
    eos = (other, GREEDY[4]) if second else (GREEDY[4], other)
    for drafter in (None, Oracle(WORLD, eos)):
        found = tokens_of(run(Engine(WORLD.target(eos), drafter), [[9]], max_new_tokens=16))
        assert found == [decode(WORLD.target_logits, [9], eos, max_new_tokens=16)]
        assert found[0][1] == "stop"


def spoken(line: list[str], draft_right: bool = True) -> Engine:
    """An engine whose target says these words; drafts are right, or wrong at every second place."""
    ids = [WORDS.index(f" {word}".encode()) for word in line]
    target = with_text(FunctionTarget(script({(3,): ids}, len(WORDS)), len(WORDS)), WORDS)

    def propose(tokens: list[int], depth: int) -> list[int]:
        rest = ids[len(tokens) - 1 :]
        return rest if draft_right else [token if i % 2 == 0 else 2 for i, token in enumerate(rest)]

    return Engine(target, FunctionDrafter(propose))


@pytest.mark.parametrize("depth", range(7))
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_eos_5_a_stop_string_cuts_tokens_text_reports_and_figures(depth: int, include: bool, right: bool) -> None:
    """' ha ha ha' spans three tokens; it is found wherever block borders lie, and everything agrees about the cut."""
    engine = spoken(["one", "ha", "two", "ha", "ha", "ha", "three", "four"], right)
    options = {"stop": " ha ha ha", "include_stop": include, "logprobs": 2, "max_depth": depth, "max_new_tokens": 8}
    completion = run(engine, [[3]], **options)[0]
    assert completion.text == " one ha two" + " ha ha ha" * include
    assert completion.finish_reason == "stop"
    assert completion.stop_match == " ha ha ha"
    assert completion.logprobs is not None
    assert len(completion.token_ids) == len(completion.logprobs) == completion.stats.delivered == 6
    assert "".join(event.text for event in engine.stream([3], **options)) == completion.text


@pytest.mark.parametrize("depth", [0, 2, 6])
def test_eos_6_the_earliest_of_several_stop_strings_cuts(depth: int) -> None:
    engine = spoken(["one", "at", "two", "three", "ionized", "four", "five"])
    stops = ["atoms with a large number of 11 protons", "ionized", "five"]
    completion = run(engine, [[3]], stop=stops, max_depth=depth, max_new_tokens=7)[0]
    assert completion.text == " one at two three "
    assert completion.stop_match == "ionized"


def sentencepiece() -> HFTokenizer:
    """A SentencePiece-type tokenizer of the real library: '▁' for blanks; a token alone decodes without its own."""
    inner = Tokenizer(models.Unigram([("<unk>", 0.0), *((piece, -1.0) for piece in SENTENCE)], unk_id=0))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    return HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>"), "sentencepiece")


SENTENCE = ["▁Sodium", "▁is", "▁at", "oms", "▁a", "▁large", "▁num", "ber", "▁of", "▁ion", "ized", "▁gas", "▁end"]
IONIZED = "Sodium is a large number of ionized gas end"


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("stop", ["ionized", " ionized", "of ionized", "d ga"])
def test_eos_6_stop_strings_are_found_in_the_text_as_it_is_read(depth: int, stop: str) -> None:
    """Joined token by token, this tokenizer's text has no blanks; the stop is looked for in the text as a whole."""
    tokenizer = sentencepiece()
    ids = tokenizer.encode(IONIZED)
    assert "".join(tokenizer.decode([token]) for token in ids) != IONIZED == tokenizer.decode(ids)
    target = FunctionTarget(script({(ids[0],): ids[1:]}, len(SENTENCE) + 1), len(SENTENCE) + 1)
    target.tokenizer = tokenizer  # pyright: ignore[reportAttributeAccessIssue]
    engine = Engine(target, FunctionDrafter(lambda tokens, depth: ids[len(tokens) :]))
    stops = ["atoms with a large number of 11 protons", stop, "end"]
    completion = run(engine, [[ids[0]]], stop=stops, max_depth=depth, max_new_tokens=len(ids) - 1)[0]
    whole = tokenizer.decode(ids[1:])
    assert completion.text == whole[: whole.index(stop)]
    assert (completion.finish_reason, completion.stop_match) == ("stop", stop)


@pytest.mark.real
def test_eos_6_real_model(smollm2: Any) -> None:
    """Several stops of different length, of which the last one listed comes first."""
    prompt, options = "The days of the week are Monday, Tuesday, Wednesday,", {"max_new_tokens": 16}
    whole = run(smollm2(None), [prompt], **options)[0].text or ""
    stop = whole[len(whole) // 2 :][:5]
    stops = ["the seventh day of the week, which never comes", stop + "-", stop]
    plain, spec = (run(smollm2(name), [prompt], stop=stops, **options)[0] for name in (None, "lookup"))
    assert plain.text == spec.text == whole[: whole.index(stop)]
    assert plain.stop_match == spec.stop_match == stop
    assert plain.token_ids == spec.token_ids


@pytest.mark.real
def test_eos_5_real_model(smollm2: Any) -> None:
    prompt = "ha ha ha ha ha ha. He laughed: ha ha ha ha"
    options = {"stop": [" ha ha ha"], "logprobs": 2, "max_new_tokens": 24, "logit_bias": {}, "temperature": 0.0}
    plain, spec = run(smollm2(None), [prompt], **options)[0], run(smollm2("lookup"), [prompt], **options)[0]
    assert (plain.text, plain.token_ids, plain.logprobs) == (spec.text, spec.token_ids, spec.logprobs)
    assert plain.finish_reason == "stop"
    assert " ha ha ha" not in (spec.text or "")
