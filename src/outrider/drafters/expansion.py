"""One row's tree in the making: level by level, the most likely nodes are looked beyond, and the tree is filled up.

Survival of a node is the product of the chances along its path. A pass of the draft model looks beyond at most `beam`
nodes of one depth; once no more passes pay, further candidates at the nodes that were looked beyond join the tree, best
first, at no cost. Chosen trees keep the nodes of greatest survival; drawn ones keep all that was drawn, and every
decision to draw looks at what was drawn before and never ahead (spots.py). Sources: Li et al., "EAGLE-2" (2024); Wang
et al., "OPT-Tree" (2024); Svirschevski et al., "SpecExec" (2024).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.drafters.base import DraftContext
from outrider.drafters.draft_cache import Look, Path
from outrider.drafters.spots import Spot, Spots
from outrider.types import DraftTree


@dataclass(frozen=True)
class Shape:
    """branches: most children of a node. beam: nodes of one depth that a pass looks beyond.

    min_confidence, min_survival: a node of a smaller chance, or a smaller product of chances, is not looked beyond; nor
    does a candidate join the tree if its prospect of survival is below min_survival.
    """

    branches: int = 1
    beam: int = 1
    min_confidence: float = 0.0
    min_survival: float = 0.0


class Expansion:
    """Grows one tree. `look` tells which places are to be scored; `take` brings their logits; then `tree`.

    depth: most levels, at least 0. draft_ids: the committed text in the draft model's ids. to_draft: from a drafted
    token to the draft's id. ends: ids after which nothing is written, so nothing is drafted.
    """

    def __init__(
        self,
        context: DraftContext,
        depth: int,
        shape: Shape,
        ends: Sequence[int],
        draft_ids: Sequence[int],
        to_draft: Callable[[int], int],
    ) -> None:
        self.row = context.row
        self._max_depth = depth
        self._max_nodes = context.plan.max_nodes
        self._shape = Shape(1, 1, shape.min_confidence, shape.min_survival) if context.chains_only else shape
        self._ends = frozenset(ends)
        self._draft_ids = draft_ids
        self._to_draft = to_draft
        self._maker = Spots(context, ends, self._shape.branches)
        self._spots: dict[int, Spot] = {}
        self._tokens, self._parents = [context.root], [-1]
        self._confidence, self._survival = [1.0], [1.0]
        self._paths: list[Path] = [()]
        self._frontier = [0] if depth > 0 else []
        self._last_frontier: list[int] = []

    @property
    def wanted(self) -> bool:
        """Whether one more pass pays."""
        return bool(self._frontier)

    def look(self) -> Look:
        """The places whose logits `take` wants next."""
        return self._look_at(self._frontier)

    def likeliest(self) -> Look:
        """Of the places of the last pass the one that is most likely to be kept."""
        return self._look_at([max(self._last_frontier, key=self._survival.__getitem__)])

    def take(self, logits: Sequence[Tensor]) -> None:
        """logits[i]: (V,) over the target's ids, after place i of `look`. Draws a level and decides about the next."""
        level = self._frontier
        for branch, (node, row) in enumerate(zip(level, logits, strict=True)):
            spot = self._maker.make(row, self._paths[node], branch)
            if spot is not None:
                self._spots[node] = spot
        depth = len(self._paths[level[0]])
        added = self._add(level, self._level_size(depth))
        self._last_frontier = level
        self._frontier = [node for node in added if depth + 1 < self._max_depth and self._goes_on(node)]

    def tree(self, note: str = "") -> DraftTree:
        """What is proposed: at most the plan's number of nodes."""
        if self._shape.branches > 1 and self._spots:
            spare = self._max_nodes - self._num_drafted if self._maker.drawn else self._max_nodes
            self._add(list(self._spots), spare)
        if not self._num_drafted:
            return DraftTree.root(self._tokens[0], note)
        kept = self._kept()
        place = {node: index for index, node in enumerate(kept)}
        return DraftTree(
            tuple(self._tokens[node] for node in kept),
            tuple(place.get(self._parents[node], -1) for node in kept),
            self._draft_probs() if self._maker.drawn else None,
            tuple(self._confidence[node] for node in kept),
            note,
        )

    @property
    def _num_drafted(self) -> int:
        return len(self._tokens) - 1

    def _look_at(self, nodes: Sequence[int]) -> Look:
        paths = [tuple(self._to_draft(token) for token in self._paths[node]) for node in nodes]
        return Look(self.row, self._draft_ids, paths)

    def _level_size(self, depth: int) -> int:
        """Nodes that a level may draw; drawn trees leave one for every level to come."""
        if not self._maker.drawn:
            return self._shape.beam
        return min(self._shape.beam, self._max_nodes - self._num_drafted - (self._max_depth - depth - 1))

    def _goes_on(self, node: int) -> bool:
        return (
            self._tokens[node] not in self._ends
            and self._confidence[node] >= self._shape.min_confidence
            and self._survival[node] >= self._shape.min_survival
        )

    def _add(self, nodes: Sequence[int], count: int) -> list[int]:
        """Best first, up to `count` candidates of these nodes join the tree; the new nodes."""
        first = len(self._tokens)
        for _ in range(count):
            prospect, node = max(((self._prospect(node), -node) for node in nodes), default=(0.0, 0))
            if not prospect > 0 or prospect < self._shape.min_survival:
                break
            self._join(-node)
        return list(range(first, len(self._tokens)))

    def _prospect(self, node: int) -> float:
        spot = self._spots.get(node)
        return self._survival[node] * spot.prospect if spot else 0.0

    def _join(self, parent: int) -> None:
        token, chance = self._spots[parent].take()
        self._tokens.append(token)
        self._parents.append(parent)
        self._confidence.append(chance)
        self._survival.append(self._survival[parent] * chance)
        self._paths.append((*self._paths[parent], token))

    def _kept(self) -> list[int]:
        """All nodes of a drawn tree; of a chosen one the root and the most likely. No child outlives its parent."""
        nodes = range(1, len(self._tokens))
        if self._maker.drawn or len(nodes) <= self._max_nodes:
            return [0, *nodes]
        order = sorted(nodes, key=lambda node: (-self._survival[node], node))
        return [0, *sorted(order[: self._max_nodes])]

    def _draft_probs(self) -> Tensor:
        """(n, V): the law that each node's children were drawn from; zeros where there are none."""
        laws = {node: spot.law.exp() for node, spot in self._spots.items() if spot.law is not None and spot.taken}
        nothing = torch.zeros_like(next(iter(laws.values())))
        return torch.stack([laws.get(node, nothing) for node in range(len(self._tokens))])
