"""Token recycling: the target's best next candidates, seen in earlier passes, are drafted when their token comes up.

Every scored node, kept or not, tells what the target would have put after its token; that is kept in a table of a few
candidates per token, and a tree is grown from it. No model, no training. Source: Luo et al., "Turning Trash into
Treasure: Accelerating Inference of Large Language Models with Token Recycling" (2024).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from outrider.drafters.base import DraftContext, Drafter
from outrider.drafters.growth import Candidate, grow
from outrider.drafters.trust import Trust
from outrider.errors import OptionError
from outrider.types import DraftTree, Outcome, Scored

Table = dict[int, tuple[int, ...]]  # token: the likeliest next tokens, best first
PRIOR = (0.45, 0.15, 0.08, 0.05, 0.04, 0.03, 0.02, 0.02)


@dataclass
class RecycleDrafter(Drafter):
    """width: candidates kept per token, at most 8. min_survival: a token less likely to be kept is not drafted.

    shared: one table for all requests (learns faster, but what one request saw shows in another's drafts).
    """

    name: ClassVar[str] = "recycle"
    free: ClassVar[bool] = True
    watches_logits: ClassVar[bool] = True
    preferred_depth: ClassVar[int] = 6
    preferred_nodes: ClassVar[int] = 24

    width: int = 8
    min_survival: float = 0.02
    shared: bool = False
    _rows: dict[int, "_RowState"] = field(default_factory=dict[int, "_RowState"], init=False, repr=False)
    _common: Table = field(default_factory=Table, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.width, bool) or not 1 <= self.width <= len(PRIOR):
            raise OptionError(f"width is {self.width!r}; it must lie between 1 and {len(PRIOR)}")
        if not 0.0 <= self.min_survival < 1.0:
            raise OptionError(f"min_survival is {self.min_survival!r}; it must be at least 0 and below 1")

    def begin(self, row: int, tokens: Sequence[int]) -> None:
        self._rows[row] = _RowState(self._common if self.shared else {})

    def end(self, row: int) -> None:
        self._rows.pop(row, None)

    def propose_row(self, context: DraftContext) -> DraftTree:
        row = self._rows[context.row]

        def candidates(token: int, depth: int) -> Iterable[Candidate[int]]:
            for rank, after in enumerate(row.table.get(token, ())):
                yield Candidate(after, row.trust.chance(rank, 1.0), after)

        return grow(
            context.root,
            context.root,
            candidates,
            max_nodes=context.plan.max_nodes,
            max_depth=context.plan.max_depth,
            min_survival=self.min_survival,
        )

    def observe(self, row: int, tree: DraftTree, outcome: Outcome, scored: Scored, nodes: range) -> None:
        """Recycle what the target said after every node, and learn which ranks come true."""
        state = self._rows.get(row)
        if state is None:
            return
        state.learn(tree, outcome)
        logits = scored.logits[nodes.start : nodes.stop]
        best = logits.topk(min(self.width, logits.shape[-1]), dim=-1).indices.tolist()
        for token, following in zip(tree.tokens, best, strict=True):
            state.table[token] = tuple(following)


class _RowState:
    """A row's table, and how often each rank of it proved right; trust is a row's own."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.trust = Trust(PRIOR)

    def learn(self, tree: DraftTree, outcome: Outcome) -> None:
        written = [*(tree.tokens[node] for node in outcome.path[1:]), outcome.next_token]
        for node, token in zip(outcome.path, written, strict=True):
            for rank, after in enumerate(self.table.get(tree.tokens[node], ())):
                self.trust.learn(rank, 1.0, after == token)
