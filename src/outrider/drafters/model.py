"""A smaller model of the same vocabulary drafts chains, one token per pass of its own.

Its cache follows the committed text by itself: before drafting it drops what was rejected and feeds the committed
tokens that it lacks (one, or two after a full acceptance). Source: Leviathan et al. (2023), Chen et al. (2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from outrider.drafters.base import DraftContext, Drafter, TargetView
from outrider.drafters.pairing import check_same_vocabulary
from outrider.errors import OptionError
from outrider.sampling.process import draft_law, draw_without_replacement
from outrider.targets.base import Target
from outrider.targets.loading import load_target
from outrider.types import DraftTree, Outcome, pack

PREFILL_FROM = 17  # more missing tokens than this are prefilled without logits
PREFILL_CHUNK = 256


@dataclass
class ModelDrafter(Drafter):
    """Drafts with `model`: a name, hub id, folder or .gguf file, or a loaded target.

    min_confidence: stop a chain after a token to which the draft model gave less than this. dtype: of its weights,
    default the checkpoint's. device: default the target's. backend: of the draft model alone, as in `load`.
    """

    name: ClassVar[str] = "model"
    preferred_depth: ClassVar[int] = 4

    model: str | Target
    min_confidence: float = 0.0
    dtype: str | None = None
    device: str | None = None
    backend: str = "auto"
    _slots: dict[int, int] = field(default_factory=dict[int, int], init=False, repr=False)
    _fed: dict[int, list[int]] = field(default_factory=dict[int, list[int]], init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.min_confidence <= 1.0:
            raise OptionError(f"min_confidence is {self.min_confidence!r}; it must lie between 0 and 1")

    def bind(self, target: TargetView) -> None:
        self._target = target
        self._draft = self._load(target) if isinstance(self.model, str) else self.model
        check_same_vocabulary(target, self._draft.info, self._draft.tokenizer)
        self._free = list(range(self._draft.info.max_rows))
        self._slots.clear()
        self._fed.clear()

    def _load(self, target: TargetView) -> Target:
        options: dict[str, Any] = {"dtype": self.dtype, "device": self.device or str(target.info.device)}
        return load_target(str(self.model), backend=self.backend, max_rows=target.info.max_rows, **options)

    def end(self, row: int) -> None:
        self._fed.pop(row, None)
        if (slot := self._slots.pop(row, None)) is not None:
            self._draft.free([slot])
            self._free.append(slot)

    def propose(self, contexts: Sequence[DraftContext]) -> list[DraftTree]:
        chains = [_Chain(context, self._depth(context)) for context in contexts]
        going = [chain for chain in chains if chain.depth > 0 and self._take_slot(chain.context.row)]
        self._catch_up(going)
        logits = self._feed(going)
        while going:
            going = [chain for chain, row in zip(going, logits, strict=True) if self._draw(chain, row)]
            logits = self._feed(going)
        return [chain.tree(self._note(chain)) for chain in chains]

    def _depth(self, context: DraftContext) -> int:
        room = self._draft.info.max_length - len(context.tokens)
        return min(context.plan.max_depth, context.plan.max_nodes, room)

    def _note(self, chain: "_Chain") -> str:
        limit = self._draft.info.max_length
        if len(chain.context.tokens) >= limit:
            return f"no drafts past the draft model's limit of {limit} tokens"
        return "" if chain.context.row in self._slots else f"the draft model has only {self._draft.info.max_rows} rows"

    def _take_slot(self, row: int) -> bool:
        if row not in self._slots and self._free:
            self._slots[row] = self._free.pop()
            self._fed[row] = []
        return row in self._slots

    def _catch_up(self, chains: Sequence["_Chain"]) -> None:
        """Drop what was rejected; queue the committed tokens that the cache lacks, long stretches prefilled at once."""
        for chain in chains:
            row, tokens = chain.context.row, chain.context.tokens
            fed = self._fed[row]
            keep = _common_prefix(fed, tokens, len(tokens) - 1)
            del fed[keep:]
            self._draft.truncate(self._slots[row], keep)
            while len(tokens) - len(fed) >= PREFILL_FROM:
                piece = tokens[len(fed) : min(len(fed) + PREFILL_CHUNK, len(tokens) - 1)]
                self._draft.prefill([self._slots[row]], [piece])
                fed.extend(piece)
            chain.queued = list(tokens[len(fed) :])

    def _feed(self, chains: Sequence["_Chain"]) -> Tensor:
        """Logits (rows, V of the draft) after each chain's queued tokens, which join its cache."""
        if not chains:
            return torch.empty(0, 0)
        slots = [self._slots[chain.context.row] for chain in chains]
        trees = [DraftTree.chain(chain.queued[0], chain.queued[1:]) for chain in chains]
        lengths = [len(self._fed[chain.context.row]) for chain in chains]
        packed = pack(trees, slots, lengths, self._draft.info.device)
        last = torch.tensor([end - 1 for end in packed.starts[1:]], device=packed.tokens.device)
        logits = self._draft.score(packed, last).logits
        self._draft.commit(
            {slot: Outcome(tuple(range(len(tree.tokens))), -1) for slot, tree in zip(slots, trees, strict=True)}
        )
        for chain in chains:
            self._fed[chain.context.row].extend(chain.queued)
        return logits

    def _draw(self, chain: "_Chain", logits: Tensor) -> bool:
        """Draw the chain's next token; whether another one should follow depends on what was drawn alone."""
        context = chain.context
        history = [*context.tokens, *chain.drawn]
        ends = context.params.end_token_ids(self._target.info.eos_token_ids)
        fitted = _fit(logits, self._target.info.vocab_size)
        law = draft_law(fitted, history, context.num_prompt, context.params, ends)
        drawn = draw_without_replacement(law, context.noise, len(history), 1, context.stream)
        if not drawn:
            return False
        chain.add(drawn[0], law)
        return len(chain.drawn) < chain.depth and chain.confidence[-1] >= self.min_confidence


class _Chain:
    """One row's draft in the making."""

    def __init__(self, context: DraftContext, depth: int) -> None:
        self.context = context
        self.depth = depth
        self.queued: list[int] = []
        self.drawn: list[int] = []
        self.confidence: list[float] = []
        self._laws: list[Tensor] = []

    def add(self, token: int, law: Tensor) -> None:
        self.drawn.append(token)
        self.queued = [token]
        self.confidence.append(float(law[token].exp()))
        if self.context.want_probs and not self.context.params.greedy:
            self._laws.append(law.exp())

    def tree(self, note: str) -> DraftTree:
        if not self.drawn:
            return DraftTree.root(self.context.root, note)
        probs = torch.stack([*self._laws, torch.zeros_like(self._laws[-1])]) if self._laws else None
        return DraftTree.chain(self.context.root, self.drawn, probs, self.confidence)


def _common_prefix(fed: Sequence[int], tokens: Sequence[int], limit: int) -> int:
    """How many leading tokens agree, at most `limit`."""
    size = min(len(fed), limit)
    if list(fed[:size]) == list(tokens[:size]):
        return size
    return next(i for i in range(size) if fed[i] != tokens[i])


def _fit(logits: Tensor, vocab_size: int) -> Tensor:
    """Draft logits over the target's ids: extra ids cut off, missing ones impossible."""
    missing = vocab_size - logits.shape[-1]
    return torch.nn.functional.pad(logits, (0, missing), value=float("-inf")) if missing > 0 else logits[:vocab_size]
