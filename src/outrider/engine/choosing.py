"""What the drafters of a row proposed, what of it is scored, and, in hindsight, how much of it came true."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from outrider.engine.row import Row, Taken
from outrider.policy.base import Choice, Offer
from outrider.types import DraftTree, Judged, Plan


@dataclass(eq=False)
class Share:
    """One row's part of a round. offers: what its drafters proposed; tree: what is scored of it.

    nodes: its entries in the pack. taken: None if the row failed.
    """

    row: Row
    plan: Plan
    tree: DraftTree
    offers: Mapping[str, DraftTree]
    nodes: slice = field(default_factory=lambda: slice(0))
    taken: Taken | None = None

    def take_choice(self, choice: Choice, tree: DraftTree) -> None:
        """The policy chose this tree of the offers."""
        self.tree = tree
        reason = f"{choice.reason} ({self.plan.reason})"
        self.plan = replace(self.plan, drafter=choice.drafter, max_depth=tree.depth, reason=reason)


def offers(share: Share) -> list[Offer]:
    """The row's proposals as numbers; without confidence where a decision that looks at drawn tokens would be wrong."""
    free_to_look = share.row.rule.shared_noise
    return [
        Offer(name, tree.parents, tree.confidence if free_to_look or tree.draft_probs is None else None)
        for name, tree in share.offers.items()
        if tree.num_drafted
    ]


def chosen_tree(share: Share, choice: Choice) -> DraftTree:
    """The part of the row's offers that is chosen; notes of its drafters are kept in any case."""
    notes = "; ".join(tree.note for tree in share.offers.values() if tree.note)
    chosen = share.offers[choice.drafter].keep(choice.nodes) if choice.drafter != "none" else share.tree.keep((0,))
    return replace(chosen, note=notes) if chosen.note != notes else chosen


def judge(shares: Sequence[Share]) -> tuple[Judged, ...]:
    """Every proposal of the rows that let the policy choose, in hindsight, scored or not."""
    return tuple(
        Judged(share.row.id, name, tree.num_drafted, tree.judge(share.taken.token_ids))
        for share in shares
        if share.taken and share.plan.revise
        for name, tree in share.offers.items()
    )
