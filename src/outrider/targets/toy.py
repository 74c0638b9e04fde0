"""A target whose laws are any Python function: enumerable, exact in float64, with nothing to download.

Example worked by hand: `next_logits = lambda tokens: one_hot((tokens[-1] + 1) % 3)` over 3 ids writes, after the
prompt [0], greedily 1 2 0 1 2 0 ... . A chain drafted as 1 2 1 under the root 0 is scored as: after 0 comes 1 (kept),
after 1 comes 2 (kept), after 2 comes 0, not 1 (rejected): path root-1-2, next token 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from outrider.errors import TargetError
from outrider.sampling import checks
from outrider.targets.base import TargetInfo
from outrider.types import Outcome, Packed, Scored

NextLogits = Callable[[list[int]], Tensor | Sequence[float]]


@dataclass
class FunctionTarget:
    """A target that asks `next_logits(tokens)` for the logits (V,) after a text. Raises what the function raises.

    part_logits(layers): the same of a part of its num_layers pretended layers, for drafters that want one.

    num_passes counts calls of `score`; num_scored the nodes in them.
    """

    next_logits: NextLogits
    vocab_size: int
    eos_token_ids: Sequence[int] = ()
    max_length: int = 4096
    max_rows: int = 8
    tokenizer: None = None
    part_logits: Callable[[Sequence[int]], NextLogits] | None = None
    num_layers: int = 0
    num_passes: int = field(default=0, init=False)
    num_scored: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        for name in ("vocab_size", "max_length", "max_rows"):
            setattr(self, name, checks.whole(1)(name, getattr(self, name)))
        self._rows: dict[int, list[int]] = {}
        self._scored: tuple[Packed, tuple[int, ...]] | None = None
        self.info = TargetInfo(
            name="toy",
            vocab_size=self.vocab_size,
            max_length=self.max_length,
            max_rows=self.max_rows,
            eos_token_ids=tuple(self.eos_token_ids),
            dtype=torch.float64,
        )

    def part(self, layers: Sequence[int]) -> "FunctionTarget":
        """See `Layered.part`."""
        if self.part_logits is None:
            raise TargetError("a function target without part_logits has no parts")
        twin = replace(self, next_logits=self.part_logits(layers), part_logits=None, num_layers=0)
        twin._rows = self._rows
        return twin

    def prefill(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        for row, new in zip(rows, tokens, strict=True):
            self._rows.setdefault(row, []).extend(new)

    def score(self, packed: Packed, want: Tensor | None = None, hidden_layers: Sequence[int] = ()) -> Scored:
        if hidden_layers:
            raise TargetError("a function target has no hidden layers")
        tokens = tuple(packed.tokens.tolist())
        wanted = range(packed.num_nodes) if want is None else want.tolist()
        logits = [self._ask(packed, tokens, node) for node in wanted]
        self._scored = (packed, tokens)
        self.num_passes += 1
        self.num_scored += packed.num_nodes
        empty = torch.zeros(0, self.vocab_size, dtype=torch.float64)
        return Scored(torch.stack(logits) if logits else empty)

    def commit(self, outcomes: Mapping[int, Outcome]) -> None:
        if self._scored is None:
            raise TargetError("commit before any score")
        packed, tokens = self._scored
        for row, outcome in outcomes.items():
            start = packed.starts[packed.row_ids.index(row)]
            self._rows.setdefault(row, []).extend(tokens[start + node] for node in outcome.path)
        self._scored = None

    def truncate(self, row: int, length: int) -> None:
        del self._rows.get(row, [])[length:]

    def copy(self, source: int, row: int, length: int) -> None:
        self._rows[row] = self._rows.get(source, [])[:length]

    def length(self, row: int) -> int:
        return len(self._rows.get(row, ()))

    def free(self, rows: Sequence[int]) -> None:
        for row in rows:
            self._rows.pop(row, None)

    def _ask(self, packed: Packed, tokens: tuple[int, ...], node: int) -> Tensor:
        row = int(packed.rows[node])
        path: list[int] = []
        while node >= 0:
            path.append(tokens[node])
            node = packed.parents[node]
        answer = self.next_logits([*self._rows.get(row, []), *reversed(path)])
        logits = torch.as_tensor(answer, dtype=torch.float64)
        if logits.shape != (self.vocab_size,):
            raise TargetError(f"next_logits returned shape {tuple(logits.shape)}; expected ({self.vocab_size},)")
        return logits
