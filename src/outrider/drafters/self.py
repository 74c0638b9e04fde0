"""The target drafts for itself with some of its layers: early exit after the first few, or all but a list of them.

No second model and no second copy of anything: the part runs on the target's own weights, and its layers find the
committed tokens in the target's own cache. What it writes there while drafting is dropped before the target is used
again, so the committed part of the cache is the same, bit for bit. The target gives the part at bind time; one without
layers of its own cannot be drafted for in this way. `outrider drafters tune-self` looks for a good set of layers.
Sources: Elhoushi et al., "LayerSkip" (2024); Zhang et al., "Draft & Verify" (2023), for lists of skipped layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from outrider.drafters.base import DraftContext, Drafter, TargetView
from outrider.errors import OptionError, PairingError
from outrider.sampling.process import draft_law, draw_without_replacement
from outrider.targets.base import Target
from outrider.types import DraftTree, Outcome, pack


@dataclass
class SelfDrafter(Drafter):
    """layers: how many to run, from the first. skip: layers to leave out instead, such as 10-15+20 (0 is the first).
    Default: every third layer of the middle half is skipped. min_confidence: a chain ends after a token to which the
    part gave less than this.
    """

    name: ClassVar[str] = "self"
    preferred_depth: ClassVar[int] = 3
    needs_target_cache: ClassVar[bool] = True

    layers: int | None = None
    skip: str | Sequence[int] | None = None
    min_confidence: float = 0.4
    _part: Target | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.layers is not None and self.skip is not None:
            raise OptionError("give the self drafter layers or skip, not both")
        if not 0.0 <= self.min_confidence <= 1.0:
            raise OptionError(f"min_confidence is {self.min_confidence!r}; it must lie between 0 and 1")
        self._skipped = None if self.skip is None else parse_layers(self.skip)

    def bind(self, target: TargetView) -> None:
        if target.layered is None or target.layered.num_layers < 2:
            raise PairingError(
                f"target {target.info.name!r} cannot run with a part of its layers, so it cannot draft for itself; "
                "load a Hugging Face model with backend='torch', or use another drafter"
            )
        self._info = target.info
        self._part = target.layered.part(self.chosen(target.layered.num_layers))

    def chosen(self, num_layers: int) -> list[int]:
        """The layers that run, of a target with this many. Raises OptionError for numbers that it does not have."""
        if self.layers is not None:
            if not 1 <= self.layers < num_layers:
                raise OptionError(f"layers is {self.layers!r}; of {num_layers} layers 1 to {num_layers - 1} can draft")
            return list(range(self.layers))
        skipped = _default_skip(num_layers) if self._skipped is None else self._skipped
        for layer in skipped:
            if not 0 <= layer < num_layers:
                raise OptionError(f"skip names layer {layer}; this target has layers 0 to {num_layers - 1}")
        if not 0 < len(set(skipped)) < num_layers:
            raise OptionError(f"skip leaves out {len(set(skipped))} of {num_layers} layers; leave out some, not all")
        return [layer for layer in range(num_layers) if layer not in skipped]

    def propose(self, contexts: Sequence[DraftContext]) -> list[DraftTree]:
        part = self._part
        assert part is not None
        chains = [_Chain(context, self._depth(context)) for context in contexts]
        going = [chain for chain in chains if chain.depth > 0]
        try:
            while going:
                logits = _feed(part, going)
                going = [chain for chain, row in zip(going, logits, strict=True) if self._draw(chain, row)]
        finally:
            for context in contexts:  # the rows are the target's; whatever happened, it finds them as they were
                part.truncate(context.cache_row, len(context.tokens) - 1)
        return [chain.tree() for chain in chains]

    def _depth(self, context: DraftContext) -> int:
        room = self._info.max_length - len(context.tokens)
        return min(context.plan.max_depth, context.plan.max_nodes, room)

    def _draw(self, chain: "_Chain", logits: Tensor) -> bool:
        """Draw the chain's next token; whether another one should follow depends on what was drawn alone."""
        context = chain.context
        history = [*context.tokens, *chain.drawn]
        ends = context.params.end_token_ids(self._info.eos_token_ids)
        law = draft_law(logits, history, context.num_prompt, context.params, ends)
        token = draw_without_replacement(law, context.noise, len(history), 1, context.stream)[0]
        chain.add(token, law)
        going_on = chain.confidence[-1] >= self.min_confidence and token not in ends
        return going_on and len(chain.drawn) < chain.depth


class _Chain:
    """One row's draft in the making."""

    def __init__(self, context: DraftContext, depth: int) -> None:
        self.context = context
        self.depth = depth
        self.drawn: list[int] = []
        self.confidence: list[float] = []
        self._laws: list[Tensor] = []

    @property
    def newest(self) -> int:
        return self.drawn[-1] if self.drawn else self.context.root

    def add(self, token: int, law: Tensor) -> None:
        self.drawn.append(token)
        self.confidence.append(float(law[token].exp()))
        if self.context.want_probs and not self.context.params.greedy:
            self._laws.append(law.exp())

    def tree(self) -> DraftTree:
        if not self.drawn:
            return DraftTree.root(self.context.root)
        probs = torch.stack([*self._laws, torch.zeros_like(self._laws[-1])]) if self._laws else None
        return DraftTree.chain(self.context.root, self.drawn, probs, self.confidence)


def _feed(part: Target, chains: Sequence[_Chain]) -> Tensor:
    """Logits (rows, V) after each chain's newest token, which joins the part's cache until the draft is done."""
    rows = [chain.context.cache_row for chain in chains]
    lengths = [len(chain.context.tokens) - 1 + len(chain.drawn) for chain in chains]
    packed = pack([DraftTree.root(chain.newest) for chain in chains], rows, lengths, part.info.device)
    logits = part.score(packed).logits
    part.commit({row: Outcome((0,), -1) for row in rows})
    return logits


def parse_layers(skip: str | Sequence[int]) -> tuple[int, ...]:
    """`10-15+20` as numbers. Raises OptionError."""
    if not isinstance(skip, str):
        return tuple(skip)
    layers: list[int] = []
    for piece in skip.split("+"):
        first, dash, last = piece.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise OptionError(f"skip holds {piece!r}; write layers as 10-15+20")
        layers += range(int(first), int(last or first) + 1)
    return tuple(layers)


def _default_skip(num_layers: int) -> range:
    """Middle layers change least, so those can be missed most easily; at least one."""
    quarter = num_layers // 4
    return range(quarter, max(quarter + 1, num_layers - quarter), 3)
