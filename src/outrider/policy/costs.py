"""What a round costs, learned from the rounds themselves: seconds of a target pass by width, and means that fade.

The pass is not taken to be linear in its width: on real machines it steps where a kernel's tile is full. Its logarithm
is estimated at a few widths (knots) and straight between them. Prior: a measured curve (cost_model.py), or a slow
growth, with what is uncertain about it as a covariance: the machine's speed (it drifts, as machines are shared and
contexts grow), the growth, and roughness between neighbours. Each pass updates all knots (Kalman, 1960, in one observed
direction), so that what was seen of one width moves its neighbours and leaves far ones alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

KNOTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256)
START_GROWTH = 0.02  # before any wide pass was seen, a node is taken to add this much of a pass
NOISE = 0.10  # of one measured pass, relative
DRIFT = 0.01  # of the machine's speed from one pass to the next, relative
GROWTH_DRIFT = 0.002  # likewise, of its growth with the width
FADE = 0.97  # weight of a value relative to the one after it

Vector = NDArray[np.float64]
Curve = Callable[[float], float]


class PassCost:
    """Seconds of a target pass of N nodes. curve: measured seconds by width, or None to begin with an assumption."""

    def __init__(self, curve: Curve | None = None) -> None:
        self._started = curve is not None
        shape: Curve = curve or (lambda nodes: 1.0 + START_GROWTH * (nodes - 1))
        self._log = np.log([max(shape(knot), 1e-9) for knot in KNOTS])
        self._covariance = _prior(measured=curve is not None)
        self._table: list[float] = []
        self._widest = WIDEST if curve else 0

    @property
    def reach(self) -> int:
        """Nodes of the widest pass that should be tried: twice what was seen, so that a steep machine is met gently."""
        return 2 * self._widest + 2 if self._widest else 0

    def learn(self, num_nodes: int, seconds: float) -> None:
        """One pass. One many times dearer than expected (a stall of the machine) counts as a little dearer."""
        if seconds <= 0:
            return
        self._widest = max(self._widest, num_nodes)
        seen, at = math.log(seconds), _WEIGHTS[min(num_nodes, WIDEST)]
        if not self._started:
            self._log += seen - float(at @ self._log)
            self._started = True
        self._covariance += _FORGET
        toward = self._covariance @ at
        spread = float(at @ toward) + NOISE**2
        surprise = seen - float(at @ self._log)
        limit = 2.5 * math.sqrt(spread)
        self._log += toward * (min(max(surprise, -limit), limit) / spread)
        self._covariance -= np.outer(toward, toward) / spread
        self._table = []

    def of(self, num_nodes: int) -> float:
        """Expected seconds; 0 before the first pass. Wider than the widest knot: in proportion to it."""
        if not self._started:
            return 0.0
        if not self._table:
            self._table = np.exp(_WEIGHTS @ self._log).tolist()
        if num_nodes <= WIDEST:
            return self._table[num_nodes]
        return self._table[WIDEST] * num_nodes / WIDEST


@dataclass
class Mean:
    """A mean in which old values fade."""

    value: float = 0.0
    _weight: float = field(default=0.0, repr=False)

    @property
    def known(self) -> bool:
        return self._weight > 0

    def learn(self, value: float) -> None:
        """One value; one many times greater than the mean (a stall) counts as four times it."""
        if self._weight > 3 and self.value > 0:
            value = min(value, 4 * self.value)
        self._weight = self._weight * FADE + 1
        self.value += (value - self.value) / self._weight


WIDEST = KNOTS[-1]
_LOGS: Vector = np.log(np.array(KNOTS, dtype=np.float64))


def _weights(num_nodes: int) -> Vector:
    """How much each knot counts for a width: two neighbours, straight in the width's logarithm."""
    place = math.log(max(num_nodes, 1))
    above = min(max(int(np.searchsorted(_LOGS, place, side="left")), 1), len(KNOTS) - 1)
    share = (place - _LOGS[above - 1]) / (_LOGS[above] - _LOGS[above - 1])
    weights = np.zeros(len(KNOTS))
    weights[above - 1], weights[above] = 1.0 - share, share
    return weights


_WEIGHTS = np.stack([_weights(num_nodes) for num_nodes in range(WIDEST + 1)])  # (widths, knots); row 0 is row 1
_FORGET = DRIFT**2 + GROWTH_DRIFT**2 * np.outer(_LOGS, _LOGS)


def _prior(*, measured: bool) -> NDArray[np.float64]:
    """Covariance of the knots' logarithms: common speed, growth with the width, roughness of neighbours."""
    speed, growth, rough = (0.2, 0.03, 0.05) if measured else (0.5, 0.25, 0.12)
    apart = np.abs(_LOGS[:, None] - _LOGS[None, :])
    return speed**2 + growth**2 * np.outer(_LOGS, _LOGS) + rough**2 * np.exp(-apart / 0.3)
