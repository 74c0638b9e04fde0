"""The engine on toy targets: progress, cuts, isolation of faults, cancellation, figures that add up."""

import itertools

import pytest
import torch

from outrider import Engine, Request, SamplingParams
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.model import ModelDrafter
from outrider.errors import (
    CapacityError,
    DrafterError,
    OptionError,
    PairingError,
    ProcessorError,
    PromptError,
    TargetError,
    UnsupportedError,
)
from outrider.testing import FunctionDrafter, FunctionTarget

V = 11


def hashed(tokens: list[int], peak: float = 2.0) -> torch.Tensor:
    """Logits that depend on the last three tokens alone, the same in every process."""
    seed = sum(token * 31**place for place, token in enumerate(tokens[-3:])) + len(tokens[-3:])
    return torch.randn(V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * peak


def similar(tokens: list[int]) -> torch.Tensor:
    return hashed(tokens) + 0.7 * hashed([*tokens, 3])


def target(**options) -> FunctionTarget:
    return FunctionTarget(hashed, V, **options)


def plain(prompt: list[int], **sampling):
    return Engine(target()).generate(prompt, **sampling)


def oracle(prompt: list[int], **sampling) -> FunctionDrafter:
    """Drafts exactly what plain decoding writes, without ever looking at end tokens."""
    truth = prompt + list(plain(prompt, **{**sampling, "max_new_tokens": 60}).token_ids)
    return FunctionDrafter(lambda tokens, depth: truth[len(tokens) : len(tokens) + depth])


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_every_drafter_writes_what_plain_decoding_writes(temperature: float, size: int, depth: int) -> None:
    prompt, options = [10, 2, 7][:size], {"temperature": temperature, "seed": 5, "max_new_tokens": 64}
    expected = plain(prompt, **options)
    for drafter in (LookupDrafter(), ModelDrafter(FunctionTarget(similar, V)), oracle(prompt, **options)):
        found = Engine(target(), drafter).generate(prompt, max_depth=depth, **options)
        assert found.token_ids == expected.token_ids
        assert found.stats.max_proposed <= depth
        assert found.stats.delivered == len(found.token_ids) == 64


def test_an_oracle_needs_one_pass_for_depth_plus_one_tokens() -> None:
    engine = Engine(target(), oracle([1, 2]))
    found = engine.generate([1, 2], max_new_tokens=40, max_depth=3)
    assert (found.stats.rounds, found.stats.acceptance, found.stats.tokens_per_round) == (10, 1.0, 4.0)
    assert engine.target.num_passes == 10
    assert found.stats.accepted_per_position == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_a_model_that_drafts_for_itself_is_always_right(depth: int) -> None:
    for temperature in (0.0, 1.0):
        found = Engine(target(), ModelDrafter(target())).generate(
            [4], max_new_tokens=50, max_depth=depth, temperature=temperature, seed=1
        )
        assert found.stats.acceptance == 1.0


def test_rows_of_a_batch_equal_their_solo_runs_and_leave_nothing_behind() -> None:
    engine = Engine(target(max_rows=3), ModelDrafter(FunctionTarget(similar, V, max_rows=3)))
    prompts = [[1], [2, 3], [4, 5, 6], [7] * 9, [8, 9], [1, 2, 3, 4]]
    for prompt, found in zip(prompts, engine.generate_batch(prompts, max_new_tokens=30), strict=True):
        assert found.token_ids == plain(prompt, max_new_tokens=30).token_ids
    assert [engine.target.length(row) for row in range(3)] == [0, 0, 0]
    assert engine.num_running == engine.num_waiting == 0


def test_two_interleaved_streams_equal_their_solo_runs() -> None:
    engine = Engine(target(), LookupDrafter())
    streams = [engine.stream(prompt, max_new_tokens=20) for prompt in ([1, 2], [3])]
    found: list[list[int]] = [[], []]
    for one, two in itertools.zip_longest(*streams):
        for place, event in enumerate((one, two)):
            found[place] += event.token_ids if event else ()
    assert found == [list(plain(p, max_new_tokens=20).token_ids) for p in ([1, 2], [3])]


@pytest.mark.parametrize("stop_at", range(13))
@pytest.mark.parametrize("ignore", [False, True])
def test_the_block_is_cut_at_the_first_end_token(stop_at: int, ignore: bool) -> None:
    text = plain([3], max_new_tokens=20).token_ids
    end = text[stop_at]
    options = {"max_new_tokens": 20, "ignore_eos": ignore, "logprobs": 1}
    expected = Engine(FunctionTarget(hashed, V, (end,))).generate([3], **options)
    engine = Engine(FunctionTarget(hashed, V, (end,)), oracle([3]))
    events = list(engine.stream([3], max_depth=5, **options))
    written = [token for event in events for token in event.token_ids]
    assert written == list(expected.token_ids)
    assert written == list(text if ignore else text[: text.index(end) + 1])
    assert events[-1].finish_reason == expected.finish_reason == ("length" if ignore else "stop")
    assert [event.logprobs.token_id for event in events] == written


@pytest.mark.parametrize("depth", range(7))
def test_the_budget_is_kept_to_the_token(depth: int) -> None:
    for budget in range(1, 9):
        found = Engine(target(), oracle([5])).generate([5], max_new_tokens=budget, max_depth=depth)
        assert found.token_ids == plain([5], max_new_tokens=budget).token_ids
        assert (len(found.token_ids), found.finish_reason) == (budget, "length")
        assert found.stats.acceptance in (None, 1.0)


def test_context_limit() -> None:
    engine = Engine(target(max_length=12), oracle([1] * 11))
    one = engine.generate([1] * 11)
    assert (len(one.token_ids), one.finish_reason) == (1, "length")
    for size in (12, 13):
        with pytest.raises(PromptError, match=rf"{size} tokens and the limit is 12"):
            engine.generate([1] * size)
    assert len(Engine(target(max_length=12), oracle([1] * 4)).generate([1] * 4, max_depth=1000).token_ids) == 8


@pytest.mark.parametrize("prompt", [[], "", [V], [-1], [1.5], [True], 7, None, [[1]]])
def test_bad_prompts_are_refused_by_value(prompt) -> None:
    with pytest.raises(PromptError):
        Engine(target()).generate(prompt)


@pytest.mark.parametrize("depth", [-1, 1.5, "4", True])
def test_bad_depths_are_refused_by_name(depth) -> None:
    with pytest.raises(OptionError, match="max_depth"):
        Engine(target()).generate([1], max_depth=depth)
    with pytest.raises(OptionError, match="did you mean 'max_depth'"):
        Engine(target()).generate([1], max_dept=4)


def fail_at(length: int):
    def processor(tokens: list[int], logits: torch.Tensor) -> torch.Tensor:
        if len(tokens) == length:
            raise KeyError("no such thing")
        return logits

    return processor


def test_a_raising_processor_fails_its_own_request_alone() -> None:
    engine = Engine(target(), LookupDrafter())
    prompts = [
        Request([1, 2], SamplingParams(max_new_tokens=20, logits_processors=[fail_at(7)])),
        Request([3, 4], SamplingParams(max_new_tokens=20)),
    ]
    bad, good = engine.generate_batch(prompts)
    assert (bad.finish_reason, len(bad.token_ids)) == ("error", 5)
    assert isinstance(bad.error, ProcessorError)
    assert bad.token_ids == plain([1, 2], max_new_tokens=5).token_ids
    assert good.token_ids == plain([3, 4], max_new_tokens=20).token_ids
    with pytest.raises(ProcessorError):
        engine.generate([1, 2], max_new_tokens=20, logits_processors=[fail_at(7)])
    assert engine.generate([1, 2], max_new_tokens=20).token_ids == plain([1, 2], max_new_tokens=20).token_ids


def test_a_raising_drafter_fails_its_own_request_alone() -> None:
    def propose(tokens: list[int], depth: int) -> list[int]:
        if tokens[0] == 3 and len(tokens) > 5:
            raise ValueError("lost")
        return [1] * depth

    engine = Engine(target(), FunctionDrafter(propose))
    found = engine.generate_batch([[1, 2], [3, 4], [5]], max_new_tokens=20)
    assert [c.finish_reason for c in found] == ["length", "error", "length"]
    assert isinstance(found[1].error, DrafterError)
    for completion, prompt in ((found[0], [1, 2]), (found[2], [5])):
        assert completion.token_ids == plain(prompt, max_new_tokens=20).token_ids


def test_nan_logits_fail_their_own_request_alone() -> None:
    def logits(tokens: list[int]) -> torch.Tensor:
        return hashed(tokens) * (float("nan") if tokens[0] == 3 and len(tokens) > 6 else 1)

    bad, good = Engine(FunctionTarget(logits, V)).generate_batch([[3, 4], [5]], max_new_tokens=10)
    assert isinstance(bad.error, TargetError)
    assert len(bad.token_ids) == 5
    assert good.token_ids == plain([5], max_new_tokens=10).token_ids


def test_a_cancelled_request_frees_its_row_at_once() -> None:
    engine = Engine(target(max_rows=1), LookupDrafter())
    first, second = engine.submit([1], max_new_tokens=50), engine.submit([2], max_new_tokens=5)
    engine.step()
    engine.step()
    first.cancel()
    first.cancel()
    assert engine.num_running == 0
    assert first.completion.finish_reason == "cancelled"
    assert first.completion.token_ids == plain([1], max_new_tokens=50).token_ids[: len(first.completion.token_ids)]
    while not second.done:
        engine.step()
    assert second.completion.token_ids == plain([2], max_new_tokens=5).token_ids


def test_closing_a_stream_cancels_it() -> None:
    engine = Engine(target(), LookupDrafter())
    stream = engine.stream([1], max_new_tokens=50)
    next(stream)
    stream.close()
    assert engine.num_running == 0


def test_a_cache_that_did_not_roll_back_is_computed_again() -> None:
    class Forgetful(FunctionTarget):
        def commit(self, outcomes) -> None:
            super().commit(outcomes)
            for row in outcomes:
                if self.length(row) > 12:
                    self._rows[row] = self._rows[row][:-2]

    found = Engine(Forgetful(hashed, V), LookupDrafter()).generate([1, 2], max_new_tokens=30)
    assert found.token_ids == plain([1, 2], max_new_tokens=30).token_ids
    assert found.stats.recomputed > 0


def test_an_interrupt_in_a_pass_leaves_the_engine_as_it_was() -> None:
    calls = itertools.count()

    def logits(tokens: list[int]) -> torch.Tensor:
        if next(calls) == 25:
            raise KeyboardInterrupt
        return hashed(tokens)

    engine = Engine(FunctionTarget(logits, V), LookupDrafter())
    other = engine.submit([4], max_new_tokens=30)
    with pytest.raises(KeyboardInterrupt):
        engine.generate([1, 2], max_new_tokens=30)
    assert engine.num_running == 1
    while not other.done:
        engine.step()
    assert other.completion.token_ids == plain([4], max_new_tokens=30).token_ids


def test_a_draft_model_with_a_shorter_limit_stops_drafting_and_says_so_once() -> None:
    short = ModelDrafter(FunctionTarget(hashed, V, max_length=20))
    found = Engine(target(), short).generate([1] * 15, max_new_tokens=40, max_depth=4)
    assert found.token_ids == plain([1] * 15, max_new_tokens=40).token_ids
    assert found.stats.warnings == ("no drafts past the draft model's limit of 20 tokens",)
    assert found.stats.rounds_without_proposal > 10


def test_pairs_of_other_vocabularies_are_refused() -> None:
    with pytest.raises(PairingError, match="12 tokens and the target toy 11"):
        Engine(target(), ModelDrafter(FunctionTarget(lambda tokens: [0.0] * 12, 12)))


def test_what_cannot_be_exact_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="stop strings"):
        Engine(target()).generate([1], stop="x")
    with pytest.raises(UnsupportedError, match="block"):
        Engine(target(), rule="block").generate([1], logits_processors=[fail_at(99)])
    with pytest.raises(OptionError, match="did you mean 'lookup'"):
        Engine(target(), LookupDrafter()).submit(Request([1], drafter="lokup"))


def test_per_request_rule_and_drafter() -> None:
    engine = Engine(target(), {"lookup": LookupDrafter(), "model": ModelDrafter(target())})
    requests = [
        Request([1, 2, 1, 2], SamplingParams(max_new_tokens=30), drafter=d) for d in ("none", "lookup", "model")
    ]
    found = engine.generate_batch(
        [*requests, Request([1, 2, 1, 2], SamplingParams(max_new_tokens=30), rule="rejection")]
    )
    assert [c.stats.method for c in found] == ["plain", "lookup", "model", "lookup"]
    assert [c.stats.rule for c in found] == ["identical"] * 3 + ["rejection"]
    assert len({c.token_ids for c in found}) == 1


def test_a_prompt_that_begins_like_an_earlier_text_computes_only_what_is_new() -> None:
    engine = Engine(target(max_rows=2), LookupDrafter(), reuse_prefixes=True)
    first = engine.generate([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], max_new_tokens=20)
    turn = [*first.prompt_token_ids, *first.token_ids, 3, 4]
    second = engine.generate(turn, max_new_tokens=20)
    assert second.stats.reused == len(turn) - 3
    assert second.token_ids == plain(turn, max_new_tokens=20).token_ids
    system = turn[:15]
    others = engine.generate_batch([[*system, 1], [*system, 2], [*system, 3], [1, 1, 1]], max_new_tokens=15)
    for tail, found in zip([[1], [2], [3]], others, strict=False):
        assert found.token_ids == plain([*system, *tail], max_new_tokens=15).token_ids
    assert others[0].stats.reused >= 15
    assert others[3].stats.reused == 0


def test_a_failed_row_is_never_reused() -> None:
    engine = Engine(target(max_rows=1), reuse_prefixes=True)
    prompt = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    with pytest.raises(ProcessorError):
        engine.generate(prompt, logits_processors=[fail_at(14)])
    found = engine.generate([*prompt, *plain(prompt).token_ids[:3], 1], max_new_tokens=9)
    assert found.stats.reused == 0


def test_a_full_queue_and_a_late_request() -> None:
    engine = Engine(target(max_rows=1), max_waiting=1)
    late = engine.submit(Request([1], SamplingParams(max_new_tokens=50), timeout=1e-9))
    with pytest.raises(CapacityError, match="1 requests are waiting"):
        engine.submit([2])
    engine.step()
    assert late.completion.finish_reason == "cancelled"
    assert "timeout" in late.completion.stats.warnings[0]


def test_an_observer_sees_every_round() -> None:
    traces = []
    engine = Engine(target(), oracle([1, 2]), on_round=traces.append)
    found = engine.generate([1, 2], max_new_tokens=20, max_depth=3)
    assert [token for trace in traces for row in trace.rows for token in row.delivered] == list(found.token_ids)
    assert len(traces) == found.stats.rounds
    row = traces[0].rows[0]
    assert row.tokens[1:] == row.target_best[:-1]
    assert all(0 < chance <= 1 for chance in row.target_chance)
