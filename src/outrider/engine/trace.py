"""One round as an observer sees it: what was drafted, what the target thought of it, what was kept, how long it took.

Made only if an engine has an observer. The target's opinion is its raw law (before a request's settings).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor

from outrider.engine.row import Row, Taken
from outrider.errors import EngineError
from outrider.types import DraftTree, PhaseSeconds, Plan


@dataclass(frozen=True)
class RowTrace:
    """One row's part. tokens, parents, confidence, target_best, target_chance have one entry per node, root first.

    target_best[n]: the target's likeliest token after node n. target_chance[n]: the chance it gave node n's own token
    (1 for the root); both are empty if no observer is detailed. path: kept nodes. texts: what each delivered token
    released. finish_reason: if it ended here. sources: whose token each node is (empty: the drafter's); accepted_by:
    kept tokens by whose they were.
    """

    request_id: int
    cache_row: int
    drafter: str
    max_depth: int
    max_nodes: int
    reason: str
    position: int
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    confidence: tuple[float, ...] | None
    target_best: tuple[int, ...]
    target_chance: tuple[float, ...]
    path: tuple[int, ...]
    next_token: int
    delivered: tuple[int, ...]
    texts: tuple[str, ...]
    origins: tuple[str, ...]
    finish_reason: str | None
    sources: tuple[str, ...] = ()
    accepted_by: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class RoundTrace:
    """One round of the engine, rows in batch order."""

    index: int
    rows: tuple[RowTrace, ...]
    seconds: PhaseSeconds
    num_nodes: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as one JSON line of a trace file holds them."""
        return asdict(self)


def trace_row(
    row: Row, plan: Plan, tree: DraftTree, taken: Taken | None, logits: Float[Tensor, "n V"] | None
) -> RowTrace:
    """One row's trace, before its round is applied. logits: of its own nodes; None if nobody needs the details."""
    if taken is None:
        raise EngineError(f"request {row.id} took nothing in this round")
    return RowTrace(
        request_id=row.id,
        cache_row=row.cache_row,
        drafter=plan.drafter,
        max_depth=plan.max_depth,
        max_nodes=plan.max_nodes,
        reason=plan.reason,
        position=len(row.tokens),
        tokens=tree.tokens,
        parents=tree.parents,
        confidence=tree.confidence,
        target_best=() if logits is None else tuple(logits.argmax(-1).tolist()),
        target_chance=() if logits is None else _chances(tree, logits),
        path=taken.outcome.path,
        next_token=taken.outcome.next_token,
        delivered=tuple(taken.token_ids),
        texts=tuple(event.text for event in taken.events),
        origins=tuple(event.origin or "" for event in taken.events),
        finish_reason=taken.finish_reason,
        sources=tree.sources,
        accepted_by=taken.accepted_by(tree, plan.drafter),
    )


def _chances(tree: DraftTree, logits: Tensor) -> tuple[float, ...]:
    if tree.num_drafted == 0:
        return (1.0,)
    parents = list(tree.parents[1:])
    log_probs = logits[parents].float().log_softmax(-1)
    return (1.0, *log_probs[range(len(parents)), list(tree.tokens[1:])].exp().tolist())
