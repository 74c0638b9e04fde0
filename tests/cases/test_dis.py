"""DIS: the sampling law at temperature > 0. Laws are computed, not estimated, where a rule's arithmetic suffices."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch

from helpers import World, run, tokens_of
from helpers_reference import decode, law
from outrider import Engine, Request, SamplingParams
from outrider.acceptance import make_rule
from outrider.acceptance.siblings import SiblingTest
from outrider.drafters.base import DraftContext
from outrider.drafters.model import ModelDrafter
from outrider.sampling.laws import Laws
from outrider.sampling.noise import Noise
from outrider.testing import FunctionDrafter, FunctionTarget
from outrider.types import DraftTree
from stats import chi_square, joint_law

WORLD = World(vocab_size=6, seed=41, habit=1.0)


def output_law(target: Sequence[float], draft: Sequence[float] | None, drawn_from: Sequence[float]) -> np.ndarray:
    """Law of one token: drafted from `drawn_from`, judged as if from `draft` (None: chosen), by the real arithmetic."""
    law = np.zeros(len(target))
    for token, chance in enumerate(drawn_from):
        if chance > 0:
            claimed = None if draft is None else torch.tensor(draft, dtype=torch.float64)
            test = SiblingTest(torch.tensor(target, dtype=torch.float64), claimed)
            kept = float(test.chance(token))
            test.reject(token)
            law[token] += chance * kept
            law += chance * (1 - kept) * test.remaining.numpy()
    return law


def test_dis_1_a_chosen_token_has_a_point_mass() -> None:
    target, draft = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    assert output_law(target, None, [0, 1, 0]) == pytest.approx(target, abs=1e-12)
    assert output_law(target, draft, [0, 1, 0]) == pytest.approx([0.4, 0.6, 0], abs=1e-12)  # the fault
    test = SiblingTest(np.array([Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)], dtype=object), None)
    assert test.chance(1) == Fraction(3, 10)
    test.reject(1)
    assert list(test.remaining) == [Fraction(5, 7), 0, Fraction(2, 7)]


def test_dis_2_draft_probs_are_the_truncated_law() -> None:
    logits = torch.tensor([3.0, 2.6, 2.2, 1.0, 0.6, 0.2, 0, -0.4], dtype=torch.float64)
    target = torch.tensor([2, 2.5, 2, 1.5, 1, 0.5, 0, -0.5], dtype=torch.float64).softmax(0).tolist()
    drawn = torch.where(logits >= 2.2, logits, -torch.inf).softmax(0).tolist()
    right = [0.1975, 0.3256, 0.1975, 0.1198, 0.0727, 0.0441, 0.0267, 0.0162]
    wrong = [0.2320, 0.3824, 0.2320, 0.0768, 0.0425, 0.0231, 0.0079, 0.0033]
    assert output_law(target, drawn, drawn) == pytest.approx(right, abs=5e-5)
    assert output_law(target, logits.softmax(0).tolist(), drawn) == pytest.approx(wrong, abs=5e-5)  # the fault
    assert np.abs(np.subtract(right, wrong)).sum() / 2 == pytest.approx(0.126, abs=1e-3)


def test_dis_2_the_model_drafter_reports_the_law_it_draws_from() -> None:
    """Every row of draft_probs is the draft model's law under the request's settings, computed a second time."""
    seen: list[tuple[list[int], DraftTree]] = []

    class Watched(ModelDrafter):
        def propose(self, contexts: Sequence[DraftContext]) -> list[DraftTree]:
            trees = super().propose(contexts)
            seen.extend((list(context.tokens), tree) for context, tree in zip(contexts, trees, strict=True))
            return trees

    engine = Engine(WORLD.target(), Watched(WORLD.draft()), rule="rejection")
    options = {"temperature": 0.8, "top_k": 3, "frequency_penalty": 0.5}
    run(engine, [[1]], seed=5, max_new_tokens=30, **options)
    params = SamplingParams(**options).resolve({}, (), 6)
    assert seen
    for tokens, tree in seen:
        for node, token in enumerate(tree.tokens[1:]):
            text = [*tokens, *tree.path_tokens(node)]
            expected = law(WORLD.draft_logits(text), text, 1, params, set())
            assert tree.draft_probs is not None
            assert tree.draft_probs[node].tolist() == pytest.approx(expected.tolist(), abs=1e-12)
            assert (expected > 0).sum() == 3
            assert expected[token] > 0


class Reluctant(Noise):
    """Every coin falls as badly as it can."""

    def uniform(self, position: int, stream: str, index: int = 0) -> float:
        return 0.99999994


@pytest.mark.parametrize("rule", ["rejection", "block"])
@pytest.mark.parametrize("law", [[1.0, 0.0], [0.5, 0.5], [0.9999999, 0.0000001]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dis_3_no_residual_is_no_nan(rule: str, law: list[float], dtype: torch.dtype) -> None:
    """Target and draft are equal, and the coin says no: the token is drawn from the target, never from 0/0."""
    probs = torch.tensor([law, law], dtype=dtype)
    tree = DraftTree.chain(0, [0], probs)
    params = SamplingParams(temperature=1.0, seed=1).resolve({}, (), 2)
    laws = Laws(probs.log(), tree, [0], 1, params, (), Noise(1))
    outcome = make_rule(rule)(tree, laws, Reluctant(1))
    assert outcome.next_token in range(2)
    assert law[outcome.next_token] > 0


def test_dis_3_an_exhausted_test_falls_back_to_the_target() -> None:
    law = torch.tensor([0.5, 0.5])
    test = SiblingTest(law, law)
    test.reject(1)
    assert test.exhausted
    assert test.remaining.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("rule", ["identical", "rejection", "block"])
def test_dis_4_the_ratio_is_of_laws_after_temperature(rule: str) -> None:
    target = FunctionTarget(lambda tokens: torch.tensor([0.3, 0.5, 0.05, 0.05, 0.05, 0.05]).log(), 6)
    draft_law = torch.tensor([0.2, 0.16, 0.16, 0.16, 0.16, 0.16])
    drafter = FunctionDrafter(lambda tokens, depth: DraftTree.chain(tokens[-1], [0], draft_law.expand(2, -1)))
    for seed in range(20):
        completion = run(Engine(target, drafter, rule=rule), [[2]], seed=seed, max_new_tokens=6)[0]
        assert completion.token_ids == (1,) * 6


def dis_5_samples(runs: int) -> list[tuple[int, ...]]:
    engine = Engine(WORLD.target(max_rows=64), ModelDrafter(WORLD.draft(max_rows=64)), rule="rejection")
    settings = {"temperature": 1.0, "top_p": 0.9, "max_new_tokens": 3}
    requests = [Request([1, 4], SamplingParams(seed=seed, **settings)) for seed in range(runs)]
    return [c.token_ids for c in run(engine, requests)]


def dis_5_law() -> dict[tuple[int, ...], float]:
    params = SamplingParams(temperature=1.0, top_p=0.9).resolve({}, (), 6)
    return joint_law(lambda text: law(WORLD.target_logits(text), text, 2, params, set()).tolist(), 3, (1, 4))


def test_dis_5_joint_law_of_three_tokens() -> None:
    assert chi_square(dis_5_samples(1500), dis_5_law()) > 1e-3


@pytest.mark.slow
def test_dis_5_in_depth() -> None:
    assert chi_square(dis_5_samples(50_000), dis_5_law()) > 1e-3


def test_dis_6_greedy_is_deterministic_and_a_drafted_end_is_only_a_draft() -> None:
    plain = decode(WORLD.target_logits, [1], (5,), max_new_tokens=30, banned_token_ids=[5])
    ends = FunctionDrafter(lambda tokens, depth: [5, 5])
    for _ in range(20):
        completion = run(Engine(WORLD.target((5,)), ends), [[1]], max_new_tokens=30, banned_token_ids=[5])
        assert tokens_of(completion) == [plain]
        assert completion[0].stats.proposed > completion[0].stats.accepted == 0
