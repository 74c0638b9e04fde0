"""What rounds cost on one machine with one target and its drafters, measured beforehand: plain numbers, for JSON.

A pass of N nodes over B rows that hold T tokens each takes
    table(N) + row * (B - 1) + (row_token * B + node_token * N) * (T - context)        seconds,
table being straight between measured widths (it steps where kernels do) and straight on beyond the last two. row_token
is reading a row's keys and values, node_token what every node computes with them.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from outrider.errors import OptionError
from outrider.policy.records import DrafterShape


@dataclass(frozen=True)
class DraftCost:
    """Seconds of one drafter. ask: for one row (free drafters); level: of one level; read: per token of a new text.

    level_row: what a further row adds to a level.
    """

    free: bool
    ask: float = 0.0
    level: float = 0.0
    read: float = 0.0
    level_row: float = 0.0

    def seconds(self, depth: float, num_rows: int = 1) -> float:
        """Of drafting `depth` levels (a mean may lie between whole ones) for `num_rows` rows."""
        if self.free:
            return self.ask * num_rows
        return (self.level + self.level_row * (num_rows - 1)) * depth


@dataclass(frozen=True)
class CostModel:
    """table: (width, seconds) of a pass over one row with `context` tokens. Everything else in seconds.

    row: of a further row at equal width. row_token, node_token: of a further token of context, per row and per node.
    overhead: of a round of one row beside drafting and scoring; overhead_row: of a further row.
    """

    table: tuple[tuple[int, float], ...]
    context: int
    row: float = 0.0
    row_token: float = 0.0
    node_token: float = 0.0
    overhead: float = 0.0
    overhead_row: float = 0.0
    drafters: Mapping[str, DraftCost] = field(default_factory=dict[str, DraftCost])

    def __post_init__(self) -> None:
        widths = [width for width, _ in self.table]
        if len(widths) < 2 or widths != sorted(set(widths)) or min(s for _, s in self.table) <= 0:
            raise OptionError(f"a cost table needs two or more rising widths with seconds above 0, not {self.table}")

    def pass_seconds(self, num_nodes: float, num_rows: int = 1, context: float | None = None) -> float:
        """Of a target pass over `num_nodes` nodes of `num_rows` rows that hold `context` tokens each."""
        more = 0.0 if context is None else context - self.context
        one = self._table(num_nodes)
        held = (self.row_token * num_rows + self.node_token * num_nodes) * more
        return max(0.5 * one, one + self.row * (num_rows - 1) + held)

    def draft_seconds(self, drafter: str, depth: int, num_rows: int = 1) -> float:
        """Of drafting `depth` levels for `num_rows` rows; 0 for a drafter that was not measured."""
        cost = self.drafters.get(drafter)
        return 0.0 if cost is None or depth == 0 else cost.seconds(depth, num_rows)

    def rest_seconds(self, num_rows: int = 1) -> float:
        """Of a round beside drafting and scoring."""
        return self.overhead + self.overhead_row * (num_rows - 1)

    def round_seconds(
        self, num_nodes: float, drafter: str, depth: int, num_rows: int = 1, context: float | None = None
    ) -> float:
        """Of a whole round."""
        passes = self.pass_seconds(num_nodes, num_rows, context)
        return passes + self.draft_seconds(drafter, depth, num_rows) + self.rest_seconds(num_rows)

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
