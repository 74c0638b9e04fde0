"""Typical acceptance of Medusa: keeps whatever the target finds plausible. Lossy: the text's law is NOT the target's.

Source: Cai et al. 2024 (arXiv:2401.10774), typical acceptance: a token is kept if its target probability exceeds
min(epsilon, delta * exp(-entropy of the target's law)); of all kept paths the longest wins. At temperature 0 the
law is a one-hot and the rule is exact by itself.
"""

import math
from dataclasses import dataclass, fields
from typing import ClassVar

import torch

from outrider.acceptance.base import Rule, outcome
from outrider.errors import OptionError
from outrider.sampling.laws import Laws
from outrider.sampling.noise import Noise
from outrider.types import DraftTree, Outcome


@dataclass(frozen=True)
class Typical(Rule):
    """Keep the longest path of typical tokens (the first in node order among equals), then let the target draw.

    epsilon, delta: the paper's hard and entropy-dependent thresholds, each in (0, 1]; smaller keeps more.
    """

    epsilon: float = 0.09
    delta: float = 0.3

    name: ClassVar[str] = "typical"
    lossless: ClassVar[bool] = False
    shared_noise: ClassVar[bool] = True
    needs_draft_probs: ClassVar[bool] = False
    visits_path_only: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
                raise OptionError(f"rule 'typical': {option.name} is {value!r}; it must be above 0 and at most 1")

    def __call__(self, tree: DraftTree, laws: Laws, noise: Noise) -> Outcome:
        kept, last = {0}, 0
        for node in range(1, len(tree.tokens)):
            parent = tree.parents[node]
            if parent in kept and self._typical(laws, parent, tree.tokens[node]):
                kept.add(node)
                last = node if tree.depths[node] > tree.depths[last] else last
        return outcome(tree, tree.path_to(last), laws.choice(last))

    def _typical(self, laws: Laws, node: int, token: int) -> bool:
        probs = laws.probs(node)
        entropy = -float(torch.xlogy(probs, probs).sum())
        return float(probs[token]) > min(self.epsilon, self.delta * math.exp(-entropy))
