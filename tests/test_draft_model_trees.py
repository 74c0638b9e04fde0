"""Trees of a draft model: which nodes they hold, what they cost, when they stop, that branches draw independently."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from helpers import World, run, tokens_of
from helpers_models import llama, near_copy, target
from helpers_reference import decode
from helpers_speed import quick
from outrider import Engine, SamplingParams
from outrider.drafters.base import DraftContext, TargetView
from outrider.drafters.draft_cache import DraftCache, Look
from outrider.drafters.growth import Candidate, grow
from outrider.drafters.model import ModelDrafter
from outrider.errors import OptionError
from outrider.policy.fixed import FixedPolicy
from outrider.sampling.noise import Noise
from outrider.types import DraftTree, Plan

WORLD = World(seed=21)
TEXT = [3, 1, 4, 1, 5]


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    with quick():
        yield


def context(depth: int, nodes: int, tokens: Sequence[int] = TEXT, **changes: Any) -> DraftContext:
    params = SamplingParams(temperature=changes.pop("temperature", 0.0), seed=5).resolve({}, (), 8)
    base = DraftContext(0, list(tokens), 2, params, Noise(5), "token", Plan("model", depth, nodes), want_probs=False)
    return replace(base, **changes)


def bound(draft: Any = None, **options: Any) -> ModelDrafter:
    drafter = ModelDrafter(draft or WORLD.draft(), **options)
    drafter.bind(TargetView(WORLD.target().info))
    return drafter


def tree_of(context: DraftContext, **options: Any) -> DraftTree:
    return bound(**options).propose([context])[0]


def best_first(depth: int, nodes: int) -> DraftTree:
    """The tree of the draft's own probabilities by `grow`, which asks for a law whenever it likes."""

    def children(text: tuple[int, ...], _: int) -> list[Candidate[tuple[int, ...]]]:
        chances = WORLD.draft_logits(text).softmax(0).tolist()
        return [Candidate(token, chance, (*text, token)) for token, chance in enumerate(chances)]

    return grow(TEXT[-1], tuple(TEXT), children, max_nodes=nodes, max_depth=depth)


def paths(tree: DraftTree) -> set[tuple[int, ...]]:
    return {tree.path_tokens(node) for node in range(len(tree.tokens))}


@pytest.mark.parametrize("nodes", [3, 5, 9, 20])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_with_room_for_every_branch_the_tree_is_the_best_there_is(depth: int, nodes: int) -> None:
    found = tree_of(context(depth, max(depth, nodes)), branches=8, beam=64)
    assert paths(found) == paths(best_first(depth, max(depth, nodes)))


def test_confidence_is_the_drafts_own_chance() -> None:
    tree = tree_of(context(3, 8), branches=4, beam=2)
    assert tree.confidence is not None
    for node in range(1, len(tree.tokens)):
        text = [*TEXT, *tree.path_tokens(tree.parents[node])]
        assert tree.confidence[node] == pytest.approx(float(WORLD.draft_logits(text).softmax(0)[tree.tokens[node]]))


@pytest.mark.parametrize("want_probs", [False, True])
@pytest.mark.parametrize(("depth", "nodes"), [(1, 1), (1, 5), (3, 3), (3, 4), (4, 6), (5, 30)])
def test_plans_are_kept(depth: int, nodes: int, want_probs: bool) -> None:
    stream = "draft" if want_probs else "token"
    asked = context(depth, nodes, temperature=1.0, want_probs=want_probs, stream=stream)
    for branches, beam in [(1, 1), (2, 1), (3, 3), (8, 2)]:
        tree = tree_of(asked, branches=branches, beam=beam)
        assert tree.depth <= depth
        assert tree.num_drafted <= nodes
        assert max(len(children) for children in tree.children) <= branches
        assert (tree.draft_probs is not None) == want_probs
        assert tree.depth == depth or not want_probs  # a drawn tree leaves a node for every level


def test_a_beam_of_one_costs_what_a_chain_costs() -> None:
    """Passes: one per level. Nodes scored: the chain's, though the tree branches everywhere along it."""
    chain, tree = WORLD.draft(), WORLD.draft()
    bound(chain).propose([context(4, 4)])
    found = bound(tree, branches=4).propose([context(4, 12)])[0]
    assert found.num_drafted == 12
    assert (tree.num_passes, tree.num_scored) == (chain.num_passes, chain.num_scored)


def test_a_pass_looks_beyond_as_many_nodes_as_the_beam() -> None:
    draft = WORLD.draft()
    bound(draft, branches=3, beam=3).propose([context(4, 12)])
    assert draft.num_passes == 4


def test_rules_for_chains_get_chains_at_a_chains_price() -> None:
    draft = WORLD.draft()
    asked = context(4, 12, chains_only=True, temperature=1.0, want_probs=True, stream="draft")
    tree = bound(draft, branches=3, beam=3).propose([asked])[0]
    assert tree.parents == (-1, 0, 1, 2, 3)
    assert draft.num_scored == len(TEXT) + 3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_wider_trees_need_fewer_rounds(temperature: float) -> None:
    rounds = []
    for branches, beam, nodes in [(1, 1, 3), (3, 1, 9), (3, 3, 15)]:
        drafter = ModelDrafter(WORLD.draft(), branches=branches, beam=beam)
        engine = Engine(WORLD.target(), drafter, policy=FixedPolicy("model", 3, nodes))
        found = run(engine, WORLD.prompts(3), max_new_tokens=40, temperature=temperature, seed=1)
        rounds.append(sum(completion.stats.rounds for completion in found))
    assert rounds[0] > rounds[1] > rounds[2]


def test_trees_of_transformers_write_the_plain_text() -> None:
    """Real caches: rejected branches leave nothing behind, kept ones need no second pass."""
    plain = Engine(target(llama()))
    drafter = ModelDrafter(target(near_copy(llama(), noise=0.2)), branches=3, beam=2)
    engine = Engine(target(llama()), drafter)
    for options in ({}, {"temperature": 0.8, "seed": 3}):
        prompts = [[1], list(range(20))]
        found = run(engine, prompts, max_new_tokens=24, **options)
        assert tokens_of(found) == tokens_of(run(plain, prompts, max_new_tokens=24, **options))
        assert all(completion.stats.accepted > 0 for completion in found)


@pytest.mark.parametrize("rule", ["identical", "rejection"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_proposals_do_not_depend_on_what_the_cache_went_through(rule: str, temperature: float) -> None:
    """In every round the tree equals that of a fresh drafter that is given the whole text at once."""

    class Compared(ModelDrafter):
        compared = 0

        def propose(self, contexts: Sequence[DraftContext]) -> list[DraftTree]:
            trees = super().propose(contexts)
            for one, tree in zip(contexts, trees, strict=True):
                again = tree_of(one, branches=3, beam=2)
                assert (again.tokens, again.parents) == (tree.tokens, tree.parents)
                self.compared += 1
            return trees

    drafter = Compared(WORLD.draft(), branches=3, beam=2)
    engine = Engine(WORLD.target(), drafter, rule=rule)
    run(engine, [[1], [5, 5]], max_new_tokens=40, temperature=temperature, seed=1)
    assert drafter.compared > 15


def test_the_first_pass_of_a_round_feeds_what_was_committed_and_no_more() -> None:
    """The likeliest path stays in the cache: where it was kept, one or two tokens are missing."""
    draft = WORLD.target()
    drafter = ModelDrafter(draft, branches=3, beam=3)
    engine = Engine(WORLD.target(), drafter, policy=FixedPolicy("model", 3, 12))
    completion = run(engine, [[1, 2]], max_new_tokens=60)[0]
    assert completion.stats.accepted == completion.stats.rounds * 3  # it drafts with the target itself
    assert draft.num_passes == completion.stats.rounds * 3
    first = 2  # the root and, after full acceptance, the token before it
    assert draft.num_scored <= completion.stats.rounds * (first + (1 + 3) + (1 + 3 + 3)) + 2


# ---- stopping early


def test_nothing_follows_a_token_of_little_confidence() -> None:
    tree = tree_of(context(6, 6), min_confidence=0.4)
    assert tree.confidence is not None
    assert all(chance >= 0.4 for chance in tree.confidence[:-1])
    assert tree.num_drafted == 6 or tree.confidence[-1] < 0.4


@pytest.mark.parametrize("want_probs", [False, True])
def test_survival_is_the_product_of_the_path(want_probs: bool) -> None:
    asked = context(6, 30, temperature=1.0, want_probs=want_probs, stream="draft" if want_probs else "token")
    tree = tree_of(asked, branches=4, beam=3, min_survival=0.1)
    assert tree.confidence is not None
    for node in range(1, len(tree.tokens)):
        survival = 1.0
        for step in tree.path_to(tree.parents[node]):
            survival *= tree.confidence[step]
        assert survival >= 0.1
    assert tree.num_drafted < 30


def test_stopping_early_costs_fewer_passes() -> None:
    eager, careful = WORLD.draft(), WORLD.draft()
    for draft, least in ((eager, 0.0), (careful, 0.3)):
        engine = Engine(WORLD.target(), ModelDrafter(draft, min_survival=least))
        completion = run(engine, [[1]], max_new_tokens=60, max_depth=6)[0]
        assert completion.token_ids == decode(WORLD.target_logits, [1], max_new_tokens=60)[0]
    assert careful.num_passes < eager.num_passes


def test_nothing_is_drafted_after_an_end_token() -> None:
    draft = WORLD.draft()
    asked = context(4, 4)
    end = tree_of(asked).tokens[1]
    params = SamplingParams(temperature=0.0, stop_token_ids=[end]).resolve({}, (), 8)
    tree = bound(draft).propose([replace(asked, params=params)])[0]
    assert tree.tokens == (TEXT[-1], end)
    assert draft.num_passes == 1


def test_branches_of_one_depth_draw_with_noise_of_their_own() -> None:
    """Two nodes of the same law: their first children agree by chance, not always, and each has that law."""
    flat = World(vocab_size=8, seed=1).draft()
    flat.next_logits = lambda tokens: torch.zeros(8, dtype=torch.float64)
    equal = 0
    for seed in range(120):
        asked = context(2, 6, temperature=1.0, want_probs=True, stream="draft", noise=Noise(seed, 0))
        tree = bound(flat, branches=2, beam=2).propose([asked])[0]
        first, second = tree.children[0]
        one, other = (tree.tokens[tree.children[node][0]] for node in (first, second))
        equal += one == other
    assert 4 < equal < 32  # 1 in 8 is expected


# ---- the cache by itself


def test_looks_share_one_pass_and_keep_what_all_need() -> None:
    cache = DraftCache(WORLD.draft())
    assert cache.admit(7)
    cache.follow(7, TEXT)
    look = Look(7, TEXT, [(1,), (1, 2), (1, 3)])
    logits = cache.look([look])[0]
    for row, path in zip(logits, look.paths, strict=True):
        assert torch.equal(row, WORLD.draft_logits([*TEXT, *path]))
    cache.keep([Look(7, TEXT, [(1, 2, 0), (1, 3, 0)])], [])
    assert cache.draft.length(0 if cache.draft.length(0) else 7) == len(TEXT)  # the 1 is the next root
    again = cache.look([Look(7, TEXT, [(1, 2, 0), (1, 3, 0)])])[0]
    assert torch.equal(again[1], WORLD.draft_logits([*TEXT, 1, 3, 0]))
    cache.keep([Look(7, TEXT, [(1, 3, 0)])], [7])
    cache.follow(7, [*TEXT, 1, 3, 5])
    assert torch.equal(cache.look([Look(7, [*TEXT, 1, 3, 5], [()])])[0][0], WORLD.draft_logits([*TEXT, 1, 3, 5]))
    cache.end(7)
    assert not cache.in_use()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"branches": 0}, "branches is 0"),
        ({"branches": True}, "branches is True"),
        ({"branches": 2, "beam": 0}, "beam is 0"),
        ({"beam": 2}, "beam=2 .*branches"),
        ({"min_survival": 1.5}, "min_survival is 1.5"),
        ({"min_confidence": -0.1}, "min_confidence is -0.1"),
        ({"draft_vocab": 0}, "draft_vocab is 0"),
        ({"draft_vocab_text": "x"}, "needs draft_vocab"),
        ({"bridge": "telepathy"}, "bridge is 'telepathy'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ModelDrafter("qwen-0.5b", **options)


@pytest.mark.parametrize("option", ["dtype", "device", "quantize", "backend"])
def test_options_of_loading_are_not_ignored_for_a_loaded_model(option: str) -> None:
    with pytest.raises(OptionError, match=f"{option} is for a draft model given by name"):
        ModelDrafter(WORLD.draft(), **{option: "cpu"})
