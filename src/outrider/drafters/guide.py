"""Drafts within a grammar: what a request's processor forbids is cut off, what it leaves no choice about is added.

A processor that is also a `Guide` can be asked beforehand. Neither changes the text: an illegal token would have been
rejected, and an added one is judged like any other. Drawn tokens stay even where they are illegal, for a law that is
judged must be the one drawn from (docs/correctness.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from outrider.drafters.fit import subtree
from outrider.types import DraftTree

SOURCE = "grammar"  # whose the added tokens are
CERTAIN = 0.99
MOST_FORCED = 24  # tokens added to one tree


@runtime_checkable
class Guide(Protocol):
    """A logits processor that knows what it will allow."""

    def allows(self, tokens: list[int], token: int) -> bool:
        """Whether `token` may follow this text (prompt included)."""
        ...

    def forced(self, tokens: list[int], limit: int) -> list[int]:
        """The tokens, at most `limit`, that must follow this text as far as that is known."""
        ...


def guided(tree: DraftTree, guides: Sequence[Guide], history: Sequence[int], room: int) -> DraftTree:
    """The tree without what the guides forbid and with what they force.

    history: the committed text, its last token the root. room: most tokens that may still be drafted in a row.
    """
    for guide in guides:
        if tree.draft_probs is None:
            tree = _without_illegal(tree, guide, history)
        tree = _with_forced(tree, guide, history, room)
    return tree


def _without_illegal(tree: DraftTree, guide: Guide, history: Sequence[int]) -> DraftTree:
    kept = [0]
    for node in range(1, len(tree.tokens)):
        parent = tree.parents[node]
        if parent in kept and guide.allows([*history, *tree.path_tokens(parent)], tree.tokens[node]):
            kept.append(node)
    return tree if len(kept) == len(tree.tokens) else subtree(tree, kept)


def _with_forced(tree: DraftTree, guide: Guide, history: Sequence[int], room: int) -> DraftTree:
    """Along the likeliest path: a forced chain where the draft has ended or says something else."""
    node: int | None = 0
    while node is not None:
        limit = min(MOST_FORCED, room - tree.depths[node])
        chain = guide.forced([*history, *tree.path_tokens(node)], limit) if limit > 0 else []
        tokens = [tree.tokens[child] for child in tree.children[node]]
        if chain and chain[0] not in tokens and (not tokens or tree.draft_probs is None):
            return _grafted(tree, node, chain)
        node = _likeliest(tree, node, chain[0] if chain else None)
    return tree


def _likeliest(tree: DraftTree, node: int, forced: int | None) -> int | None:
    children = tree.children[node]
    if forced is not None:
        return next((child for child in children if tree.tokens[child] == forced), None)
    if tree.confidence is None or tree.draft_probs is not None:
        return children[0] if children else None
    return max(children, key=tree.confidence.__getitem__, default=None)


def _grafted(tree: DraftTree, node: int, chain: Sequence[int]) -> DraftTree:
    """The tree with a chain of chosen tokens below `node`, which has no drawn children."""
    size, added = len(tree.tokens), len(chain)
    return replace(
        tree,
        tokens=(*tree.tokens, *chain),
        parents=(*tree.parents, node, *range(size, size + added - 1)),
        draft_probs=None if tree.draft_probs is None else _chosen_below(tree.draft_probs[:size], node, added),
        confidence=None if tree.confidence is None else (*tree.confidence, *[CERTAIN] * added),
        sources=(*(tree.sources or [""] * size), *[SOURCE] * added),
    )


def _chosen_below(laws: Tensor, node: int, added: int) -> Tensor:
    """No law after `node` and the added nodes: a token without a chance under its law is judged as a chosen one."""
    extended = torch.cat([laws, laws.new_zeros(added, laws.shape[1])])
    extended[node] = 0.0
    return extended
