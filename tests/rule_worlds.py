"""Small worlds in which a rule's whole law can be computed: table laws, drafted trees, and every decision of a rule.

`exact_law` runs a real rule with noise that branches instead of drawing: `noise.uniform(...) < chance` is answered
both ways, draws take every value, and the weights multiply. So the result is the rule's law up to float64 rounding,
not an estimate.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from outrider.acceptance import Rule
from outrider.types import DraftTree, Outcome
from stats import Text, joint_law

ROOT: Text = (0,)


@dataclass(frozen=True)
class World:
    """Two families of random laws over `vocab_size` tokens; each text has its own pair."""

    vocab_size: int = 3
    seed: int = 0
    sharpness: float = 0.7
    zeros: bool = False

    def target(self, text: Text) -> np.ndarray:
        return self._law(1, text)

    def draft(self, text: Text) -> np.ndarray:
        return self._law(2, text)

    @cache  # noqa: B019  (worlds are few, and made once)
    def _law(self, which: int, text: Text) -> np.ndarray:
        random = np.random.default_rng([self.seed, which, *text])
        law = random.dirichlet([self.sharpness] * self.vocab_size)
        if self.zeros:
            law[random.integers(self.vocab_size)] = 0
        return law / law.sum()


class Script:
    """Noise that answers every question in all ways; one run follows `forced` and takes the first answer after it."""

    def __init__(self, forced: Sequence[int]) -> None:
        self.forced = list(forced)
        self.taken: list[int] = []
        self.chances: list[list[float]] = []

    def decide(self, chances: Sequence[float]) -> int:
        possible = [index for index, chance in enumerate(chances) if chance > 0]
        place = len(self.taken)
        choice = self.forced[place] if place < len(self.forced) else possible[0]
        self.taken.append(choice)
        self.chances.append(list(chances))
        return choice

    def uniform(self, position: int, stream: str, index: int = 0) -> Any:
        return _Coin(self)

    @property
    def weight(self) -> float:
        return float(np.prod([chances[taken] for chances, taken in zip(self.chances, self.taken, strict=True)]))

    def untaken(self) -> Iterator[list[int]]:
        for place in range(len(self.forced), len(self.taken)):
            for other, chance in enumerate(self.chances[place]):
                if chance > 0 and other != self.taken[place]:
                    yield [*self.taken[:place], other]


class _Coin:
    def __init__(self, script: Script) -> None:
        self.script = script

    def __lt__(self, chance: float) -> bool:
        return self.script.decide([1 - min(1.0, chance), min(1.0, chance)]) == 1


@dataclass
class TableLaws:
    """Laws of one tree in a world, with the methods that rules use; `choice` draws from the script."""

    world: World
    tree: DraftTree
    history: Text
    noise: Script
    asked: list[int] = field(default_factory=list)

    def probs(self, node: int) -> torch.Tensor:
        self.asked.append(node)
        return torch.tensor(self.world.target((*self.history, *self.tree.path_tokens(node))))

    def log_probs(self, node: int) -> torch.Tensor:
        return self.probs(node).log()

    def choice(self, node: int) -> int:
        return self.noise.decide(self.probs(node).tolist())

    def ends(self, token: int) -> bool:
        return False

    def position(self, node: int) -> int:
        return len(self.history) + self.tree.depths[node]


@dataclass(frozen=True)
class Decision:
    """One way a rule can decide, its chance, and the nodes whose laws it asked for."""

    outcome: Outcome
    chance: float
    asked: frozenset[int]


def decisions(rule: Rule, tree: DraftTree, world: World, history: Text = ROOT) -> list[Decision]:
    """Every decision the rule can come to for this tree (the same outcome may come more than once)."""
    found: list[Decision] = []
    pending: list[list[int]] = [[]]
    with pytest.MonkeyPatch.context() as patch:
        for module in ("rejection", "block"):
            patch.setattr(f"outrider.acceptance.{module}.draw_recovered", _scripted_draw)
        while pending:
            script = Script(pending.pop())
            laws = TableLaws(world, tree, history, script)
            found.append(Decision(rule(tree, laws, script), script.weight, frozenset(laws.asked)))
            pending += script.untaken()
    return found


def _scripted_draw(weights: torch.Tensor, noise: Script, position: int) -> int:
    return noise.decide((weights / weights.sum()).tolist())


# ---------------------------------------------------------------- drafting

Trees = Callable[[World], Iterator[tuple[DraftTree, float]]]


def drawn(*branching: int) -> Trees:
    """All trees with branching[d] siblings at depth d+1, drawn without replacement from the draft's laws."""

    def trees(world: World) -> Iterator[tuple[DraftTree, float]]:
        for tokens, parents, weight in _grow(world, branching, _orders):
            probs = _draft_probs(world, tokens, parents)
            yield DraftTree(tuple(tokens), tuple(parents), probs), weight

    return trees


def chosen(*branching: int) -> Trees:
    """The one tree of the draft's likeliest tokens: chosen, not drawn, so without draft_probs."""

    def trees(world: World) -> Iterator[tuple[DraftTree, float]]:
        for tokens, parents, weight in _grow(world, branching, _best):
            yield DraftTree(tuple(tokens), tuple(parents)), weight

    return trees


def _orders(law: np.ndarray, count: int) -> Iterator[tuple[Text, float]]:
    for order in itertools.permutations(range(len(law)), count):
        weight, left = 1.0, np.array(law)
        for token in order:
            weight *= left[token] / left.sum() if left[token] > 0 else 0.0
            left[token] = 0
        if weight > 0:
            yield order, weight


def _best(law: np.ndarray, count: int) -> Iterator[tuple[Text, float]]:
    yield tuple(int(token) for token in np.argsort(-law, kind="stable")[:count]), 1.0


def _grow(world: World, branching: Sequence[int], pick: Callable) -> Iterator[tuple[list[int], list[int], float]]:
    """Level by level, every way of picking children for every node of the last level."""
    partial = [([ROOT[-1]], [-1], [0], 1.0)]
    for count in branching:
        grown = []
        for tokens, parents, level, weight in partial:
            laws = [world.draft(_text_at(tokens, parents, node)) for node in level]
            for picks in itertools.product(*(list(pick(law, count)) for law in laws)):
                more, more_parents, next_level, chance = list(tokens), list(parents), [], weight
                for node, (order, part) in zip(level, picks, strict=True):
                    next_level += range(len(more), len(more) + len(order))
                    more += order
                    more_parents += [node] * len(order)
                    chance *= part
                grown.append((more, more_parents, next_level, chance))
        partial = grown
    return ((tokens, parents, weight) for tokens, parents, _, weight in partial)


def _text_at(tokens: Sequence[int], parents: Sequence[int], node: int) -> Text:
    path: list[int] = []
    while node >= 0:
        path.append(tokens[node])
        node = parents[node]
    return (*ROOT[:-1], *reversed(path))


def _draft_probs(world: World, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
    return torch.tensor(np.stack([world.draft(_text_at(tokens, parents, node)) for node in range(len(tokens))]))


# ---------------------------------------------------------------- whole laws


def exact_law(rule: Rule, world: World, trees: Trees, length: int) -> dict[Text, float]:
    """Joint law of the first `length` tokens: one round of the rule, and the target's own law after it."""
    law: dict[Text, float] = defaultdict(float)
    for tree, weight in trees(world):
        for decision in decisions(rule, tree, world):
            outcome, chance = decision.outcome, decision.chance
            text = (*tree.path_tokens(outcome.path[-1]), outcome.next_token)[:length]
            rest = joint_law(world.target, length - len(text), (*ROOT, *text))
            for more, last in rest.items():
                law[(*text, *more)] += weight * chance * last
    return dict(law)


def expected_accepted(rule: Rule, world: World, trees: Trees) -> float:
    return sum(
        weight * decision.chance * decision.outcome.num_accepted
        for tree, weight in trees(world)
        for decision in decisions(rule, tree, world)
    )


def target_law(world: World, length: int) -> dict[Text, float]:
    return joint_law(world.target, length, ROOT)
