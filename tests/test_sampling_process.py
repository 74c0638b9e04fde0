"""From logits to laws on one row: every setting against a value worked out by hand, fast ways against plain ones."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from outrider.errors import OptionError, ProcessorError
from outrider.sampling.noise import Noise
from outrider.sampling.params import SamplingParams
from outrider.sampling.process import apply_processors, apply_settings, draft_law, draw_without_replacement, law
from outrider.sampling.truncate import best, truncate, truncate_by_sorting

INF = math.inf


def resolved(**options) -> SamplingParams:
    return SamplingParams(**{"seed": 1, "temperature": 1.0, **options}).resolve({}, (), 100_000)


def logs(*probs: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(probs, dtype=dtype).log()


def probs_after(probs: tuple[float, ...], **options) -> list[float]:
    return law(logs(*probs), resolved(**options)).exp().tolist()


def settled(logits: list[float], history: list[int], num_prompt: int, ends: tuple[int, ...] = (), **options):
    params = resolved(**options)
    return apply_settings(torch.tensor(logits, dtype=torch.float64), history, num_prompt, params, ends).tolist()


# ---- bias, penalties, bans, minimum length


def test_bias_is_added():
    assert settled([1.0, 2.0, 3.0], [0], 1, logit_bias={0: 5.0, 2: -1.0}) == [6.0, 2.0, 2.0]


def test_repetition_penalty_covers_prompt_and_output_once():
    got = settled([2.0, -2.0, 4.0, 1.0], [0, 1, 1, 1, 2], 2, repetition_penalty=2.0)
    assert got == [1.0, -4.0, 2.0, 1.0]


def test_repetition_penalty_equals_transformers():
    from transformers import RepetitionPenaltyLogitsProcessor

    logits, history = torch.randn(1, 50, generator=torch.Generator().manual_seed(0)), [3, 3, 7, 20]
    theirs = RepetitionPenaltyLogitsProcessor(1.3)(torch.tensor([history]), logits.clone())[0]
    assert torch.equal(apply_settings(logits[0], history, 2, resolved(repetition_penalty=1.3), ()), theirs)


def test_presence_and_frequency_penalties_cover_the_output_only():
    history, num_prompt = [0, 0, 1, 1, 1, 2], 2
    assert settled([0.0] * 4, history, num_prompt, presence_penalty=1.0) == [0.0, -1.0, -1.0, 0.0]
    assert settled([0.0] * 4, history, num_prompt, frequency_penalty=1.0) == [0.0, -3.0, -1.0, 0.0]
    assert settled([0.0] * 4, history, num_prompt, presence_penalty=0.5, frequency_penalty=-1.0) == [0.0, 2.5, 0.5, 0.0]


def test_order_bias_then_repetition_then_presence_and_frequency():
    got = settled(
        [1.0, 0.0], [0], 0, logit_bias={0: 3.0}, repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5
    )
    assert got == [(1.0 + 3.0) / 2.0 - 0.25 - 0.5, 0.0]


def test_a_ban_is_stronger_than_a_bias():
    assert settled([0.0, 0.0], [0], 1, banned_token_ids=[1], logit_bias={1: 100.0}) == [0.0, -INF]


def test_opt_2_end_tokens_wait_for_the_minimum_length():
    """min_new_tokens=6: the end token may be the 7th written token, not an earlier one."""
    for num_written in range(9):
        history = [0] * (3 + num_written)
        got = settled([0.0, 9.0, 9.0], history, 3, ends=(1, 2), min_new_tokens=6)
        assert (got[1] == -INF) is (num_written < 6)
        assert (got[2] == -INF) is (num_written < 6)


def test_opt_2_penalties_grow_with_every_token_of_a_block():
    """Constant logits over 5 ids and frequency_penalty=1: plain greedy walks through all ids before repeating one."""
    history = [0]
    for _ in range(10):
        row = torch.zeros(5, dtype=torch.float64)
        history.append(int(apply_settings(row, history, 1, resolved(frequency_penalty=1.0), ()).argmax()))
    assert history[1:] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


def test_nothing_left_is_an_error_with_position_and_way_out():
    with pytest.raises(OptionError, match=r"position 3 .*banned_token_ids.*min_new_tokens.*relax"):
        settled([0.0, 0.0], [0, 0, 0], 3, ends=(0,), banned_token_ids=[1], min_new_tokens=1)
    with pytest.raises(OptionError, match="position 1"):
        settled([-INF, 0.0], [0], 1, banned_token_ids=[1])


def test_the_targets_logits_are_left_alone():
    logits = torch.zeros(4)
    apply_settings(logits, [1], 0, resolved(logit_bias={0: 1.0}, repetition_penalty=2.0, banned_token_ids=[3]), ())
    assert logits.tolist() == [0.0] * 4


# ---- processors


def test_processors_run_in_order_on_their_own_copies():
    seen: list[list[int]] = []

    def spoil(token_ids, logits):
        seen.append(list(token_ids))
        token_ids.append(99)
        return logits.add_(1.0)

    logits = torch.zeros(3)
    out = apply_processors(logits, [4, 5], [spoil, spoil])
    assert (out.tolist(), logits.tolist(), seen) == ([2.0] * 3, [0.0] * 3, [[4, 5], [4, 5]])


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda logits: logits[:2], r"returned \(2,\); .* shape \(3,\)"),
        (lambda logits: None, "returned NoneType"),
        (lambda logits: logits * math.nan, "returned NaN"),
        (lambda logits: torch.tensor([0.0, math.nan, 0.0]), "returned NaN"),
        (lambda logits: logits - INF, "every token impossible"),
        (lambda logits: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_bad_processor_is_named_with_the_position(returned, words):
    def mine(token_ids, logits):
        return returned(logits)

    with pytest.raises(ProcessorError, match=rf"'mine' at position 2 .*{words}"):
        apply_processors(torch.zeros(3), [7, 7], [mine])


# ---- temperature


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-45, 1e-38, 1e-30, 1e-12])
def test_a_tiny_temperature_is_greedy_never_nan(temperature, dtype):
    logits = torch.tensor([1e4, 1e4 - 1, -INF, -3e38], dtype=dtype)
    got = law(logits, resolved(temperature=temperature))
    assert got.exp().tolist() == [1.0, 0.0, 0.0, 0.0]
    tie = law(torch.tensor([0.0, 5.0, 5.0], dtype=dtype), resolved(temperature=temperature))
    assert tie.exp().tolist() == pytest.approx([0.0, 0.5, 0.5])


@pytest.mark.parametrize("temperature", [1e30, 1e38, 1e300])
def test_a_huge_temperature_is_uniform_over_what_is_possible(temperature):
    got = law(torch.tensor([1e4, -1e4, -INF]), resolved(temperature=temperature))
    assert got.exp().tolist() == pytest.approx([0.5, 0.5, 0.0])


def test_temperature_divides_logits():
    assert probs_after((0.5, 0.3, 0.2), temperature=0.5) == pytest.approx([25 / 38, 9 / 38, 4 / 38])


def test_greedy_is_an_exact_one_hot_at_the_lowest_id_of_a_tie():
    """NUM-1: an exact tie between ids 5 and 2777."""
    logits = torch.zeros(3000)
    logits[[5, 2777]] = 3.0
    got = law(logits, resolved(temperature=0.0))
    assert (int(got.argmax()), float(got[5]), float(got.exp().sum())) == (5, 0.0, 1.0)
    assert int((got == -INF).sum()) == 2999


# ---- truncation


def test_opt_4_min_p_leaves_only_the_first():
    assert probs_after((0.5, 0.3, 0.2), min_p=0.7) == [1.0, 0.0, 0.0]
    assert probs_after((0.5, 0.3, 0.2), min_p=0.5) == pytest.approx([0.625, 0.375, 0.0])


def test_top_k_keeps_exactly_k():
    assert probs_after((0.1, 0.4, 0.3, 0.2), top_k=2) == pytest.approx([0.0, 4 / 7, 3 / 7, 0.0])
    assert probs_after((0.2,) * 5, top_k=3) == pytest.approx([1 / 3] * 3 + [0.0] * 2)
    assert probs_after((0.25, 0.125, 0.125, 0.5), top_k=3) == pytest.approx([2 / 7, 1 / 7, 0.0, 4 / 7])
    assert probs_after((0.6, 0.4), top_k=50) == pytest.approx([0.6, 0.4])


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    assert probs_after((0.5, 0.3, 0.2), top_p=0.5) == [1.0, 0.0, 0.0]
    assert probs_after((0.5, 0.3, 0.2), top_p=0.51) == pytest.approx([0.625, 0.375, 0.0])
    assert probs_after((0.5, 0.3, 0.2), top_p=1e-9) == [1.0, 0.0, 0.0]
    assert probs_after((0.25,) * 4, top_p=0.5) == pytest.approx([0.5, 0.5, 0.0, 0.0])


def test_both_ways_agree_where_the_mass_is_exactly_p():
    for p, kept in ((0.25, 1), (0.5, 2), (0.75, 3)):
        for way in (truncate, truncate_by_sorting):
            assert int((way(logs(0.25, 0.25, 0.25, 0.25), 0, p, 0.0) > -INF).sum()) == kept


def test_min_p_of_one_keeps_every_likeliest():
    assert probs_after((0.4, 0.4, 0.2), min_p=1.0) == pytest.approx([0.5, 0.5, 0.0])


def test_top_p_counts_the_mass_that_top_k_left():
    assert probs_after((0.4, 0.3, 0.2, 0.1), top_k=2, top_p=0.57) == [1.0, 0.0, 0.0, 0.0]
    assert probs_after((0.4, 0.3, 0.2, 0.1), top_k=2, top_p=0.58) == pytest.approx([4 / 7, 3 / 7, 0.0, 0.0])


def test_truncation_comes_after_temperature():
    assert probs_after((0.5, 0.3, 0.2), temperature=0.25, top_p=0.8) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("top_k", [0, 1, 7, 2000])
@pytest.mark.parametrize(("top_p", "min_p"), [(1.0, 0.0), (0.1, 0.0), (0.9, 0.0), (0.999999, 0.0), (0.95, 0.05)])
@pytest.mark.parametrize("heat", [0.05, 1.0, 20.0])
def test_the_fast_way_equals_the_full_sort(dtype, top_k, top_p, min_p, heat):
    """Half of the logits are rounded, so ties are common; heat 20 makes the nucleus larger than the first search."""
    for seed in range(2):
        logits = torch.randn(9000, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 3
        logits = torch.where(torch.arange(9000) % 2 == 0, logits.round(), logits) / heat
        logits[::7] = -INF
        assert torch.equal(truncate(logits, top_k, top_p, min_p), truncate_by_sorting(logits, top_k, top_p, min_p))


def test_filters_equal_transformers_where_there_are_no_ties():
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = torch.randn(1, 3000, generator=torch.Generator().manual_seed(5), dtype=torch.float64) * 3
    theirs = MinPLogitsWarper(0.05)(None, TopPLogitsWarper(0.9)(None, TopKLogitsWarper(40)(None, logits)))[0]
    ours = truncate(logits[0], 40, 0.9, 0.05)
    assert torch.equal(ours, theirs)


def test_best_orders_by_value_then_id():
    values = torch.tensor([1.0, 3.0, 3.0, -INF, 2.0, 3.0, 2.0])
    assert [best(values, k).tolist() for k in (1, 2, 4, 6, 9)] == [
        [1],
        [1, 2],
        [1, 2, 5, 4],
        [1, 2, 5, 4, 6, 0],
        [1, 2, 5, 4, 6, 0, 3],
    ]


# ---- laws for drafters, and draws


def test_a_draft_law_leaves_the_users_processors_out():
    def forbid_all_but_last(token_ids, logits):
        return torch.where(torch.arange(len(logits)) == 2, logits, -INF)

    options = {"temperature": 0.5, "top_k": 2, "banned_token_ids": [1]}
    params = resolved(**options, logits_processors=[forbid_all_but_last])
    got = draft_law(logs(0.4, 0.3, 0.2, 0.1), [0], 1, params, ())
    assert got.exp().tolist() == pytest.approx([0.8, 0.0, 0.2, 0.0])


def test_a_draft_law_passes_over_ids_that_its_vocabulary_lacks():
    params = resolved(logit_bias={90: 1.0}, banned_token_ids=[91], repetition_penalty=1.5, presence_penalty=0.5)
    got = draft_law(torch.zeros(3), [95, 96, 97], 1, params, (98,))
    assert got.exp().tolist() == pytest.approx([1 / 3] * 3)


def test_a_draft_law_works_from_half_precision():
    got = draft_law(torch.tensor([1.0, 2.0], dtype=torch.bfloat16), [0], 1, resolved(), ())
    assert (got.dtype, float(got.exp().sum())) == (torch.float32, pytest.approx(1.0))


def test_draws_without_replacement_are_different_possible_and_ordered():
    log_probs = logs(0.5, 0.0, 0.3, 0.2)
    for position in range(40):
        drawn = draw_without_replacement(log_probs, Noise(1), position, 5)
        assert sorted(drawn) == [0, 2, 3]
        for count in range(4):
            assert draw_without_replacement(log_probs, Noise(1), position, count) == drawn[:count]


def test_draws_without_replacement_follow_the_law_of_such_draws():
    """P(i, then j) = p_i * p_j / (1 - p_i)."""
    probs, count = (0.5, 0.3, 0.2), 1000
    pairs = [tuple(draw_without_replacement(logs(*probs), Noise(seed), 0, 2)) for seed in range(count)]
    outcomes = [(i, j) for i in range(3) for j in range(3) if i != j]
    expected = [count * probs[i] * probs[j] / (1 - probs[i]) for i, j in outcomes]
    assert stats.chisquare([pairs.count(pair) for pair in outcomes], expected).pvalue > 1e-4
    wrong = [count * probs[i] * probs[j] / 0.62 for i, j in outcomes]  # as if drawn with replacement
    assert stats.chisquare([pairs.count(pair) for pair in outcomes], wrong).pvalue < 1e-4
