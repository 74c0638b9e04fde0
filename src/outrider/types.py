"""The nouns that cross module borders: trees, packed rounds, scores, outcomes, plans.

Two invariants hold everywhere (docs/architecture.md):
I1  at the start of a round the target's cache holds every committed token of a row except the newest: the root;
I2  entry n of every per-node value speaks of what follows node n.

A tree lives on the host as tuples (it is small and walked in Python); a packed round lives on the device.
This module must not import annotations from __future__: the shape checks would silently be skipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class DraftTree:
    """What a drafter proposes for one row. Node 0 is the root (the newest committed token); parents[i] < i.

    draft_probs[n] is the law from which the children of node n were drawn, in node order, without replacement;
    None where children were chosen, not drawn (their law is then a point mass). confidence[n] is the drafter's
    own estimate of the chance that node n is kept given that its parent is (the root's is 1); it never
    influences acceptance. sources[n]: whose token node n is, where that is not simply the drafter that was asked (""
    for the root; empty: its own, all of them). note: why the proposal is short or absent, if the user should know.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    draft_probs: Float[Tensor, "n V"] | None = None
    confidence: tuple[float, ...] | None = None
    note: str = ""
    sources: tuple[str, ...] = ()

    @classmethod
    def root(cls, token: int, note: str = "") -> "DraftTree":
        """The tree of one node: plain decoding."""
        return cls((token,), (-1,), note=note)

    @classmethod
    def chain(
        cls,
        root: int,
        tokens: Sequence[int],
        draft_probs: Float[Tensor, "n V"] | None = None,
        confidence: Sequence[float] | None = None,
    ) -> "DraftTree":
        """Tokens that follow the root one after another. draft_probs: one row per node, the root's first."""
        estimates = None if confidence is None else (1.0, *confidence)
        return cls((root, *tokens), tuple(range(-1, len(tokens))), draft_probs, estimates)

    @property
    def num_drafted(self) -> int:
        """Nodes beside the root."""
        return len(self.tokens) - 1

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """children[n]: the nodes whose parent is n, in node order."""
        lists: list[list[int]] = [[] for _ in self.tokens]
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                lists[parent].append(node)
        return tuple(tuple(nodes) for nodes in lists)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """depths[n]: number of drafted tokens on the way from the root to n; 0 for the root."""
        depths = [0] * len(self.tokens)
        for node in range(1, len(self.tokens)):
            depths[node] = depths[self.parents[node]] + 1
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Length of the longest path below the root."""
        return max(self.depths)

    def path_to(self, node: int) -> tuple[int, ...]:
        """Node ids from the root (included) to `node` (included)."""
        path: list[int] = []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))

    def judge(self, written: Sequence[int]) -> tuple[tuple[float | None, bool], ...]:
        """What became of the tree's levels, in hindsight of the tokens that followed the root: see Judged."""
        levels: list[tuple[float | None, bool]] = []
        node: int | None = 0
        for token in written:
            children = self.children[node] if node is not None else ()
            if not children:
                break
            said = None if self.confidence is None else min(1.0, sum(self.confidence[child] for child in children))
            node = next((child for child in children if self.tokens[child] == token), None)
            levels.append((said, node is not None))
        return tuple(levels)

    def keep(self, nodes: Sequence[int]) -> "DraftTree":
        """The tree of these nodes alone, in node order; the root and every kept node's parent must be among them."""
        if len(nodes) == len(self.tokens):
            return self
        place = {old: new for new, old in enumerate(nodes)}
        return DraftTree(
            tokens=tuple(self.tokens[i] for i in nodes),
            parents=tuple(place.get(self.parents[i], -1) for i in nodes),
            draft_probs=None if self.draft_probs is None else self.draft_probs[list(nodes)],
            confidence=None if self.confidence is None else tuple(self.confidence[i] for i in nodes),
            note=self.note,
            sources=tuple(self.sources[i] for i in nodes) if self.sources else (),
        )

    def path_tokens(self, node: int) -> tuple[int, ...]:
        """Tokens on the way from the root (excluded) to `node` (included)."""
        return tuple(self.tokens[i] for i in self.path_to(node)[1:])


@dataclass(frozen=True, eq=False)
class Packed:
    """One round's nodes of all rows, one after another, nothing padded.

    row_ids: the cache row of each packed row (B). starts: first node of each row, and the end (B+1).
    parents: index of a node's parent within the pack; -1 for a root. positions: place in the row's text.
    tokens, positions, rows: on the target's device.
    """

    row_ids: tuple[int, ...]
    starts: tuple[int, ...]
    parents: tuple[int, ...]
    tokens: Int[Tensor, "N"]
    positions: Int[Tensor, "N"]
    rows: Int[Tensor, "N"]

    @property
    def num_nodes(self) -> int:
        return len(self.parents)

    def is_chain(self, index: int) -> bool:
        """Whether the packed row's nodes follow one another."""
        start, end = self.starts[index], self.starts[index + 1]
        return self.parents[start + 1 : end] == tuple(range(start, end - 1))


def pack(
    trees: Sequence[DraftTree], row_ids: Sequence[int], lengths: Sequence[int], device: torch.device | str = "cpu"
) -> Packed:
    """Trees of several rows as one round. lengths[b]: tokens of that row already in the cache (the root's position)."""
    starts, parents, tokens, positions, rows = [0], [], [], [], []
    for tree, row, length in zip(trees, row_ids, lengths, strict=True):
        base = starts[-1]
        parents += [p + base if p >= 0 else -1 for p in tree.parents]
        tokens += tree.tokens
        positions += [length + depth for depth in tree.depths]
        rows += [row] * len(tree.tokens)
        starts.append(base + len(tree.tokens))
    columns = torch.tensor([tokens, positions, rows], dtype=torch.long).to(device)
    return Packed(tuple(row_ids), tuple(starts), tuple(parents), columns[0], columns[1], columns[2])


@dataclass(frozen=True, eq=False)
class Scored:
    """The target's answer to a packed round: logits of the wanted nodes, hidden states only if asked for."""

    logits: Float[Tensor, "M V"]
    hidden: dict[int, Tensor] = field(default_factory=dict[int, Tensor])  # layer: (N, H)


@dataclass(frozen=True)
class Outcome:
    """What a rule decided for one row: the kept nodes (root first), and the token that follows the last of them.

    bonus: the path ends in a leaf, so nothing was rejected.
    """

    path: tuple[int, ...]
    next_token: int
    bonus: bool = False

    @property
    def num_accepted(self) -> int:
        return len(self.path) - 1


@dataclass(frozen=True)
class Plan:
    """What a policy allows one row in one round. max_depth 0: do not speculate.

    others: plans of drafters that are asked as well. revise: the policy is asked again (`Chooser.choose`) once the
    proposals are there, and may score a part of one of them, or none.
    """

    drafter: str = "none"
    max_depth: int = 0
    max_nodes: int = 0
    reason: str = ""
    others: tuple["Plan", ...] = ()
    revise: bool = False


@dataclass(frozen=True)
class PhaseSeconds:
    """Wall-clock seconds of one round (or a sum of rounds), by phase."""

    prefill: float = 0.0
    draft: float = 0.0
    score: float = 0.0
    accept: float = 0.0
    rest: float = 0.0

    def __add__(self, other: "PhaseSeconds") -> "PhaseSeconds":
        return PhaseSeconds(
            self.prefill + other.prefill,
            self.draft + other.draft,
            self.score + other.score,
            self.accept + other.accept,
            self.rest + other.rest,
        )

    @property
    def total(self) -> float:
        return self.prefill + self.draft + self.score + self.accept + self.rest


@dataclass(frozen=True)
class RowRound:
    """What one row did in one round. delivered counts the tokens that the user got, after any cut.

    accepted counts kept draft tokens among the delivered ones, accepted_by the same by whose they were; depth is the
    tree's. surprisal: nats, -log of the chance that each delivered token had in its law, summed; 0 for greedy requests.
    """

    row: int
    drafter: str
    proposed: int
    accepted: int
    delivered: int
    depth: int
    context_length: int
    accepted_by: Mapping[str, int] = field(default_factory=dict[str, int])
    surprisal: float = 0.0


@dataclass(frozen=True)
class Asked:
    """One drafter in one round: how many rows it was asked for, its deepest proposal, and the seconds it took."""

    drafter: str
    num_rows: int
    depth: int
    seconds: float


@dataclass(frozen=True)
class Judged:
    """A proposal in hindsight, scored or not: for every level that the text has reached, whether it came true.

    levels: (chance by the drafter's own confidence that some node of the level is right, None if it gave none; whether
    one was). The last one alone can be wrong. num_nodes: drafted nodes in all.
    """

    row: int
    drafter: str
    num_nodes: int
    levels: tuple[tuple[float | None, bool], ...]


@dataclass(frozen=True)
class RoundStats:
    """One round of the engine, as policies, metrics and traces see it. judged: of rows whose plan said `revise`."""

    rows: tuple[RowRound, ...]
    seconds: PhaseSeconds
    num_nodes: int
    asked: tuple[Asked, ...] = ()
    judged: tuple[Judged, ...] = ()
