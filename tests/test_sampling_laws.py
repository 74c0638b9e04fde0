"""Laws per node: own path, own position, cached; the choice of `identical`; reports."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from outrider.errors import ProcessorError, TargetError
from outrider.sampling import Laws, Noise, SamplingParams, checked_argmax, draw_without_replacement, token_logprobs
from outrider.types import DraftTree

INF = math.inf
PROBS = (0.5, 0.3, 0.2)


def make_laws(
    logits: Tensor,
    tree: DraftTree | None = None,
    history: tuple[int, ...] = (0,),
    num_prompt: int = 1,
    ends: tuple[int, ...] = (),
    noise: Noise | None = None,
    argmax: list[int] | None = None,
    **options,
) -> Laws:
    params = SamplingParams(**{"seed": 1, "temperature": 1.0, **options}).resolve({}, ends, logits.shape[1])
    tree = tree or DraftTree.chain(history[-1], [0] * (len(logits) - 1))
    return Laws(logits, tree, history, num_prompt, params, ends, noise or Noise(params.seed or 0), argmax)


def rows(*laws: tuple[float, ...]) -> Tensor:
    return torch.tensor(laws, dtype=torch.float64).log()


FORKED = DraftTree(tokens=(9, 1, 2, 3, 3), parents=(-1, 0, 0, 1, 2))  # 9 -> 1 -> 3 and 9 -> 2 -> 3


def test_positions_follow_depth_not_node_number():
    laws = make_laws(torch.zeros(5, 10), FORKED, (4, 5, 9), 2)
    assert [laws.position(node) for node in range(5)] == [3, 4, 4, 5, 5]


def test_opt_2_each_node_sees_the_penalties_of_its_own_path():
    laws = make_laws(torch.zeros(5, 10), FORKED, (4, 5, 9), 2, frequency_penalty=1.0)
    seen = [{i for i, value in enumerate(laws.logits(node).tolist()) if value < 0} for node in range(5)]
    assert seen == [{9}, {9, 1}, {9, 2}, {9, 1, 3}, {9, 2, 3}]


def test_opt_2_each_node_counts_the_minimum_length_along_its_own_path():
    laws = make_laws(torch.zeros(5, 10), FORKED, (4, 5, 9), 2, ends=(0,), min_new_tokens=2)
    assert [laws.probs(node)[0] > 0 for node in range(5)] == [False, True, True, True, True]


def test_opt_3_a_processor_sees_committed_tokens_and_the_path_once_per_node():
    calls: list[list[int]] = []

    def spy(token_ids, logits):
        calls.append(token_ids)
        return logits

    laws = make_laws(torch.zeros(5, 10), FORKED, (4, 5, 9), 2, logits_processors=[spy])
    assert calls == []
    for _ in range(3):
        for node in (0, 2, 4):
            laws.choice(node), laws.probs(node), laws.warm_log_probs(node)
    assert calls == [[4, 5, 9], [4, 5, 9, 2], [4, 5, 9, 2, 3]]


@pytest.mark.parametrize(("options", "only"), [({"min_p": 0.7}, 0), ({"logit_bias": {2: 100.0}}, 2), ({"top_k": 1}, 0)])
def test_opt_4_settings_reach_every_node(options, only):
    """Three verified positions and the bonus one; the draft always proposed id 1."""
    laws = make_laws(rows(*[PROBS] * 4), DraftTree.chain(0, [1, 1, 1]), **options)
    assert [laws.choice(node) for node in range(4)] == [only] * 4
    assert all(laws.probs(node)[only] > 1 - 1e-9 for node in range(4))


# ---- choice


@pytest.mark.parametrize("options", [{}, {"top_k": 40}, {"top_p": 0.9}, {"min_p": 0.1}, {"temperature": 0.3}])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_choice_is_the_argmax_of_law_plus_noise(options, dtype):
    """On the support alone where it is small: the same as over the whole vocabulary."""
    logits = (torch.randn(8, 5000, generator=torch.Generator().manual_seed(1)) * 3).to(dtype)
    laws = make_laws(logits, history=(1, 2, 3), **options)
    for node in range(8):
        noisy = laws.log_probs(node).double() + Noise(1).gumbel(laws.position(node), 5000)
        assert laws.choice(node) == int(noisy.argmax())
        assert draw_without_replacement(laws.log_probs(node), Noise(1), laws.position(node), 1, "token") == [
            laws.choice(node)
        ]


def test_choices_follow_the_law():
    count = 2_000
    logits = rows(PROBS)
    drawn = torch.tensor([make_laws(logits, noise=Noise(seed)).choice(0) for seed in range(count)])
    counts = torch.bincount(drawn, minlength=3).numpy()
    assert stats.chisquare(counts, [count * p for p in PROBS]).pvalue > 1e-4
    assert stats.chisquare(counts, [count * p for p in (0.42, 0.36, 0.22)]).pvalue < 1e-4


def test_a_choice_depends_on_nothing_but_law_position_and_seed():
    """The same text reached over a tree, over a chain or as committed history: the same token."""
    logits = torch.randn(5, 10, generator=torch.Generator().manual_seed(2))
    tree = make_laws(logits, FORKED, (4, 5, 9), 2, repetition_penalty=1.3)
    committed = make_laws(logits[4:], DraftTree.root(3), (4, 5, 9, 2, 3), 2, repetition_penalty=1.3)
    chain = make_laws(logits[[0, 2, 4]], DraftTree.chain(9, [2, 3]), (4, 5, 9), 2, repetition_penalty=1.3)
    assert torch.equal(tree.log_probs(4), committed.log_probs(0))
    assert tree.choice(4) == committed.choice(0) == chain.choice(2)


def test_see_2_seeds_matter_only_when_sampling():
    logits = rows(*[PROBS] * 12)
    texts = {
        t: {tuple(map(make_laws(logits, noise=Noise(s), temperature=t).choice, range(12))) for s in range(10)}
        for t in (0.0, 1.0)
    }
    assert texts[0.0] == {(0,) * 12}
    assert len(texts[1.0]) == 10


def test_num_1_ties_go_to_the_lowest_id_in_one_row_and_in_a_block():
    logits = torch.zeros(6, 3000)
    logits[4, [5, 2777]] = 3.0
    assert checked_argmax(logits, range(6))[4] == 5
    assert make_laws(logits, temperature=0.0).choice(4) == 5
    assert make_laws(logits[4:5], temperature=0.0).choice(0) == 5
    one, block = make_laws(logits[4:5], temperature=0.0), make_laws(logits, temperature=0.0)
    assert token_logprobs(one, 0, 5, 2) == token_logprobs(block, 4, 5, 2)
    assert [token_logprobs(one, 0, token_id, 0).rank for token_id in (5, 2777, 0, 2999)] == [1, 2, 3, 3000]


def test_the_precomputed_argmax_is_used_only_where_nothing_else_is_asked():
    logits = rows(PROBS)
    assert make_laws(logits, temperature=0.0, argmax=[2]).choice(0) == 2
    assert make_laws(logits, temperature=0.0, argmax=[2], logit_bias={1: 9.0}).choice(0) == 1
    assert make_laws(logits, temperature=1e-9, argmax=[2]).choice(0) == 0


def test_greedy_probs_are_an_exact_one_hot():
    laws = make_laws(torch.randn(2, 50), temperature=0.0, top_k=3, top_p=0.5)
    assert laws.probs(1).sort(descending=True).values.tolist() == [1.0] + [0.0] * 49


# ---- impossible numbers


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("row", "words"), [([0.0, math.nan, 1.0], "NaN"), ([-INF] * 3, "all -inf")])
def test_a_targets_bad_row_is_an_error_with_the_position(row, words, temperature):
    logits = torch.tensor([[0.0, 0.0, 0.0], row])
    laws = make_laws(logits, history=(0, 0), temperature=temperature)
    laws.choice(0)
    with pytest.raises(TargetError, match=f"position 3 .*{words}"):
        laws.choice(1)
    with pytest.raises(TargetError, match=f"position 8 .*{words}"):
        checked_argmax(logits, [7, 8])


def test_tokens_at_plus_infinity_share_all_the_mass():
    def insist(token_ids, logits):
        logits[[1, 2]] = INF
        return logits

    laws = make_laws(rows(PROBS), logits_processors=[insist])
    assert laws.probs(0).tolist() == [0.0, 0.5, 0.5]
    assert make_laws(rows(PROBS), logits_processors=[insist], temperature=0.0).choice(0) == 1
    assert make_laws(torch.tensor([[INF, 0.0, INF]])).raw_log_probs(0).exp().tolist() == [0.5, 0.0, 0.5]


def test_a_processors_error_carries_the_nodes_position():
    def fail(token_ids, logits):
        raise RuntimeError("no")

    with pytest.raises(ProcessorError, match="'fail' at position 4 raised RuntimeError: no"):
        make_laws(torch.zeros(5, 10), FORKED, (4, 5, 9), 2, logits_processors=[fail]).choice(1)


# ---- reports


def test_log_1_reports_are_of_the_law_that_the_token_was_drawn_from():
    laws = make_laws(rows(*[PROBS] * 3), temperature=0.5)
    squared = [p * p / 0.38 for p in PROBS]
    for node, token_id in ((0, 1), (1, 0), (2, 2)):
        report = token_logprobs(laws, node, token_id, 2)
        assert report.logprob == pytest.approx(math.log(squared[token_id]))
        assert report.raw_logprob == pytest.approx(math.log(PROBS[token_id]))
        assert report.rank == token_id + 1
        assert report.top == ((0, pytest.approx(math.log(squared[0]))), (1, pytest.approx(math.log(squared[1]))))
        assert report.raw_top == ((0, pytest.approx(math.log(0.5))), (1, pytest.approx(math.log(0.3))))


def test_log_1_greedy_reports_the_processed_law_at_temperature_one():
    report = token_logprobs(make_laws(rows(PROBS), temperature=0.0, banned_token_ids=[0]), 0, 1, 3)
    assert report.logprob == pytest.approx(math.log(0.6))
    assert report.raw_logprob == pytest.approx(math.log(0.3))
    assert report.rank == 1
    assert [token_id for token_id, _ in report.top] == [1, 2]  # an impossible token is not reported
    assert [token_id for token_id, _ in report.raw_top] == [0, 1, 2]


def test_no_rivals_are_reported_unless_asked():
    report = token_logprobs(make_laws(rows(PROBS)), 0, 2, 0)
    assert (report.top, report.raw_top, report.rank) == ((), (), 3)


def test_asking_for_reports_changes_no_choice():
    logits = torch.randn(6, 100, generator=torch.Generator().manual_seed(3))
    quiet, asked = make_laws(logits), make_laws(logits)
    for node in range(6):
        token_logprobs(asked, node, asked.choice(node), 5)
        assert asked.choice(node) == quiet.choice(node)
