"""What rounds cost on one machine with one target and its drafters, measured beforehand: plain numbers, for JSON.

A pass of N nodes over B rows that hold T tokens each takes
    table(N) * (1 + row_growth * (B - 1)) * (1 + context_growth * (T - context))       seconds,
table being straight between measured widths (it steps where kernels do) and straight on beyond the last two.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from outrider.errors import OptionError
from outrider.policy.records import DrafterShape


@dataclass(frozen=True)
class DraftCost:
    """Seconds of one drafter. ask: for one row (free drafters); level: of one level; read: per token of a new text."""

    free: bool
    ask: float = 0.0
    level: float = 0.0
    read: float = 0.0


@dataclass(frozen=True)
class CostModel:
    """table: (width, seconds) of a pass over one row with `context` tokens. overhead: seconds of a round beside it."""

    table: tuple[tuple[int, float], ...]
    context: int
    row_growth: float = 0.0
    context_growth: float = 0.0
    overhead: float = 0.0
    drafters: Mapping[str, DraftCost] = field(default_factory=dict[str, DraftCost])

    def __post_init__(self) -> None:
        widths = [width for width, _ in self.table]
        if len(widths) < 2 or widths != sorted(set(widths)) or min(s for _, s in self.table) <= 0:
            raise OptionError(f"a cost table needs two or more rising widths with seconds above 0, not {self.table}")

    def pass_seconds(self, num_nodes: float, num_rows: int = 1, context: float | None = None) -> float:
        """Of a target pass over `num_nodes` nodes of `num_rows` rows that hold `context` tokens each."""
        more = 0.0 if context is None else context - self.context
        rows = 1 + self.row_growth * (num_rows - 1)
        return self._table(num_nodes) * rows * max(0.5, 1 + self.context_growth * more)

    def draft_seconds(self, drafter: str, depth: int, num_rows: int = 1) -> float:
        """Of drafting `depth` levels for `num_rows` rows; 0 for a drafter that was not measured."""
        cost = self.drafters.get(drafter)
        if cost is None or depth == 0:
            return 0.0
        return cost.ask * num_rows if cost.free else cost.level * depth

    def round_seconds(
        self, num_nodes: float, drafter: str, depth: int, num_rows: int = 1, context: float | None = None
    ) -> float:
        """Of a whole round."""
        passes = self.pass_seconds(num_nodes, num_rows, context)
        return passes + self.draft_seconds(drafter, depth, num_rows) + self.overhead

    def curve(self) -> Callable[[float], float]:
        """Seconds of a pass by width, for one row."""
        return self._table

    def shape(self, name: str, shape: DrafterShape) -> DrafterShape:
        """The drafter's shape with what was measured of it."""
        cost = self.drafters.get(name)
        return replace(shape, ask=cost.ask, level=cost.level, read=cost.read) if cost else shape

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "CostModel":
        """Raises KeyError, TypeError or OptionError for what is no cost model."""
        values = dict(data)
        values["table"] = tuple((int(width), float(seconds)) for width, seconds in values["table"])
        values["drafters"] = {name: DraftCost(**cost) for name, cost in values.get("drafters", {}).items()}
        return cls(**values)

    def _table(self, num_nodes: float) -> float:
        widths = [width for width, _ in self.table]
        above = min(max(bisect_left(widths, num_nodes), 1), len(widths) - 1)
        (low, low_seconds), (high, high_seconds) = self.table[above - 1], self.table[above]
        share = (max(num_nodes, widths[0]) - low) / (high - low)
        return max(1e-9, low_seconds + share * (high_seconds - low_seconds))
