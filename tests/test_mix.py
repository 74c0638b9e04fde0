"""`mix`: what is merged, whose it is, what is learned, and what cannot be mixed."""

from collections.abc import Sequence

import pytest
import torch

from helpers import World, run, tokens_of
from helpers_drafters import DrawnTree
from helpers_reference import decode
from outrider import Engine, SamplingParams, load
from outrider.drafters.base import DraftContext, Drafter, TargetView
from outrider.drafters.calibration import Calibration
from outrider.drafters.mix import MixDrafter
from outrider.drafters.registry import make_drafter
from outrider.errors import OptionError
from outrider.policy.fixed import FixedPolicy
from outrider.sampling.noise import Noise
from outrider.testing import FunctionDrafter
from outrider.types import DraftTree, Plan

WORLD = World(seed=21, draft_error=1.0)
TARGET = TargetView(WORLD.target().info)


class Says(Drafter):
    """Proposes one fixed tree, and remembers what it was told."""

    def __init__(self, name: str, tokens: Sequence[int], parents: Sequence[int], confidence: Sequence[float]) -> None:
        self.name = name  # pyright: ignore[reportAttributeAccessIssue]
        self.made = (tuple(tokens), tuple(parents), tuple(confidence))
        self.told: list[DraftTree] = []
        self.ended: list[int] = []

    def propose_row(self, context: DraftContext) -> DraftTree:
        tokens, parents, confidence = self.made
        return DraftTree((context.root, *tokens), (-1, *parents), confidence=(1.0, *confidence))

    def observe(self, row: int, tree: DraftTree, *rest: object) -> None:
        self.told.append(tree)

    def end(self, row: int) -> None:
        self.ended.append(row)


def context(max_depth: int = 4, max_nodes: int = 9, tokens: Sequence[int] = (3,)) -> DraftContext:
    params = SamplingParams(temperature=0.8).resolve({}, (), 8)
    return DraftContext(0, list(tokens), 1, params, Noise(0, 0), "draft", Plan("mix", max_depth, max_nodes), True)


def proposal(*parts: Drafter, min_survival: float = 0.0, **plan: int) -> DraftTree:
    mix = MixDrafter(list(parts), min_survival)
    mix.bind(TARGET)
    mix.begin(0, [3])
    return mix.propose([context(**plan)])[0]


def test_equal_paths_become_one_node_and_the_surest_come_first() -> None:
    tree = proposal(Says("a", (1, 2), (0, 1), (0.5, 0.5)), Says("b", (4, 1, 5), (0, 0, 2), (0.2, 0.4, 0.9)))
    agreed = 1 - (1 - 0.5) * (1 - 0.4)  # both say 1; then b's 5 and a's 2 below it, and b's 4 beside it
    assert tree.tokens == (3, 1, 5, 2, 4)
    assert tree.parents == (-1, 0, 1, 1, 0)
    assert tree.confidence is not None
    assert tree.confidence[1] == pytest.approx(agreed)
    assert tree.confidence[2:] == pytest.approx((0.9 * 0.7, 0.5 * 0.7, 0.2), abs=0.01)
    assert tree.sources == ("", "a", "b", "a", "b")
    assert tree.draft_probs is None


def test_plans_and_min_survival_bound_the_tree() -> None:
    chain = Says("a", (1, 2, 4, 5), (0, 1, 2, 3), (0.5,) * 4)
    assert proposal(chain, max_nodes=2).tokens == (3, 1, 2)
    assert proposal(chain, max_depth=1).tokens == (3, 1)
    assert proposal(chain, min_survival=0.2).tokens == (3, 1, 2)


def test_chances_of_siblings_add_up_to_no_more_than_one() -> None:
    tree = proposal(*(Says(f"p{i}", (i,), (0,), (0.9,)) for i in range(4)))
    assert tree.confidence is not None
    assert sum(tree.confidence[1:]) <= 1.0


def test_laws_of_drawn_parts_are_left_out() -> None:
    """Which drawn tokens stay depends on them, so their law is not that of what is proposed."""
    assert proposal(DrawnTree(WORLD)).draft_probs is None


def test_parts_are_asked_for_their_likeliest_tokens_where_noise_is_private() -> None:
    asked: list[float | None] = []

    class Asked(Drafter):
        name = "asked"

        def propose_row(self, context: DraftContext) -> DraftTree:
            asked.append(context.params.temperature)
            return DraftTree.root(context.root)

    for rule in ("identical", "rejection"):
        engine = Engine(WORLD.target(), MixDrafter([Asked()]), rule=rule)
        engine.generate([1], temperature=0.8, max_new_tokens=2)
    assert asked == [0.8, 0.0]


def test_every_part_sees_its_own_estimates() -> None:
    one, other = Says("a", (1,), (0,), (0.5,)), Says("b", (2,), (0,), (0.25,))
    run(Engine(WORLD.target(), MixDrafter([one, other])), [[3]], max_new_tokens=2)
    assert one.told[0].tokens == other.told[0].tokens == (3, 1, 2)
    assert one.told[0].confidence == (1.0, 0.5, 0.0)
    assert other.told[0].confidence == (1.0, 0.0, 0.25)
    assert one.ended
    assert other.ended


def test_a_part_that_cannot_end_keeps_no_other_from_it() -> None:
    class Stubborn(Says):
        def end(self, row: int) -> None:
            raise RuntimeError("no")

    other = Says("b", (2,), (0,), (0.2,))
    mix = MixDrafter([Stubborn("a", (1,), (0,), (0.5,)), other])
    with pytest.raises(RuntimeError, match="no"):
        mix.end(5)
    assert other.ended == [5]


def test_who_was_right_gets_the_nodes() -> None:
    """One is always wrong and sure of itself, one always right and modest; there is room for one chain only."""

    def right(tokens: list[int], depth: int) -> DraftTree:
        text = list(tokens)
        for _ in range(depth):
            text.append(int(WORLD.target_logits(text).argmax()))
        return DraftTree.chain(tokens[-1], text[len(tokens) :], confidence=[0.6] * depth)

    def wrong(tokens: list[int], depth: int) -> DraftTree:
        return DraftTree.chain(
            tokens[-1], [(int(WORLD.target_logits(tokens).argmax()) + 1) % 8] * depth, confidence=[0.95] * depth
        )

    mix = MixDrafter([FunctionDrafter(wrong), FunctionDrafter(right)])
    stats = run(Engine(WORLD.target(), mix, policy=FixedPolicy("mix", 3, 3)), [[3]], max_new_tokens=60)[0].stats
    assert set(stats.accepted_by) == {"function-2"}
    assert stats.accepted_by["function-2"] == stats.accepted
    assert stats.rounds < 25  # 15 at best, 60 if the sure one were believed


def test_shares_add_up_and_the_text_is_plain() -> None:
    engine = Engine(WORLD.target(), make_drafter("mix"))
    prompts = WORLD.prompts(3)
    for temperature in (0.0, 1.0):
        found = run(engine, prompts, max_new_tokens=80, temperature=temperature, seed=3)
        options = {"max_new_tokens": 80, "temperature": temperature, "seed": 3}
        assert tokens_of(found) == [decode(WORLD.target_logits, p, **options) for p in prompts]
        shares = [c.stats.accepted_by for c in found]
        assert all(set(share) <= {"suffix", "recycle"} for share in shares)
        assert all(sum(c.stats.accepted_by.values()) == c.stats.accepted > 0 for c in found)


def test_other_drafters_credit_themselves() -> None:
    stats = run(Engine(WORLD.target(), make_drafter("lookup")), [[3, 1, 3]], max_new_tokens=40)[0].stats
    assert stats.accepted_by == {"lookup": stats.accepted}


def test_calibration_learns_by_size_depth_and_agreement() -> None:
    record = Calibration()
    assert record.chance({0: 0.6}, 1) == pytest.approx(0.6)
    for _ in range(40):
        record.learn({0: 0.6}, 1, False)
        record.learn({1: 0.6}, 1, True)
        record.learn({0: 0.6, 1: 0.6}, 1, True)
    assert record.chance({1: 0.6}, 1) > 0.9 > 0.7 > record.chance({0: 0.6}, 1)
    assert record.chance({0: 0.6, 1: 0.6}, 1) > 0.9
    assert record.chance({0: 0.6}, 3) == pytest.approx(0.6)
    assert record.chance({0: 0.2}, 1) == pytest.approx(0.2)


def test_specs() -> None:
    mix = make_drafter("mix:drafters=lookup+lookup:max_ngram=5;min_ngram=2,min_survival=0.1")
    assert isinstance(mix, MixDrafter)
    assert mix.labels == ("lookup", "lookup-2")
    assert (getattr(mix.parts[1], "max_ngram", 0), mix.min_survival) == (5, 0.1)
    defaults = load(WORLD.target(), "mix").generate([1, 2, 1, 2], max_new_tokens=8)
    assert defaults.token_ids == decode(WORLD.target_logits, [1, 2, 1, 2], max_new_tokens=8)[0]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("mix:suffix+sufix", "sufix"),
        ("mix:suffix+", "empty name"),
        ("mix:suffix+mix", "cannot be a part"),
        ("mix:suffix,min_survival=1", "min_survival"),
        ("mix:suffix+model", "model"),
    ],
)
def test_what_cannot_be_mixed_is_refused(spec: str, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        make_drafter(spec)
    with pytest.raises(OptionError, match="at least one"):
        MixDrafter([])


def test_a_broken_part_ends_its_request_with_its_name() -> None:
    engine = Engine(WORLD.target(), MixDrafter([FunctionDrafter(lambda tokens, depth: [torch.tensor(1)])]))  # pyright: ignore
    completion = run(engine, [[1]], errors=True, max_new_tokens=4)[0]
    assert completion.finish_reason == "error"
    assert "mix" in str(completion.error)


def test_the_first_part_may_have_options_of_its_own() -> None:
    mix = make_drafter("mix:suffix:min_survival=0.2+recycle,min_survival=0.1")
    assert isinstance(mix, MixDrafter)
    assert mix.min_survival == 0.1
    suffix, recycle = mix.parts
    assert (suffix.name, vars(suffix)["min_survival"], recycle.name) == ("suffix", 0.2, "recycle")
