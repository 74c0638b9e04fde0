"""The rules' whole laws, computed by branching at every decision of the real code; and faults that must show."""

import pytest
import torch

from outrider.acceptance import Rule, available_rules, make_rule
from outrider.acceptance.siblings import SiblingTest, without
from outrider.types import DraftTree
from rule_worlds import ROOT, World, chosen, decisions, drawn, exact_law, expected_accepted, target_law
from stats import total_variation

LENGTH = 3
EXACT = 1e-12
WORLDS = [World(seed=1), World(seed=2, zeros=True), World(seed=3, sharpness=0.2)]
CHAINS = {"drawn 1": drawn(1), "drawn 3": drawn(1, 1, 1), "chosen 1": chosen(1), "chosen 3": chosen(1, 1, 1)}
TREES = {"drawn 2": drawn(2), "drawn 3": drawn(3), "drawn 2x2": drawn(2, 2), "chosen 2": chosen(2),
         "chosen 3x2": chosen(3, 2), "chosen 1x3": chosen(1, 3)}  # fmt: skip


def distance(rule: Rule, world: World, trees) -> float:
    return total_variation(exact_law(rule, world, trees, LENGTH), target_law(world, LENGTH))


def drawable(world: World, shape: str) -> bool:
    """Three siblings cannot be drawn without replacement from a law with a zero among three tokens."""
    return not (world.zeros and shape == "drawn 3")


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("shape", CHAINS)
@pytest.mark.parametrize("name", ["rejection", "block"])
def test_chains_have_exactly_the_target_law(name: str, shape: str, world: World) -> None:
    assert distance(make_rule(name), world, CHAINS[shape]) < EXACT


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("shape", TREES)
def test_trees_have_exactly_the_target_law(shape: str, world: World) -> None:
    if drawable(world, shape):
        assert distance(make_rule("rejection"), world, TREES[shape]) < EXACT


@pytest.mark.parametrize("shape", {**CHAINS, **TREES})
def test_identical_has_the_target_law_whatever_is_chosen(shape: str) -> None:
    assert distance(make_rule("identical"), WORLDS[0], {**CHAINS, **TREES}[shape]) < EXACT


def test_typical_is_lossy_and_says_so() -> None:
    rule = make_rule("typical")
    assert not rule.lossless
    assert distance(rule, WORLDS[0], drawn(1)) > 0.01


def test_only_typical_is_lossy() -> None:
    assert [name for name in available_rules() if not make_rule(name).lossless] == ["typical"]


def test_every_lossless_rule_keeps_at_most_one_minus_total_variation_of_single_drafts() -> None:
    for world in WORLDS:
        gap = total_variation({(i,): p for i, p in enumerate(world.target(ROOT))},
                              {(i,): p for i, p in enumerate(world.draft(ROOT))})  # fmt: skip
        for name in ("rejection", "block"):
            assert expected_accepted(make_rule(name), world, drawn(1)) == pytest.approx(1 - gap, abs=EXACT)


# ---------------------------------------------------------------- block against rejection


def test_block_never_accepts_less_than_rejection() -> None:
    gains = []
    for seed in range(6):
        world = World(seed=seed, sharpness=0.5)
        for trees in (drawn(1, 1), drawn(1, 1, 1), chosen(1, 1, 1)):
            block, plain = (expected_accepted(make_rule(name), world, trees) for name in ("block", "rejection"))
            gains.append(block - plain)
    assert min(gains) > -EXACT
    assert max(gains) > 0.01


def test_block_reaches_the_papers_example() -> None:
    """Sun et al. 2024, section 2: laws 1/3, 2/3 against 2/3, 1/3, two tokens: 10/9 by token, 11/9 by block."""

    class Coins(World):
        def target(self, text):
            return torch.tensor([1 / 3, 2 / 3], dtype=torch.float64).numpy()

        def draft(self, text):
            return torch.tensor([2 / 3, 1 / 3], dtype=torch.float64).numpy()

    world = Coins(vocab_size=2)
    assert expected_accepted(make_rule("rejection"), world, drawn(1, 1)) == pytest.approx(10 / 9)
    assert expected_accepted(make_rule("block"), world, drawn(1, 1)) == pytest.approx(11 / 9)


# ---------------------------------------------------------------- negative controls: each of these must show


class WrongResidual(SiblingTest):
    """Draws from the target again instead of from what it has in excess."""

    def reject(self, token):
        super().reject(token)
        self.remaining = self._target


class NotNormalised(SiblingTest):
    """Judges the younger siblings by a residual that does not sum to 1."""

    def reject(self, token):
        before = self.remaining
        draft = self._draft
        super().reject(token)
        self.remaining = (before - draft).clip(min=0) if draft is not None else without(before, token)


class UnmodifiedTarget(SiblingTest):
    """Judges every sibling by the target's law, as if its elder siblings had not been rejected."""

    def chance(self, token):
        remaining, self.remaining = self.remaining, self._target
        chance = super().chance(token)
        self.remaining = remaining
        return chance


class DraftWithReplacement(SiblingTest):
    """Forgets that a sibling cannot be drawn twice."""

    def reject(self, token):
        draft = self._draft
        super().reject(token)
        self._draft = draft


class RatioUpsideDown(SiblingTest):
    def chance(self, token):
        return min(1, self._draft[token] / self.remaining[token])


@pytest.mark.parametrize(
    ("fault", "trees"),
    [
        (WrongResidual, drawn(1)),
        (WrongResidual, chosen(1)),
        (NotNormalised, drawn(2)),
        (NotNormalised, chosen(2)),
        (UnmodifiedTarget, drawn(2)),
        (UnmodifiedTarget, chosen(2)),
        (DraftWithReplacement, drawn(2)),
        (RatioUpsideDown, drawn(1)),
    ],
)
def test_a_faulty_sibling_test_shows(fault: type[SiblingTest], trees, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.acceptance.rejection.SiblingTest", fault)
    assert max(distance(make_rule("rejection"), world, trees) for world in (WORLDS[0], WORLDS[2])) > 0.01


def relabelled(trees, change):
    """The same trees under draft_probs that are not the law they were drawn from."""

    def changed(world):
        for tree, weight in trees(world):
            yield DraftTree(tree.tokens, tree.parents, change(world, tree)), weight

    return changed


def flattened(world, tree):
    """As if the draft had been tempered after drawing: nobody drew from this law."""
    weights = tree.draft_probs.sqrt()
    return weights / weights.sum(-1, keepdim=True)


def shifted(world, tree):
    """Row n+1 where row n belongs."""
    return tree.draft_probs.roll(-1, 0)


@pytest.mark.parametrize("name", ["rejection", "block"])
@pytest.mark.parametrize("change", [flattened, shifted])
def test_draft_probs_that_are_not_the_drawn_law_show(change, name: str) -> None:
    assert distance(make_rule(name), WORLDS[0], relabelled(drawn(1, 1), change)) > 0.01


@pytest.mark.parametrize("name", ["rejection", "block"])
def test_drawn_tokens_treated_as_chosen_keep_fewer_but_stay_exact(name: str) -> None:
    """A point mass is right for a token that was fixed before the coin falls, however it came about."""
    trees = relabelled(drawn(1, 1), lambda world, tree: None)
    assert distance(make_rule(name), WORLDS[0], trees) < EXACT
    assert expected_accepted(make_rule(name), WORLDS[0], trees) < expected_accepted(
        make_rule(name), WORLDS[0], drawn(1, 1)
    )


def test_siblings_too_unlikely_for_floats_are_judged_as_chosen() -> None:
    """draft_probs of (1, 0, 0) after rounding, yet second siblings were drawn: the law must not suffer."""
    probs = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64).expand(3, 3)

    def trees(world):
        for second in (1, 2):
            yield DraftTree((0, 0, second), (-1, 0, 0), probs), 0.5

    assert distance(make_rule("rejection"), WORLDS[0], trees) < EXACT


def test_repeated_siblings_change_nothing() -> None:
    world = WORLDS[0]
    for token in range(3):
        tree = DraftTree((0, token, token, 1), (-1, 0, 0, 0))
        assert distance(make_rule("rejection"), world, lambda world, tree=tree: [(tree, 1.0)]) < EXACT

    def drawn_twice(world):
        for tree, weight in drawn(1)(world):
            yield DraftTree((*tree.tokens, tree.tokens[1]), (-1, 0, 0), tree.draft_probs[[0, 1, 1]]), weight

    assert distance(make_rule("rejection"), world, drawn_twice) < EXACT


@pytest.mark.parametrize("function", ["keep_chance", "weighted_excess", "next_weight"])
def test_a_faulty_block_shows(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from outrider.acceptance import block

    right = getattr(block, function)
    faults = {
        "keep_chance": lambda weight, excess: weight,
        "weighted_excess": lambda weight, target, draft, token: right(1, target, draft, token),
        "next_weight": lambda weight, target, draft, token: right(1, target, draft, token),
    }
    monkeypatch.setattr(block, function, faults[function])
    assert distance(make_rule("block"), WORLDS[0], drawn(1, 1, 1)) > 0.01


# ---------------------------------------------------------------- what a decision looks like


@pytest.mark.parametrize("name", available_rules())
def test_bonus_is_said_exactly_when_the_path_ends_in_a_leaf(name: str) -> None:
    for tree, _ in drawn(1, 1)(WORLDS[0]):
        for decision in decisions(make_rule(name), tree, WORLDS[0]):
            outcome = decision.outcome
            assert decision.chance > 0
            assert outcome.bonus == (outcome.num_accepted == 2)
            assert outcome.path == tuple(range(outcome.num_accepted + 1))


@pytest.mark.parametrize("name", available_rules())
def test_rules_that_promise_it_ask_for_laws_on_the_path_only(name: str) -> None:
    rule = make_rule(name)
    trees = drawn(1, 1) if name == "block" else drawn(2, 2)
    strays = [
        decision.asked - set(decision.outcome.path)
        for tree, _ in trees(WORLDS[0])
        for decision in decisions(rule, tree, WORLDS[0])
    ]
    assert any(strays) != rule.visits_path_only
