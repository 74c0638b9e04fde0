"""Token recycling: the target's best next candidates, seen in earlier passes, are drafted when their token comes up.

Every scored node, kept or not, tells what the target would have put after it; that is kept by the last token and by
the last two (followers.py), and a tree is grown from it. No model, no training. Source: Luo et al., "Turning Trash into
Treasure: Accelerating Inference of Large Language Models with Token Recycling" (2024); chances and the second token are
ours.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from outrider.drafters.base import DraftContext, Drafter, TargetView
from outrider.drafters.followers import Candidates, Followers
from outrider.drafters.growth import Candidate, grow
from outrider.drafters.trust import Trust
from outrider.errors import OptionError
from outrider.types import DraftTree, Outcome, Scored

MOST = 64  # candidates
RANKS = 16  # candidates that are trusted each for itself; later ones share the last
PRIOR = 0.8  # trust in a chance, before any evidence
FLATTER = 0.7  # exponent: a chance was seen elsewhere, so it is less sure here
UNLIKELY = 0.003  # candidates with less are not kept
PIECE = 64  # logits

Pair = tuple[int, int]  # the last two tokens


@dataclass
class RecycleDrafter(Drafter):
    """width: candidates kept per context, at most 64. min_survival: a token less likely to be kept is not drafted.

    shared: one table for all requests (learns faster, but what one request saw shows in another's drafts).
    start: a file that `outrider drafters tune-recycle` made for this target; every request then begins with what the
    target put after tokens there. Without it a request begins with nothing.
    """

    name: ClassVar[str] = "recycle"
    free: ClassVar[bool] = True
    watches_logits: ClassVar[bool] = True
    preferred_depth: ClassVar[int] = 8
    preferred_nodes: ClassVar[int] = 40

    width: int = 16
    min_survival: float = 0.005
    shared: bool = False
    start: str | None = None
    _rows: dict[int, "_RowState"] = field(default_factory=dict[int, "_RowState"], init=False, repr=False)
    _begun: Followers | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.width) is not int or not 1 <= self.width <= MOST:
            raise OptionError(f"width is {self.width!r}; it must lie between 1 and {MOST}")
        if not 0.0 <= self.min_survival < 1.0:
            raise OptionError(f"min_survival is {self.min_survival!r}; it must be at least 0 and below 1")
        self._common = Followers(self.width)

    def bind(self, target: TargetView) -> None:
        self._target = target
        if self.start is not None:
            self._begun = Followers.load(Path(self.start), self.width, about(target))
        self._common = Followers(self.width, self._begun)

    def begin(self, row: int, tokens: Sequence[int]) -> None:
        self._rows[row] = _RowState(self._common if self.shared else Followers(self.width, self._begun))

    def end(self, row: int) -> None:
        self._rows.pop(row, None)

    def save(self, path: Path) -> None:
        """Write what the requests saw so far, for `start`; it must be shared. Raises OSError."""
        self._common.save(path, about(self._target))

    def propose_row(self, context: DraftContext) -> DraftTree:
        row = self._rows[context.row]
        row.newest = (context.tokens[-2] if len(context.tokens) > 1 else -1, context.root)
        return grow(
            context.root,
            row.newest,
            lambda pair, _: row.candidates(pair),
            max_nodes=context.plan.max_nodes,
            max_depth=context.plan.max_depth,
            min_survival=self.min_survival,
        )

    def observe(self, row: int, tree: DraftTree, outcome: Outcome, scored: Scored, nodes: range) -> None:
        """Recycle what the target said after every node, and learn which ranks come true."""
        state = self._rows.get(row)
        if state is None:
            return
        before = state.newest[0] if state.newest[1] == tree.tokens[0] else -1
        pairs = [
            (tree.tokens[parent] if parent >= 0 else before, tree.tokens[n]) for n, parent in enumerate(tree.parents)
        ]
        state.judge(pairs, tree, outcome)
        seen = _best(scored.logits[nodes.start : nodes.stop], self.width)
        for pair, candidates in zip(pairs, seen, strict=True):
            state.followers.learn(*pair, candidates)


class _RowState:
    """A row's table, and how far each rank of it proved right; trust is a row's own. newest: the last two tokens."""

    def __init__(self, followers: Followers) -> None:
        self.followers = followers
        self.newest: Pair = (-1, -1)
        self._trust = Trust([PRIOR] * 2 * RANKS)

    def candidates(self, pair: Pair) -> Iterable[Candidate[Pair]]:
        for kind, raw, token in self._raw(pair):
            yield Candidate(token, self._trust.chance(kind, raw), (pair[1], token))

    def judge(self, pairs: Sequence[Pair], tree: DraftTree, outcome: Outcome) -> None:
        """Of all that could have been proposed along the kept path: whether it came true."""
        written = [*(tree.tokens[node] for node in outcome.path[1:]), outcome.next_token]
        for node, token in zip(outcome.path, written, strict=True):
            for kind, raw, after in self._raw(pairs[node]):
                self._trust.learn(kind, raw, after == token)
        self.newest = (pairs[outcome.path[-1]][1], outcome.next_token)

    def _raw(self, pair: Pair) -> Iterable[tuple[int, float, int]]:
        """(kind of trust, chance before trust, token) of every candidate after these two tokens."""
        order, found = self.followers.find(*pair)
        for rank, (token, chance) in enumerate(found):
            yield RANKS * (order - 1) + min(rank, RANKS - 1), chance**FLATTER, token


def about(target: TargetView) -> dict[str, Any]:
    """Whose tokens a saved table speaks of."""
    return {"target": target.info.name, "vocab_size": target.info.vocab_size}


def _best(logits: Tensor, width: int) -> list[Candidates]:
    """The likeliest tokens after every node, and their chances among themselves."""
    values, ids = top(logits, width)
    chances = values.float().softmax(-1)
    return [
        tuple((token, chance) for token, chance in zip(i, c, strict=True) if chance >= UNLIKELY)
        for i, c in zip(ids.tolist(), chances.tolist(), strict=True)
    ]


def top(logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """As `logits.topk(width)`, some times faster on long rows: the best lie in the pieces whose greatest are best."""
    size = logits.shape[-1]
    pieces = size // PIECE
    if pieces < 4 * width:
        values, ids = logits.topk(min(width, size), dim=-1)
        return values, ids
    cut = logits[:, : pieces * PIECE].unflatten(-1, (pieces, PIECE))
    chosen = cut.amax(-1).topk(width, dim=-1).indices
    values = torch.cat([cut.take_along_dim(chosen[..., None], 1).flatten(1), logits[:, pieces * PIECE :]], dim=-1)
    best, places = values.topk(width, dim=-1)
    inside = chosen.take_along_dim((places // PIECE).clamp(max=width - 1), 1) * PIECE + places % PIECE
    beyond = pieces * PIECE + places - width * PIECE
    return best, torch.where(places < width * PIECE, inside, beyond)
