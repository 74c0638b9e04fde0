"""Sampled rules through the whole engine: the joint law of several tokens is the target's.

Each case draws texts of three tokens with fresh seeds and compares their counts with the law that enumeration gives.
Negative controls break one thing each and must fail by a wide margin.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from found import make_found

from helpers import World, run
from helpers_drafters import DrawnTree, chosen_tree
from helpers_reference import law
from outrider import Engine, Request, SamplingParams
from outrider.drafters.base import DraftContext, Drafter
from outrider.drafters.mix import MixDrafter
from outrider.drafters.model import ModelDrafter
from outrider.policy.fixed import FixedPolicy
from outrider.testing import FunctionDrafter
from outrider.types import DraftTree
from stats import chi_square, joint_law

WORLD = World(vocab_size=4, seed=6, habit=0.5, draft_error=1.0)
PROMPT = (1, 2, 1)
LENGTH = 3
RUNS, ROWS = 1000, 64
WARM = {"temperature": 1.0}
SHAPED = {"temperature": 0.9, "top_p": 0.9, "frequency_penalty": 0.5, "logit_bias": {2: 0.7}}
ENDING = {"temperature": 1.0, "stop_token_ids": [3], "min_new_tokens": 1}


@cache
def exact(settings: tuple[tuple[str, Any], ...]) -> dict[tuple[int, ...], float]:
    options = {name: dict(value) if name == "logit_bias" else value for name, value in settings}
    params = SamplingParams(**options).resolve({}, (), WORLD.vocab_size)
    ends = set(params.stop_token_ids or ())

    def law_after(text: tuple[int, ...]) -> Sequence[float]:
        if ends & set(text[len(PROMPT) :]):
            return [1.0, 0.0, 0.0, 0.0]  # ended: any one continuation stands for "nothing more"
        return law(WORLD.target_logits(text), text, len(PROMPT), params, ends).tolist()

    return joint_law(law_after, LENGTH, PROMPT)


def law_of(settings: dict[str, Any]) -> dict[tuple[int, ...], float]:
    hashable = {
        name: tuple(sorted(value.items()))
        if isinstance(value, dict)
        else tuple(value)
        if isinstance(value, list)
        else value
        for name, value in settings.items()
    }
    return exact(tuple(sorted(hashable.items())))


def draw(make: Callable[[], Drafter], rule: str, settings: dict[str, Any], runs: int) -> list[tuple[int, ...]]:
    drafter = make()
    engine = Engine(WORLD.target(max_rows=ROWS), drafter, rule=rule, policy=FixedPolicy(drafter.name, LENGTH, 20))
    requests = [
        Request(list(PROMPT), SamplingParams(max_new_tokens=LENGTH, seed=seed, **settings)) for seed in range(runs)
    ]
    completions = run(engine, requests)
    if drafter.name != "none":
        rounds = sum(c.stats.rounds for c in completions)
        assert sum(c.stats.rounds_without_proposal for c in completions) < rounds - runs / 4
        assert sum(c.stats.accepted for c in completions) > runs / 10
    return [(*c.token_ids, *[0] * (LENGTH - len(c.token_ids))) for c in completions]


def fit(samples: list[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    """The smallest p-value of the first token, the first two and all, times 3: few cells see what many blur."""
    values = []
    for length in range(1, LENGTH + 1):
        shorter: dict[tuple[int, ...], float] = {}
        for text, chance in law.items():
            shorter[text[:length]] = shorter.get(text[:length], 0.0) + chance
        values.append(chi_square([text[:length] for text in samples], shorter))
    return len(values) * min(values)


def model() -> Drafter:
    return ModelDrafter(WORLD.draft(max_rows=ROWS))  # with fewer rows most requests would not be drafted for


def model_tree(**options: Any) -> Drafter:
    return ModelDrafter(WORLD.draft(max_rows=ROWS), branches=3, beam=2, **options)


def trimmed_model() -> Drafter:
    return ModelDrafter(WORLD.draft(max_rows=ROWS), draft_vocab=3)


class LooksAhead(ModelDrafter):
    """Drops a drawn token of little chance, where `min_confidence` would only have stopped after it."""

    def propose(self, contexts: Sequence[DraftContext]) -> list[DraftTree]:
        trees = super().propose(contexts)
        return [self._shortened(tree) for tree in trees]

    def _shortened(self, tree: DraftTree) -> DraftTree:
        assert tree.confidence is not None or not tree.num_drafted
        chances = tree.confidence or (1.0,)
        size = next((node for node, chance in enumerate(chances) if chance < 0.5), len(chances))
        return DraftTree(tree.tokens[:size], tree.parents[:size], tree.draft_probs)


def lookup() -> Drafter:
    return make_found("lookup", WORLD)


def mix() -> Drafter:
    """A draft model, a drafter that draws whatever it is asked, and one that copies."""
    return MixDrafter([model(), DrawnTree(WORLD, 2, 2), make_found("suffix", WORLD)], min_survival=0.2)


class Particular(DrawnTree):
    """Draws, keeps only what it finds likely, and says that what is left was drawn: the fault that `mix` avoids."""

    def propose_row(self, context: DraftContext) -> DraftTree:
        tree = super().propose_row(context)
        assert tree.draft_probs is not None
        size = 1
        while size < len(tree.tokens) and tree.draft_probs[size - 1, tree.tokens[size]] > 0.4:
            size += 1
        return DraftTree(tree.tokens[:size], tree.parents[:size], tree.draft_probs[:size])


def drawn_tree() -> Drafter:
    return DrawnTree(WORLD, width=2, depth=2)


def picked_tree() -> Drafter:
    return FunctionDrafter(chosen_tree(WORLD, width=2, depth=2))


CASES = [
    ("none", lambda: make_found("none", WORLD), "identical", WARM),
    ("model", model, "identical", WARM),
    ("drawn-tree", drawn_tree, "identical", SHAPED),
    ("model", model, "rejection", WARM),
    ("model", model, "rejection", SHAPED),
    ("model", model, "rejection", ENDING),
    ("lookup", lookup, "rejection", WARM),
    ("drawn-tree", drawn_tree, "rejection", WARM),
    ("drawn-tree", drawn_tree, "rejection", SHAPED),
    ("chosen-tree", picked_tree, "rejection", WARM),
    ("model", model, "block", WARM),
    ("model", model, "block", SHAPED),
    ("lookup", lookup, "block", WARM),
    ("drawn-tree", drawn_tree, "block", WARM),
    ("model-tree-stopped", lambda: model_tree(min_survival=0.25), "rejection", WARM),
    ("recycle", lambda: make_found("recycle", WORLD), "rejection", WARM),
    ("suffix", lambda: make_found("suffix", WORLD), "rejection", WARM),
    ("mix", lambda: mix(), "rejection", WARM),
]
DEEP_CASES = [
    *CASES,
    ("model-tree", model_tree, "identical", SHAPED),
    ("model-tree", model_tree, "rejection", WARM),
    ("model-tree", model_tree, "rejection", SHAPED),
    ("model-tree-ending", model_tree, "rejection", ENDING),
    ("model-stopped", lambda: ModelDrafter(WORLD.draft(max_rows=ROWS), min_confidence=0.5), "rejection", WARM),
    ("model-stopped", lambda: ModelDrafter(WORLD.draft(max_rows=ROWS), min_survival=0.3), "block", WARM),
    ("model-tree", model_tree, "block", WARM),
    ("mix", lambda: mix(), "rejection", SHAPED),
    ("mix", lambda: mix(), "block", WARM),
    ("model-trimmed", trimmed_model, "rejection", WARM),
]
NAMES = [f"{rule}-{name}-{len(settings)}-{index}" for index, (name, _, rule, settings) in enumerate(DEEP_CASES)]


@pytest.mark.parametrize(("name", "make", "rule", "settings"), CASES, ids=NAMES[: len(CASES)])
def test_joint_law_is_the_targets(name: str, make: Callable[[], Drafter], rule: str, settings: dict[str, Any]) -> None:
    assert fit(draw(make, rule, settings, RUNS), law_of(settings)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make", "rule", "settings"), DEEP_CASES, ids=NAMES)
def test_joint_law_in_depth(name: str, make: Callable[[], Drafter], rule: str, settings: dict[str, Any]) -> None:
    assert fit(draw(make, rule, settings, 50_000), law_of(settings)) > 1e-3


def flat(law: torch.Tensor) -> torch.Tensor:
    return torch.full_like(law, 1 / len(law))


@pytest.mark.parametrize(
    ("make", "rule", "settings"),
    [
        (lambda: DrawnTree(WORLD, 1, 3, claims=flat), "rejection", WARM),
        (lambda: DrawnTree(WORLD, 2, 2, claims=flat), "rejection", WARM),
        (lambda: DrawnTree(WORLD, 1, 3, claims=flat), "block", WARM),
        (lambda: Particular(WORLD, 1, 3), "rejection", WARM),
        (lambda: Particular(WORLD, 1, 3), "block", WARM),
        (picked_tree, "typical", WARM),
        (lambda: LooksAhead(WORLD.draft(max_rows=ROWS)), "rejection", WARM),
    ],
    ids=[
        "lying-chain",
        "lying-tree",
        "lying-chain-block",
        "particular",
        "particular-block",
        "lossy-rule",
        "looks-ahead",
    ],
)
def test_negative_controls_fail(make: Callable[[], Drafter], rule: str, settings: dict[str, Any]) -> None:
    """draft_probs that are not the law of what is proposed; a lossy rule; stopping before a token for what it is."""
    assert fit(draw(make, rule, settings, RUNS), law_of(settings)) < 1e-6


def test_the_wrong_law_is_seen() -> None:
    """The test of the test: right samples against the law of other settings."""
    samples = draw(model, "rejection", WARM, 1000)
    assert fit(samples, law_of(SHAPED)) < 1e-6
    assert fit(samples, law_of({"temperature": 0.7})) < 1e-3


@pytest.mark.parametrize(("one", "other"), [("rejection", "identical"), ("block", "identical"), ("block", "rejection")])
def test_sampled_rules_are_not_one_and_the_same(one: str, other: str) -> None:
    """Different decisions (so the cases above test different code), though one law."""
    assert draw(model, one, WARM, 50) != draw(model, other, WARM, 50)
