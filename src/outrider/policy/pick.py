"""Which of a row's offers is best, with the survival of each of its nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.policy.base import Choice, Offer
from outrider.policy.cut import Cut, best_cut, survivals
from outrider.policy.records import Record


@dataclass(frozen=True)
class Picked:
    """A row's best offer, and the survival of each of its nodes. trust: what they are scaled by, already in them."""

    offer: Offer | None = None
    survival: tuple[float, ...] = ()
    trust: float = 1.0

    def alive(self) -> list[tuple[int, float]]:
        return list(enumerate(self.survival))[1:]

    def hoped(self, nodes: Sequence[int]) -> float:
        """Kept tokens that these nodes (the root first) promise, before the correction by trust."""
        return sum(self.survival[node] for node in nodes[1:]) / self.trust

    def choice(self, nodes: tuple[int, ...], cut: Cut, gain: float) -> Choice:
        if self.offer is None:
            return Choice(reason="nothing was offered")
        offered = f"{self.offer.drafter} offered {len(self.survival) - 1}"
        first = f"first kept with chance {max(self.survival[1:]):.2f}"
        if len(nodes) == 1:
            return Choice(reason=f"{offered}, {first}: not worth its place")
        hoped = 1 + sum(self.survival[node] for node in nodes[1:])
        reason = f"{offered}, scored {len(nodes) - 1}, {first}: {hoped:.2f} tokens hoped for, {gain:.2f}x plain"
        return Choice(self.offer.drafter, nodes, reason)


def pick(
    offers: Sequence[Offer],
    look: Callable[[Offer], Picked],
    num_rows: int,
    seconds: Callable[[int], float],
    worth: float,
) -> Picked:
    """The offer that would bring this row most if its nodes alone joined the pass. look: an offer with survivals."""
    if len(offers) == 1:
        return look(offers[0])
    best, best_value = Picked(), float("-inf")
    for offer in offers:
        picked = look(offer)
        cut = best_cut(sorted(picked.survival[1:], reverse=True), num_rows, seconds, worth=worth)
        value = cut.tokens - worth * cut.seconds
        if value > best_value:
            best, best_value = picked, value
    return best


def look_at(offer: Offer, record: Record, row: int, warmth: int) -> Picked:
    """The offer with the survival of its nodes, as the drafter's record lets expect."""
    trust = record.hope.trust
    root, *rest = survivals(offer.parents, _chances(offer, record, row, warmth))
    return Picked(offer, (root, *(trust * alive for alive in rest)), trust)


def _chances(offer: Offer, record: Record, row: int, warmth: int) -> list[float]:
    """Chance of every node given its parent. Siblings without confidence share their level's, earlier ones more."""
    depths, ranks, chances = [0], dict[int, int](), [1.0]
    known: dict[tuple[int, float | None], float] = {}
    for node, parent in enumerate(offer.parents[1:], 1):
        depths.append(depths[parent] + 1)
        ranks[parent] = ranks.get(parent, 0) + 1
        said = offer.confidence[node] if offer.confidence else None
        case = (record.stage(row, depths[parent]), said)
        if case not in known:
            known[case] = record.chance(row, warmth, depths[parent], said)
        chance = known[case]
        chances.append(chance if said is not None else chance * 0.5 ** (ranks[parent] - 1))
    return chances
