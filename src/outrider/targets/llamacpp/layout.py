"""A packed row's tree as llama.cpp sees it: leaves are sequences, a node belongs to those of the leaves below it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Begin = Callable[[int, int], list[int]]


@dataclass(frozen=True)
class Leaves:
    """sequences[n]: those that node n belongs to; under[n]: one of them. first_depth: nodes on the first path."""

    sequences: Sequence[Sequence[int]]
    under: Sequence[int]
    first_depth: int


def lay_out(row: int, parents: Sequence[int], start: int, begin: Begin) -> Leaves:
    """The row's nodes, whose parents are given within the pack from `start` on; begin(row, leaves) gives sequences."""
    size = len(parents)
    if tuple(parents[1:]) == tuple(range(start, start + size - 1)):
        sequence = begin(row, 1)
        return Leaves([sequence] * size, sequence * size, size)
    local = [parent - start for parent in parents[1:]]
    inner = set(local)
    leaves = [node for node in range(size) if node not in inner]
    members: list[list[int]] = [[] for _ in range(size)]
    for leaf, sequence in zip(leaves, begin(row, len(leaves)), strict=True):
        members[leaf].append(sequence)
    for node in range(size - 1, 0, -1):
        members[local[node - 1]] += members[node]
    return Leaves(members, [ids[-1] for ids in members], _depth(local, leaves[0]))


def _depth(local: Sequence[int], node: int) -> int:
    """Nodes on the way from the root to `node`, both counted."""
    depth = 1
    while node:
        node, depth = local[node - 1], depth + 1
    return depth
