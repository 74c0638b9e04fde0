"""Rules on known cases: values worked out by hand, faults seen elsewhere (DIS-1 to DIS-4), refusals, the registry."""

import numpy as np
import pytest
import torch

from outrider.acceptance import Rule, available_rules, make_rule
from outrider.acceptance.rejection import Rejection
from outrider.acceptance.typical import Typical
from outrider.errors import OptionError, UnsupportedError
from outrider.sampling.laws import Laws
from outrider.sampling.noise import Noise
from outrider.sampling.params import SamplingParams
from outrider.types import DraftTree, Outcome
from rule_worlds import ROOT, TableLaws, World, decisions


class Fixed(World):
    """The same target law after every text."""

    def __init__(self, law) -> None:
        object.__setattr__(self, "law", torch.tensor(law, dtype=torch.float64).numpy())

    def target(self, text):
        return self.law


def first_token_law(rule: Rule, law, tree: DraftTree) -> list[float]:
    total = [0.0] * len(law)
    for decision in decisions(rule, tree, Fixed(law)):
        total[(*tree.path_tokens(decision.outcome.path[-1]), decision.outcome.next_token)[0]] += decision.chance
    return total


def laws_of(rows, tree: DraftTree, noise: Noise, **settings) -> Laws:
    """Real laws whose temperature-1 probabilities are `rows`."""
    params = SamplingParams(**settings).resolve({}, (), len(rows[0]))
    return Laws(torch.tensor(np.array(rows, dtype=float)).log(), tree, list(ROOT), 1, params, (), noise)


def test_identical_asks_for_nothing_after_an_end_token() -> None:
    """0 1 2 3 is drafted and right; 2 ends the text, so what follows it is nobody's business."""
    asked: list[int] = []

    class Watched(Laws):
        def choice(self, node: int) -> int:
            asked.append(node)
            return super().choice(node)

    rows = torch.eye(4, dtype=torch.float64)[[1, 2, 3, 0]].log()
    params = SamplingParams().resolve({}, (2,), 4)
    tree = DraftTree.chain(0, [1, 2, 3])
    outcome = make_rule("identical")(tree, Watched(rows, tree, [0], 1, params, (2,), Noise(1)), Noise(1))
    assert outcome.path == (0, 1, 2)
    assert asked == [0, 1]


def decide(name: str, rows, tree: DraftTree, noise: Noise, **settings) -> Outcome:
    return make_rule(name)(tree, laws_of(rows, tree, noise, **settings), noise)


class ForcedNoise(Noise):
    """Acceptance uniforms that are all the same value."""

    value = 0.0

    def uniform(self, position, stream, index=0):
        return self.value


# ---------------------------------------------------------------- DIS-1 to DIS-4


@pytest.mark.parametrize("name", ["rejection", "block"])
def test_dis1_a_chosen_token_is_judged_as_a_point_mass(name: str) -> None:
    law, draft = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    right = first_token_law(make_rule(name), law, DraftTree.chain(0, [1]))
    assert right == pytest.approx(law)
    wrong = first_token_law(make_rule(name), law, DraftTree.chain(0, [1], torch.tensor([draft, draft])))
    assert wrong == pytest.approx([0.4, 0.6, 0.0])


def test_dis1_the_residual_is_the_rest_of_the_law() -> None:
    rejected = [d for d in decisions(Rejection(), DraftTree.chain(0, [1]), Fixed([0.5, 0.3, 0.2]))
                if d.outcome.num_accepted == 0]  # fmt: skip
    assert {d.outcome.next_token: pytest.approx(d.chance / 0.7) for d in rejected} == {0: 5 / 7, 2: 2 / 7}


DIS2_TARGET = torch.tensor([2, 2.5, 2, 1.5, 1, 0.5, 0, -0.5], dtype=torch.float64).softmax(0)
DIS2_DRAFT = torch.tensor([3.0, 2.6, 2.2, 1.0, 0.6, 0.2, 0, -0.4], dtype=torch.float64)


def dis2_law(name: str, stated: torch.Tensor) -> list[float]:
    """The law written when tokens are drawn from the draft's three best, and `stated` is returned as their law."""
    drawn_from = DIS2_DRAFT[:3].softmax(0)
    total = torch.zeros(8, dtype=torch.float64)
    for token in range(3):
        tree = DraftTree.chain(0, [token], stated.expand(2, 8))
        total += drawn_from[token] * torch.tensor(first_token_law(make_rule(name), DIS2_TARGET.tolist(), tree))
    return total.tolist()


@pytest.mark.parametrize("name", ["rejection", "block"])
def test_dis2_draft_probs_are_the_filtered_law(name: str) -> None:
    filtered = torch.cat([DIS2_DRAFT[:3].softmax(0), torch.zeros(5, dtype=torch.float64)])
    right = [0.1975, 0.3256, 0.1975, 0.1198, 0.0727, 0.0441, 0.0267, 0.0162]
    assert dis2_law(name, filtered) == pytest.approx(right, abs=6e-5)
    wrong = [0.2320, 0.3824, 0.2320, 0.0768, 0.0425, 0.0231, 0.0079, 0.0033]
    assert dis2_law(name, DIS2_DRAFT.softmax(0)) == pytest.approx(wrong, abs=6e-5)


@pytest.mark.parametrize("name", ["rejection", "block"])
@pytest.mark.parametrize("law", [[1.0, 0.0], [0.5, 0.5]])
@pytest.mark.parametrize("uniform", [0.0, 0.99999994, 1.0])
def test_dis3_equal_laws_never_end_in_nan(name: str, law, uniform: float) -> None:
    """A uniform of 1.0 cannot occur; it stands for a rejection by rounding: the residual is then empty."""
    noise = ForcedNoise(7)
    object.__setattr__(noise, "value", uniform)
    tree = DraftTree.chain(0, [0, 0], torch.tensor([law] * 3, dtype=torch.float32))
    result = decide(name, [law] * 3, tree, noise, temperature=1.0)
    assert law[result.next_token] > 0
    assert result.num_accepted == (0 if uniform == 1.0 else 2)


@pytest.mark.parametrize("name", available_rules())
@pytest.mark.parametrize("with_probs", [True, False])
def test_dis4_temperature_comes_before_the_ratio(name: str, with_probs: bool) -> None:
    target, draft = [0.3, 0.5, 0.05, 0.05, 0.05, 0.05], [0.2, 0.16, 0.16, 0.16, 0.16, 0.16]
    tree = DraftTree.chain(0, [0], torch.tensor([draft] * 2) if with_probs else None)
    for seed in range(20):
        result = decide(name, [target] * 2, tree, Noise(seed), temperature=0.0)
        assert (result.path, result.next_token, result.bonus) == ((0,), 1, False)


# ---------------------------------------------------------------- greedy


@pytest.mark.parametrize("name", available_rules())
def test_greedy_chains_are_kept_as_far_as_they_are_the_argmax(name: str) -> None:
    """Laws whose argmax is 1, 2, 0, 1 along the chain 1 2 1: kept two, then 0."""
    rows = [[0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.6, 0.3, 0.1], [0.0, 1.0, 0.0]]
    result = decide(name, rows, DraftTree.chain(0, [1, 2, 1]), Noise(1), temperature=0.0)
    assert result == Outcome((0, 1, 2), 0)


@pytest.mark.parametrize("name", ["identical", "rejection", "typical"])
def test_greedy_trees_lead_down_the_argmax_path(name: str) -> None:
    """Root -> {2, 1}, 1 -> {0, 2}: the argmax path is 1 (node 2), 2 (node 4), then the bonus 0."""
    tree = DraftTree((0, 2, 1, 0, 2), (-1, 0, 0, 2, 2))
    rows = [[0.1, 0.8, 0.1], [1, 0, 0], [0.1, 0.1, 0.8], [1, 0, 0], [0.5, 0.3, 0.2]]
    assert decide(name, rows, tree, Noise(1), temperature=0.0) == Outcome((0, 2, 4), 0, bonus=True)


@pytest.mark.parametrize("name", available_rules())
def test_a_bare_root_is_plain_decoding(name: str) -> None:
    rows = [[0.2, 0.5, 0.3]]
    for seed in range(10):
        plain = laws_of(rows, DraftTree.root(0), Noise(seed), temperature=1.0).choice(0)
        result = decide(name, rows, DraftTree.root(0), Noise(seed), temperature=1.0)
        assert result == Outcome((0,), plain, bonus=True)


@pytest.mark.parametrize("name", available_rules())
def test_the_same_noise_gives_the_same_decision(name: str) -> None:
    rows = [[0.2, 0.5, 0.3]] * 3
    tree = DraftTree.chain(0, [1, 2])
    results = {decide(name, rows, tree, Noise(5, 2), temperature=1.0) for _ in range(5)}
    assert len(results) == 1


# ---------------------------------------------------------------- typical


def test_typical_keeps_the_longest_path_of_plausible_tokens() -> None:
    """0.2 is above min(0.09, ...): kept although another token is likelier; 0.05 is not."""
    world = Fixed([0.7, 0.2, 0.05, 0.05])
    tree = DraftTree((0, 0, 1, 2, 1), (-1, 0, 0, 1, 2))
    assert {d.outcome.path for d in decisions(Typical(), tree, world)} == {(0, 2, 4)}
    strict = Typical(epsilon=1.0, delta=1.0)  # threshold exp(-entropy) = 0.43
    assert {d.outcome.path for d in decisions(strict, tree, world)} == {(0, 1)}


@pytest.mark.parametrize("value", [0, -0.1, 1.5, float("nan"), "0.1", True, None])
@pytest.mark.parametrize("option", ["epsilon", "delta"])
def test_typical_refuses_thresholds_outside_their_range(option: str, value) -> None:
    with pytest.raises(OptionError, match=option):
        Typical(**{option: value})


# ---------------------------------------------------------------- registry and refusals


def test_rules_are_found_by_name() -> None:
    assert available_rules() == ("block", "identical", "rejection", "typical")
    assert [make_rule(name).name for name in available_rules()] == list(available_rules())


def test_options_come_with_the_name_or_as_keywords() -> None:
    assert make_rule("typical:epsilon=0.2,delta=0.5") == Typical(0.2, 0.5)
    assert make_rule("typical", delta=0.5) == Typical(delta=0.5)
    ready = Typical(0.2)
    assert make_rule(ready) is ready


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("identicle", {}, "did you mean 'identical'"),
        ("", {}, "known: block, identical, rejection, typical"),
        ("typical", {"epsilom": 0.1}, "did you mean 'epsilon'"),
        ("identical", {"epsilon": 0.1}, "has no options"),
        ("typical:epsilon", {}, "it has no value"),
        ("typical:epsilon=high", {}, "'high' is not a number"),
        ("typical:epsilon=7", {}, "epsilon is 7"),
        (Typical(), {"epsilon": 0.1}, "ready rule"),
    ],
)
def test_unknown_rules_and_options_are_refused(spec, options, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make_rule(spec, **options)


def test_block_refuses_trees_that_branch() -> None:
    with pytest.raises(UnsupportedError, match="'block' judges chains, but node 1 of the draft tree has 2 children"):
        decide("block", [[0.5, 0.5]] * 4, DraftTree((0, 1, 0, 1), (-1, 0, 1, 1)), Noise(1), temperature=1.0)


def test_table_laws_and_real_laws_agree() -> None:
    """The stand-in of the enumeration tests answers as the real thing does."""
    world, tree = World(seed=4), DraftTree.chain(0, [1, 2])
    rows = [world.target((*ROOT, *tree.path_tokens(node))) for node in range(3)]
    table, real = TableLaws(world, tree, ROOT, None), laws_of(rows, tree, Noise(1), temperature=1.0)
    for node in range(3):
        assert torch.allclose(table.probs(node), real.probs(node), atol=1e-12)
        assert table.position(node) == real.position(node)
