"""Whether what was scored brought what was hoped for, by drafter: the last correction of its survivals.

Of many estimates the highest are taken, and among the highest those that err upwards are the most (the "optimizer's
curse": Smith and Winkler, 2006). Where a pass is nearly flat that costs nothing; where every node costs almost a token
it would cost more than speculation brings. So hoped and kept tokens of the nodes that were really scored are held
against each other, and survivals are scaled by their ratio. While nothing is scored the ratio goes back to 1, slowly.
"""

from dataclasses import dataclass

WEIGHT = 6.0  # hoped tokens that the belief in the estimates is worth
FADE = 0.97  # of old rounds with drafted nodes
FORGIVE = 0.998  # of what was seen, in a round without


@dataclass
class Hope:
    """Tokens hoped for and kept in recent rounds."""

    hoped: float = 0.0
    kept: float = 0.0

    @property
    def trust(self) -> float:
        """What a survival is multiplied by; at most 1."""
        return min(1.0, (self.kept + WEIGHT) / (self.hoped + WEIGHT))

    def learn(self, hoped: float, kept: float) -> None:
        """A round in which nodes with this sum of survivals (before the correction) were scored."""
        self.hoped = self.hoped * FADE + hoped
        self.kept = self.kept * FADE + kept

    def forgive(self) -> None:
        """A round in which none were."""
        self.hoped *= FORGIVE
        self.kept *= FORGIVE
