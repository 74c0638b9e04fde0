"""What other weights do to a model's judgement: perplexity, and how often its first choice stays the same.

Both models read the same texts, one pass over each (teacher forcing); nothing is generated, so that one early
difference does not hide what comes after it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from outrider.targets.base import Target
from outrider.types import DraftTree, Outcome, pack

PIECE = 64  # tokens in a pass


@dataclass(frozen=True)
class Reading:
    """One model's judgement of a text of n tokens: its first choices (n - 1,), and log-probabilities of what came."""

    choices: Int[Tensor, "n"]
    logprobs: Float[Tensor, "n"]


@dataclass(frozen=True)
class Quality:
    """Perplexity over all tokens of the texts, share of equal first choices, mean change of log-probability."""

    num_tokens: int
    perplexity_before: float
    perplexity_after: float
    agreement: float
    mean_change: float


def read_texts(
    target: Target, texts: Sequence[Sequence[int]], on_text: Callable[[int], None] = lambda done: None
) -> list[Reading]:
    """The model's reading of each text of at least two tokens."""
    readings: list[Reading] = []
    for text in texts:
        readings.append(_read(target, text))
        on_text(len(readings))
    return readings


def compare(before: Sequence[Reading], after: Sequence[Reading]) -> Quality:
    """Two models' readings of the same texts."""
    choices = [torch.cat([reading.choices for reading in readings]) for readings in (before, after)]
    logprobs = [torch.cat([reading.logprobs for reading in readings]) for readings in (before, after)]
    return Quality(
        num_tokens=len(choices[0]),
        perplexity_before=math.exp(-float(logprobs[0].mean())),
        perplexity_after=math.exp(-float(logprobs[1].mean())),
        agreement=float((choices[0] == choices[1]).double().mean()),
        mean_change=float((logprobs[0] - logprobs[1]).abs().mean()),
    )


@torch.inference_mode()
def _read(target: Target, text: Sequence[int]) -> Reading:
    choices, logprobs = list[Tensor](), list[Tensor]()
    try:
        for start in range(0, len(text) - 1, PIECE):
            stop = min(start + PIECE, len(text) - 1)
            tree = DraftTree.chain(text[start], text[start + 1 : stop])
            logits = target.score(pack([tree], [0], [start], target.info.device)).logits.double()
            target.commit({0: Outcome(tuple(range(stop - start)), text[stop])})
            came = torch.tensor(text[start + 1 : stop + 1], device=logits.device)
            choices.append(logits.argmax(-1))
            logprobs.append(logits.log_softmax(-1).gather(1, came[:, None])[:, 0])
    finally:
        target.free([0])
    return Reading(torch.cat(choices), torch.cat(logprobs))
