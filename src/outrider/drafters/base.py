"""What the engine asks of a drafter. A drafter never calls the target and decides nothing about acceptance.

A new drafter is one file in this folder: a dataclass named in `registry.py`'s sense by its `name`, whose fields are
its options. Subclass `Drafter` and write `propose_row`; override the rest only where there is state to keep.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from outrider.sampling.noise import Noise, Stream
from outrider.sampling.params import SamplingParams
from outrider.targets.base import Layered, TargetInfo, Tokenizer
from outrider.types import DraftTree, Outcome, Plan, Scored


@dataclass(frozen=True)
class DraftContext:
    """All that a drafter may know of a row when it proposes.

    tokens: every committed token, prompt first; the last is the root. Do not change it.
    noise, stream: draw sampled tokens with these and nothing else. Under the `identical` rule they are the target's own
    (which makes draft and target agree more often), private otherwise.
    want_probs: the rule needs draft_probs if tokens are drawn. chains_only: branches would be cut off.
    cache_row: the target's own row of this text, for a drafter that was given a part of the target.
    """

    row: int
    tokens: Sequence[int]
    num_prompt: int
    params: SamplingParams
    noise: Noise
    stream: Stream
    plan: Plan
    want_probs: bool
    chains_only: bool = False
    cache_row: int = -1

    @property
    def root(self) -> int:
        return self.tokens[-1]


@dataclass(frozen=True)
class TargetView:
    """What a drafter may know of the target when it is bound to one. layered: gives parts of it, if it has any."""

    info: TargetInfo
    tokenizer: Tokenizer | None = None
    layered: Layered | None = None


class Drafter:
    """Base of all drafters: stateless until a subclass keeps something."""

    name: ClassVar[str]
    free: ClassVar[bool] = False  # proposing needs no model pass, so a policy may ask it in every round
    watches_logits: ClassVar[bool] = False  # `observe` looks at the target's logits
    needs_target_cache: ClassVar[bool] = False  # drafts with the target's own cache of the row
    preferred_depth: ClassVar[int] = 5  # of a fixed policy that is not told otherwise
    preferred_nodes: ClassVar[int] = 0  # likewise; 0: as many as the depth

    def bind(self, target: TargetView) -> None:
        """Called once before use, with what is known of the target; raise PairingError if it does not fit."""

    def begin(self, row: int, tokens: Sequence[int]) -> None:
        """A request starts on this row; tokens is its prompt."""

    def propose(self, contexts: Sequence[DraftContext]) -> list[DraftTree]:
        """One tree per context, at most plan.max_depth deep with plan.max_nodes drafted nodes; a bare root is fine."""
        return [self.propose_row(context) for context in contexts]

    def propose_row(self, context: DraftContext) -> DraftTree:
        """The tree for one row; override this or `propose`."""
        raise NotImplementedError

    def observe(self, row: int, tree: DraftTree, outcome: Outcome, scored: Scored, nodes: range) -> None:
        """What became of the row's tree; `nodes` are its entries in scored (valid only during the call)."""

    def end(self, row: int) -> None:
        """The row's request is over; forget it. Ending an unknown row is fine."""

    @property
    def held_bytes(self) -> int:
        """What `release` would give back: 0 if that is not worth it."""
        return 0

    def release(self) -> None:
        """Give back the memory of a model, say. Every row has ended, and it will not be asked again."""
