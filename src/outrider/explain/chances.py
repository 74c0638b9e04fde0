"""The sampled example: one word, two laws, and the arithmetic that makes accept-or-resample exact.

All numbers come from the code of the `rejection` rule; only the two laws are invented.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.acceptance.rejection import Rejection
from outrider.acceptance.siblings import SiblingTest
from outrider.sampling.laws import Laws
from outrider.sampling.noise import Noise
from outrider.sampling.params import SamplingParams
from outrider.types import DraftTree, Outcome

WORDS = ("held", "kept", "cooled", "cracked")
TARGET = (0.4, 0.3, 0.2, 0.1)
DRAFT = (0.2, 0.2, 0.5, 0.1)
DRAFTED = WORDS.index("cooled")


@dataclass(frozen=True)
class Line:
    """One word: its chances, the part that comes from a kept draft, and the part that comes from a second draw."""

    word: str
    target: float
    draft: float
    keep: float
    excess: float
    from_draft: float
    from_excess: float

    @property
    def written(self) -> float:
        return self.from_draft + self.from_excess


@dataclass(frozen=True)
class Coin:
    """One play of the rule: the coin that fell, and the word that was written."""

    value: float
    word: str


def lines() -> list[Line]:
    """How the target's law comes out, word by word."""
    target, draft = _tensor(TARGET), _tensor(DRAFT)
    keep = [float(SiblingTest(target, draft).chance(token)) for token in range(len(WORDS))]
    excess = _excess(target, draft)
    rejected = sum(DRAFT[token] * (1 - keep[token]) for token in range(len(WORDS)))
    return [
        Line(
            word=word,
            target=TARGET[token],
            draft=DRAFT[token],
            keep=keep[token],
            excess=excess[token],
            from_draft=DRAFT[token] * keep[token],
            from_excess=rejected * excess[token],
        )
        for token, word in enumerate(WORDS)
    ]


def first_coins() -> tuple[Coin, Coin]:
    """Plays the rule on the drafted word, seed after seed: the first time it is kept, and the first time it is not."""
    found: dict[bool, Coin] = {}
    for seed in range(1000):
        outcome, noise = _play(seed)
        kept = outcome.num_accepted == 1
        found.setdefault(kept, Coin(noise.uniform(1, "accept"), WORDS[DRAFTED if kept else outcome.next_token]))
        if len(found) == 2:
            break
    return found[True], found[False]


def _play(seed: int) -> tuple[Outcome, Noise]:
    noise = Noise(seed)
    tree = DraftTree.chain(0, [DRAFTED], _tensor(DRAFT).expand(2, len(WORDS)))
    params = SamplingParams(temperature=1.0).resolve({}, (), len(WORDS))
    logits = _tensor(TARGET).log().expand(2, len(WORDS))
    return Rejection()(tree, Laws(logits, tree, [0], 1, params, (), noise), noise), noise


def _excess(target: Tensor, draft: Tensor) -> list[float]:
    test = SiblingTest(target, draft)
    test.reject(DRAFTED)
    return test.remaining.tolist()


def _tensor(law: tuple[float, ...]) -> Tensor:
    return torch.tensor(law, dtype=torch.float64)
