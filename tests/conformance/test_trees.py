"""Trees through the whole engine: what branches is worth more than a chain and writes the same text."""

import pytest
import torch

from helpers import World, run, tokens_of
from helpers_drafters import BRANCHING, CHARACTERS, DrawnTree, chosen_tree
from helpers_reference import decode
from outrider import Engine
from outrider.drafters.base import DraftContext, Drafter
from outrider.drafters.fit import fit
from outrider.errors import DrafterError
from outrider.policy.fixed import FixedPolicy
from outrider.testing import FunctionDrafter
from outrider.types import DraftTree

WORLD = World(seed=7, draft_error=1.5)
PROMPTS = WORLD.prompts(4)


def wide(drafter: Drafter, depth: int = 4, nodes: int = 64) -> FixedPolicy:
    return FixedPolicy(drafter.name, depth, nodes)


@pytest.mark.parametrize("name", BRANCHING)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_whole_trees_write_the_plain_text(name: str, temperature: float) -> None:
    drafter = CHARACTERS[name](WORLD, ())
    engine = Engine(WORLD.target(), drafter, policy=wide(drafter))
    options = {"max_new_tokens": 25, "temperature": temperature, "seed": 4, "frequency_penalty": 0.5}
    found = run(engine, PROMPTS, **options)
    assert tokens_of(found) == [decode(WORLD.target_logits, p, **options) for p in PROMPTS]
    assert max(c.stats.max_proposed for c in found) > 4 or name == "repeating-siblings" or temperature == 0


def test_a_second_branch_is_followed() -> None:
    """The first sibling is always wrong, the second right: every round keeps it and goes on below it."""

    def propose(tokens: list[int], depth: int) -> DraftTree:
        right = int(WORLD.target_logits(tokens).argmax())
        after = int(WORLD.target_logits([*tokens, right]).argmax())
        wrong = (right + 1) % 8
        return DraftTree((tokens[-1], wrong, right, after, (after + 1) % 8, after), (-1, 0, 0, 1, 2, 2))

    drafter = FunctionDrafter(propose)
    completion = run(Engine(WORLD.target(), drafter, policy=wide(drafter)), [[3]], max_new_tokens=30)[0]
    assert completion.token_ids == decode(WORLD.target_logits, [3], max_new_tokens=30)[0]
    assert completion.stats.rounds == 10
    assert completion.stats.accepted == 20


def test_wider_trees_need_fewer_passes() -> None:
    rounds = []
    for width in (1, 2, 4):
        drafter = FunctionDrafter(chosen_tree(WORLD, width, depth=3))
        engine = Engine(WORLD.target(), drafter, policy=wide(drafter, nodes=100))
        rounds.append(run(engine, [[1]], max_new_tokens=60)[0].stats.rounds)
    assert rounds[0] > rounds[1] > rounds[2]


@pytest.mark.parametrize("name", BRANCHING)
def test_rules_for_chains_see_chains_only(name: str) -> None:
    """Block verification cannot judge branches, so the engine hands it one path of each tree; the text stays right."""
    drafter = CHARACTERS[name](WORLD, ())
    engine = Engine(WORLD.target(), drafter, rule="block", policy=wide(drafter))
    completion = run(engine, [[3]], max_new_tokens=30)[0]
    assert completion.token_ids == decode(WORLD.target_logits, [3], max_new_tokens=30)[0]
    assert 0 < completion.stats.max_proposed <= 4
    assert completion.stats.accepted > 0


@pytest.mark.parametrize("max_depth", [1, 2, 3])
@pytest.mark.parametrize("max_nodes", [1, 3, 5, 50])
def test_plans_are_kept(max_depth: int, max_nodes: int) -> None:
    seen: list[DraftTree] = []

    class Watching(DrawnTree):
        def observe(self, row: int, tree: DraftTree, *rest: object) -> None:
            seen.append(tree)

    drafter = Watching(WORLD, width=3, depth=4)
    engine = Engine(WORLD.target(), drafter, policy=wide(drafter, max_depth, max_nodes), rule="rejection")
    run(engine, PROMPTS, max_new_tokens=12, temperature=1.0, seed=1)
    assert max(tree.depth for tree in seen) <= max_depth
    assert max(tree.num_drafted for tree in seen) <= max(max_nodes, max_depth)
    assert all(len(tree.draft_probs) == len(tree.tokens) for tree in seen if tree.draft_probs is not None)
    assert all(tree.draft_probs is not None for tree in seen if tree.num_drafted)


def test_what_is_cut_takes_its_subtree_and_its_laws_along() -> None:
    tree = DraftTree((1, 2, 2, 3, 4, 5), (-1, 0, 0, 2, 1, 4), None, (1.0, 0.5, 0.4, 0.3, 0.2, 0.1))
    fitted = fit(tree, _context(max_depth=2), vocab_size=8)
    assert (fitted.tokens, fitted.parents, fitted.confidence) == ((1, 2, 4), (-1, 0, 1), (1.0, 0.5, 0.2))
    laws = torch.arange(6.0)[:, None].repeat(1, 8)
    fitted = fit(DraftTree((1, 2, 3, 4, 5, 6), (-1, 0, 0, 1, 2, 3), laws), _context(max_depth=2), vocab_size=8)
    assert fitted.tokens == (1, 2, 3, 4, 5)
    assert fitted.draft_probs is not None
    assert fitted.draft_probs[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_repeats_are_dropped_with_all_that_follows_them() -> None:
    tree = DraftTree((1, 2, 2, 3, 99, 4), (-1, 0, 0, 2, 0, 4))
    fitted = fit(tree, _context(max_depth=5), vocab_size=8)
    assert (fitted.tokens, fitted.parents) == ((1, 2), (-1, 0))
    drawn = DraftTree(tree.tokens, tree.parents, torch.ones(6, 8) / 8)
    with pytest.raises(DrafterError, match="repeats"):
        fit(drawn, _context(max_depth=5), vocab_size=8)


def _context(max_depth: int) -> DraftContext:
    from outrider import SamplingParams
    from outrider.sampling.noise import Noise
    from outrider.types import Plan

    plan = Plan("x", max_depth, 64)
    return DraftContext(0, [1], 1, SamplingParams().resolve({}, (), 8), Noise(0), "token", plan, True)
