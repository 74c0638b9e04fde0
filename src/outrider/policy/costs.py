"""What a round costs, learned from the rounds themselves: seconds of a target pass by width, of drafting, of the rest.

A pass of N nodes is taken to cost a + b N (docs: the pass's growth with its width); a and b are fitted by least squares
in which old passes fade, because contexts grow and machines are shared.
"""

from dataclasses import dataclass, field

FADE = 0.97  # weight of a pass relative to the one after it
START_GROWTH = 0.02  # before any wide pass was seen, a node is taken to add this much of a pass
PRIOR_WEIGHT = 0.02  # of that assumption, in passes of width 16


@dataclass
class PassCost:
    """Seconds of a target pass of N nodes."""

    _weight: float = 0.0
    _nodes: float = 0.0
    _squares: float = 0.0
    _seconds: float = 0.0
    _products: float = 0.0

    def learn(self, num_nodes: int, seconds: float) -> None:
        """One pass. A pass many times dearer than expected (a stall of the machine) counts as a few times dearer."""
        if self._weight > 3:
            seconds = min(seconds, 4 * self.of(num_nodes))
        for name, value in self._moments(num_nodes, seconds):
            setattr(self, name, getattr(self, name) * FADE + value)

    def of(self, num_nodes: float) -> float:
        """Expected seconds; 0 before the first pass."""
        base, growth = self._line()
        return base + growth * num_nodes

    @property
    def growth(self) -> float:
        """Expected seconds that one more node adds."""
        return self._line()[1]

    def _moments(self, nodes: float, seconds: float) -> tuple[tuple[str, float], ...]:
        return (
            ("_weight", 1.0),
            ("_nodes", nodes),
            ("_squares", nodes * nodes),
            ("_seconds", seconds),
            ("_products", nodes * seconds),
        )

    def _line(self) -> tuple[float, float]:
        """a and b, with a weak pull of b towards START_GROWTH of a pass."""
        if self._weight == 0:
            return 0.0, 0.0
        mean_nodes, mean_seconds = self._nodes / self._weight, self._seconds / self._weight
        spread = self._squares - self._weight * mean_nodes**2
        together = self._products - self._weight * mean_nodes * mean_seconds
        pull = PRIOR_WEIGHT * 16**2
        assumed = START_GROWTH * mean_seconds / (1 + START_GROWTH * mean_nodes)
        growth = max(0.0, (together + pull * assumed) / (spread + pull))
        return max(0.0, mean_seconds - growth * mean_nodes), growth


@dataclass
class Mean:
    """A mean in which old values fade."""

    value: float = 0.0
    _weight: float = field(default=0.0, repr=False)

    def learn(self, value: float) -> None:
        self._weight = self._weight * FADE + 1
        self.value += (value - self.value) / self._weight
