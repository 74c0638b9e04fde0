"""Best-first growth: the tree of at most n nodes that is most likely to be of use.

A node's survival is the product of the estimates along its path; the node with the greatest survival is added next,
so width and depth follow from the estimates and not from a fixed shape. Because an estimate is at most 1 a child never
survives better than its parent, so the n best nodes always form a tree. Source: Chen et al., "Sequoia" (2024); Wang et
al., "OPT-Tree" (2024); Svirschevski et al., "SpecExec" (2024).
"""

import heapq
from collections.abc import Callable, Iterable
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from outrider.types import DraftTree

State = TypeVar("State")


class Candidate(NamedTuple, Generic[State]):
    """A token that may follow a node: its estimated chance there, and what its own children are asked of."""

    token: int
    chance: float
    state: State


def grow(
    root: int,
    state: State,
    children: Callable[[State, int], Iterable[Candidate[State]]],
    *,
    max_nodes: int,
    max_depth: int,
    min_survival: float = 0.0,
) -> DraftTree:
    """A tree of chosen tokens below `root`. children(state, depth): the candidates that may follow a node.

    Candidates of one node must hold different tokens. Survival below min_survival is not worth a node.
    """
    order = count()  # breaks ties in favour of what was found first
    tokens, parents, confidence = [root], [-1], [1.0]
    heap: list[tuple[float, int, int, int, Candidate[State]]] = []

    def offer(node: int, survival: float, state: State, depth: int) -> None:
        for candidate in children(state, depth) if depth < max_depth else ():
            chance = survival * candidate.chance
            if chance > min_survival:
                heapq.heappush(heap, (-chance, next(order), node, depth + 1, candidate))

    offer(0, 1.0, state, 0)
    while heap and len(tokens) <= max_nodes:
        survival, _, parent, depth, candidate = heapq.heappop(heap)
        tokens.append(candidate.token)
        parents.append(parent)
        confidence.append(candidate.chance)
        offer(len(tokens) - 1, -survival, candidate.state, depth)
    return DraftTree(tuple(tokens), tuple(parents), confidence=tuple(confidence))
