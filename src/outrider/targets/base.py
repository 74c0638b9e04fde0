"""What the engine asks of a target: prefill, score, commit, free. Nothing here knows that drafters exist.

The cache rows belong to the target and are named by small integers that the engine hands out (0 .. max_rows-1).
A row's length is the number of committed tokens that its cache holds (invariant I1: all but the newest).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import torch

from outrider.types import Outcome, Packed, Scored

Exactness = Literal["bitwise", "near-tie"]


@dataclass(frozen=True)
class TargetInfo:
    """Facts about a target that never change after loading.

    vocab_size: ids 0 .. vocab_size-1 are real tokens; logits have exactly that many columns (padding rows are cut off).
    max_length: most tokens (prompt and output) a row can hold. exact: "bitwise" if a row's result provably does not
    depend on its neighbours in the pass (tested at load), else "near-tie", with the reason in exact_reason.
    forward: which of several ways a pass is computed, where the target has several.
    quantize: "int8" if the weights are not the checkpoint's own. generation_defaults: what the model's
    generation_config sets, under SamplingParams names. rounding_unit: relative size of one rounding step inside a pass,
    where it is coarser than dtype's (activations of 8 bits, say).
    """

    name: str
    vocab_size: int
    max_length: int
    max_rows: int
    eos_token_ids: tuple[int, ...] = ()
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    exact: Exactness = "bitwise"
    exact_reason: str = ""
    forward: str = ""
    quantize: str | None = None
    generation_defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rounding_unit: float | None = None


class Tokenizer(Protocol):
    """The little that Outrider needs of a tokenizer."""

    @property
    def name(self) -> str: ...

    def vocabulary(self) -> Mapping[str, int]:
        """Every token's text, as the vocabulary writes it, and its id."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]: ...


class Target(Protocol):
    """The model whose words are wanted."""

    @property
    def info(self) -> TargetInfo: ...

    @property
    def tokenizer(self) -> Tokenizer | None: ...

    def prefill(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """Append tokens[i] to the cache of rows[i]; a row not seen before, or freed, starts empty."""
        ...

    def score(self, packed: Packed, want: torch.Tensor | None = None, hidden_layers: Sequence[int] = ()) -> Scored:
        """Logits after each wanted node (None: all nodes, in order), each node seeing the row's cache and its own path.

        Commits nothing: scoring again, or committing a part, starts from the same cache.
        """
        ...

    def commit(self, outcomes: Mapping[int, Outcome]) -> None:
        """Keep each row's path of the last score in the cache; all its other nodes, and rows not named, are dropped."""
        ...

    def truncate(self, row: int, length: int) -> None:
        """Drop the newest entries of the row's cache beyond `length`; a shorter cache stays as it is."""
        ...

    def copy(self, source: int, row: int, length: int) -> None:
        """The free row `row` becomes a copy of the first `length` tokens of `source`."""
        ...

    def length(self, row: int) -> int:
        """Committed tokens in the row's cache; 0 for a row that is free."""
        ...

    def free(self, rows: Sequence[int]) -> None:
        """Forget these rows. Freeing a free row is fine."""
        ...


@runtime_checkable
class Layered(Protocol):
    """A target that can also run with some of its layers: the rough and cheap self that the `self` drafter uses."""

    @property
    def num_layers(self) -> int:
        """Layers that it has; fewer than 2 if it has no parts."""
        ...

    def part(self, layers: Sequence[int]) -> Target:
        """These layers (increasing, 0 the first) as a target over the same weights and the same cache rows.

        It reads what the whole target committed. What it commits itself is in its own layers only, so every row must
        be truncated to its former length before the whole target is used again. Raises TargetError.
        """
        ...
