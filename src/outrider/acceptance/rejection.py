"""Speculative sampling: keep a token with chance min(1, target/draft), else draw from what the target has in excess.

Sources: Leviathan et al. 2023 (arXiv:2211.17192), Chen et al. 2023 (arXiv:2302.01318); trees after Miao et al. 2024
(SpecInfer, arXiv:2305.09781) and, drawn without replacement, Jeon et al. 2024 (arXiv:2402.14160): siblings are judged
in node order, each against the residual that its elder siblings left.
"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from outrider.acceptance.base import Rule, outcome
from outrider.acceptance.draws import draw_recovered
from outrider.acceptance.siblings import SiblingTest
from outrider.sampling.laws import Laws
from outrider.sampling.noise import Noise
from outrider.types import DraftTree, Outcome


@dataclass(frozen=True)
class Rejection(Rule):
    """Walk down while a child is kept; where all are rejected, recover with a draw from the residual."""

    name: ClassVar[str] = "rejection"
    lossless: ClassVar[bool] = True
    shared_noise: ClassVar[bool] = False
    needs_draft_probs: ClassVar[bool] = True
    visits_path_only: ClassVar[bool] = True

    def __call__(self, tree: DraftTree, laws: Laws, noise: Noise) -> Outcome:
        path = [0]
        while tree.children[path[-1]]:
            child, remaining = _judge(tree, path[-1], laws, noise)
            if child is None:
                return outcome(tree, path, draw_recovered(remaining, noise, laws.position(path[-1])))
            path.append(child)
        return outcome(tree, path, laws.choice(path[-1]))


def _judge(tree: DraftTree, node: int, laws: Laws, noise: Noise) -> tuple[int | None, Float[Tensor, "V"]]:
    """The child that is kept, or None; and the law of the next token if it is None."""
    draft = None if tree.draft_probs is None else tree.draft_probs[node]
    test = SiblingTest(laws.probs(node), draft)
    for index, child in enumerate(tree.children[node]):
        token = tree.tokens[child]
        if noise.uniform(laws.position(node), "accept", index) < float(test.chance(token)):
            return child, test.remaining
        test.reject(token)
        if test.exhausted:
            break
    return None, test.remaining
