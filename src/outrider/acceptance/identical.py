"""The default rule: a draft token is kept if and only if it is the token that plain decoding would have written.

The target's token at position t is fixed by (seed, t) and its own law, before anything is drafted, so the text does
not depend on the drafter at all. A drafter that draws with the same noise agrees more often (Gumbel coupling;
Daliri, Musco and Suresh 2024, arXiv:2408.07978).
"""

from dataclasses import dataclass
from typing import ClassVar

from outrider.acceptance.base import Rule, outcome
from outrider.sampling.laws import Laws
from outrider.sampling.noise import Noise
from outrider.types import DraftTree, Outcome


@dataclass(frozen=True)
class Identical(Rule):
    """Walk down the tree while the target's own choice is among the children."""

    name: ClassVar[str] = "identical"
    lossless: ClassVar[bool] = True
    shared_noise: ClassVar[bool] = True
    needs_draft_probs: ClassVar[bool] = False
    visits_path_only: ClassVar[bool] = True

    def __call__(self, tree: DraftTree, laws: Laws, noise: Noise) -> Outcome:
        path = [0]
        while True:
            choice = laws.choice(path[-1])
            child = _child_with(tree, path[-1], choice)
            if child is None:
                return outcome(tree, path, choice)
            path.append(child)
            if laws.ends(choice):
                return outcome(tree, path, choice)  # for form's sake: what follows an end is never written


def _child_with(tree: DraftTree, node: int, token: int) -> int | None:
    """The first child of `node` that holds `token`. (A second one would lead to the same text.)"""
    return next((child for child in tree.children[node] if tree.tokens[child] == token), None)
