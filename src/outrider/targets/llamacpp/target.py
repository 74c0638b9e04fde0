"""A GGUF model as a target: one llama_decode per round for all rows, trees as sequences that share their text.

Kernels of llama.cpp are chosen by the width of the pass and activations are rounded to 8 bits, so results are equal up
to that rounding ("near-tie") and not in every bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from outrider.errors import CapacityError, ModelError, TargetError, UnsupportedError
from outrider.targets.base import Exactness, TargetInfo
from outrider.targets.hf.exact import differences
from outrider.targets.llamacpp.batch import Batch
from outrider.targets.llamacpp.context import Context
from outrider.targets.llamacpp.layout import Leaves, lay_out
from outrider.targets.llamacpp.sequences import Sequences
from outrider.targets.llamacpp.tokenizer import LlamaTokenizer
from outrider.types import Outcome, Packed, Scored

REASON = "llama.cpp chooses its kernels by the width of the pass"
NO_SLOT = 1  # llama_decode: the cache has no room


@dataclass(frozen=True)
class _Drafted:
    """The last scored pack: its rows' places and their trees' leaves."""

    packed: Packed
    leaves: Mapping[int, Leaves]


class LlamaTarget:
    """`targets.base.Target` over a llama.cpp context. Made by `loader.load_llamacpp`. Raises ModelError."""

    def __init__(self, context: Context, info: TargetInfo, tokenizer: LlamaTokenizer, exact: Exactness | None) -> None:
        self._context = context
        self._native = context.native
        self._tokenizer = tokenizer
        self._batch = Batch(context.native, context.options.batch_size)
        branches = context.num_sequences - info.max_rows
        self._sequences = Sequences(context.native, context.pointer, info.max_rows, branches, context.facts.window)
        self._drafted: _Drafted | None = None
        self.info = replace(info, exact="near-tie", exact_reason=REASON)
        if exact == "bitwise":
            self.info = self._insist()

    @property
    def tokenizer(self) -> LlamaTokenizer:
        return self._tokenizer

    def prefill(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """Append tokens[i] to rows[i], at most batch_size at once. If it raises, the rows are as they were."""
        todo = [(row, list(new)) for row, new in zip(rows, tokens, strict=True) if new]
        for row, new in todo:
            self._check_room(row, self.length(row) + len(new))
        self._forget_drafted()
        before = {row: self.length(row) for row, _ in todo}
        try:
            for row, new in todo:
                self._append(row, new)
        except BaseException:
            for row, length in before.items():
                self._sequences.drop_drafted(row)
                self._sequences.truncate(row, length)
            raise

    def score(self, packed: Packed, want: Int[Tensor, "M"] | None = None, hidden_layers: Sequence[int] = ()) -> Scored:
        """See `Target.score`. Raises TargetError, CapacityError; UnsupportedError for hidden layers."""
        if hidden_layers:
            raise UnsupportedError(
                "llama.cpp does not give hidden states of layers; load with backend='torch' for that"
            )
        positions: list[int] = packed.positions.tolist()
        self._check_pack(packed, positions)
        self._forget_drafted()
        leaves = {row: self._begin(packed, index) for index, row in enumerate(packed.row_ids)}
        self._drafted = _Drafted(packed, leaves)
        sequences = [ids for row in packed.row_ids for ids in leaves[row].sequences]
        wanted = True if want is None else _flags(want.tolist(), packed.num_nodes)
        try:
            self._decode(packed.tokens.tolist(), positions, sequences, wanted)
        except BaseException:
            self._forget_drafted()
            raise
        return Scored(self._logits(packed.num_nodes, want))

    def commit(self, outcomes: Mapping[int, Outcome]) -> None:
        """Keep each row's path of the last score; drop all other nodes. Raises TargetError."""
        drafted = self._drafted
        if drafted is None:
            raise TargetError("commit without a score before it")
        if unknown := outcomes.keys() - drafted.leaves.keys():
            raise TargetError(f"commit names row {min(unknown)}, which was not in the last score, or was freed")
        for row, leaves in drafted.leaves.items():
            if row in outcomes:
                path, base = outcomes[row].path, self.length(row)
                self._sequences.keep(row, leaves.under[path[-1]], base + len(path), base + leaves.first_depth)
            else:
                self._sequences.drop_drafted(row)
        self._drafted = None

    def truncate(self, row: int, length: int) -> None:
        self._sequences.truncate(row, length)

    def copy(self, source: int, row: int, length: int) -> None:
        """See `Target.copy`. Raises TargetError if the source holds fewer tokens."""
        self._check_room(row, length)
        if length > self.length(source):
            raise TargetError(f"row {source} holds {self.length(source)} tokens, not {length}")
        self._sequences.copy(source, row, length)

    def length(self, row: int) -> int:
        return self._sequences.length(row)

    def free(self, rows: Sequence[int]) -> None:
        for row in rows:
            self._sequences.free(row)
            if self._drafted and row in self._drafted.leaves:
                kept = {other: leaves for other, leaves in self._drafted.leaves.items() if other != row}
                self._drafted = replace(self._drafted, leaves=kept)

    def _append(self, row: int, tokens: list[int]) -> None:
        for start in range(0, len(tokens), self._batch.capacity):
            piece, base = tokens[start : start + self._batch.capacity], self.length(row)
            self._sequences.begin(row, 1)
            self._decode(piece, range(base, base + len(piece)), [(row,)] * len(piece), False)
            self._sequences.grow(row, base + len(piece))

    def _begin(self, packed: Packed, index: int) -> Leaves:
        start, end = packed.starts[index], packed.starts[index + 1]
        return lay_out(packed.row_ids[index], packed.parents[start:end], start, self._sequences.begin)

    def _decode(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[Sequence[int]],
        wanted: bool | Sequence[bool],
    ) -> None:
        self._context.follow_threads()
        status = self._native.llama_decode(
            self._context.pointer, self._batch.fill(tokens, positions, sequences, wanted)
        )
        if status == NO_SLOT:
            raise CapacityError(
                f"the cache has no room for {len(tokens)} more tokens: its {self._context.num_cells} places hold "
                f"{self._sequences.total}; raise the backend option cache_tokens, or lower max_rows or max_length"
            )
        if status:
            raise TargetError(f"llama.cpp ended a pass of {len(tokens)} tokens with status {status}")

    def _logits(self, num_nodes: int, want: Tensor | None) -> Tensor:
        """(M, V), copied: the next pass overwrites llama.cpp's own. It answers each wanted node once, in pack order."""
        size = self.info.vocab_size
        if want is None:
            return self._context.logits(num_nodes)[:, :size].clone()
        order = sorted(set(want.tolist()))
        places = torch.tensor([order.index(node) for node in want.tolist()], dtype=torch.long)
        return self._context.logits(len(order))[places, :size]

    def _forget_drafted(self) -> None:
        self._sequences.drop_all_drafted()
        self._drafted = None

    def _check_pack(self, packed: Packed, positions: Sequence[int]) -> None:
        if len(set(packed.row_ids)) != len(packed.row_ids):
            raise TargetError(f"a row appears twice in a pass: {packed.row_ids}")
        if packed.num_nodes > self._batch.capacity:
            raise TargetError(
                f"a pass of {packed.num_nodes} nodes is more than batch_size={self._batch.capacity}; raise the backend "
                "option batch_size, or draft fewer nodes"
            )
        for row, start in zip(packed.row_ids, packed.starts, strict=False):  # the last start is the end
            self._check_room(row, 0)
            if (root := positions[start]) != self.length(row):
                raise TargetError(f"row {row} holds {self.length(row)} tokens; its root was placed at {root}")
        if (last := max(positions)) >= self.info.max_length:
            raise TargetError(f"a node at position {last} is beyond the limit of {self.info.max_length} tokens")

    def _check_room(self, row: int, length: int) -> None:
        if not 0 <= row < self.info.max_rows:
            raise TargetError(f"row {row} does not exist; this target has rows 0 to {self.info.max_rows - 1}")
        if length > self.info.max_length:
            raise TargetError(f"row {row} would hold {length} tokens; the limit is {self.info.max_length}")

    def _insist(self) -> TargetInfo:
        """The facts if passes of all widths agree in every bit here. Raises ModelError."""
        info = self.info
        if found := differences(self, info.vocab_size, info.max_rows, info.device, info.max_length):
            raise ModelError(
                f"{info.name} is not exact to the bit under llama.cpp: the test at load found other bits for "
                f"{', '.join(found)}; backend='torch' is, exact='near-tie' accepts that"
            )
        return replace(info, exact="bitwise", exact_reason="")


def _flags(wanted: Sequence[int], count: int) -> list[bool]:
    flags = [False] * count
    for node in wanted:
        flags[node] = True
    return flags
