"""Block verification: judges a drafted chain as a whole; exact, and in expectation never keeps less than `rejection`.

Source: Sun et al. 2024, "Block verification accelerates speculative decoding" (arXiv:2403.10444), algorithm 2.
Node i carries a weight w_i (p_i in the paper): w_0 = 1, w_i = min(1, w_{i-1} target/draft of its token). The longest
prefix whose own coin falls right is kept. Coins of later nodes decide about earlier ones, so `noise` must be keyed
by the round, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from outrider.acceptance.base import Rule, outcome
from outrider.acceptance.draws import draw_recovered
from outrider.acceptance.siblings import Law, drawn_law, excess_of
from outrider.errors import UnsupportedError
from outrider.sampling.laws import Laws
from outrider.sampling.noise import Noise
from outrider.types import DraftTree, Outcome


@dataclass(frozen=True)
class Block(Rule):
    """Keep the longest prefix that block verification allows. Chains only."""

    name: ClassVar[str] = "block"
    lossless: ClassVar[bool] = True
    shared_noise: ClassVar[bool] = False
    needs_draft_probs: ClassVar[bool] = True
    visits_path_only: ClassVar[bool] = False
    chains_only: ClassVar[bool] = True

    def __call__(self, tree: DraftTree, laws: Laws, noise: Noise) -> Outcome:
        _refuse_branches(tree)
        weights = _weights(tree, laws)
        for node in range(len(weights) - 1, 0, -1):
            if noise.uniform(laws.position(node - 1), "accept") < _keep_chance(tree, laws, weights, node):
                return _finish(tree, laws, noise, weights, node)
        return _finish(tree, laws, noise, weights, 0)


def next_weight(weight: Any, target: Law, draft: Law | None, token: int) -> Any:
    """Weight of a node that holds `token`, from its parent's weight and the laws after its parent."""
    kept: Any = target[token]
    drawn = drawn_law(draft, token)
    return min(1, weight * kept / (1 if drawn is None else drawn[token]))


def weighted_excess(weight: Any, target: Law, draft: Law | None, token: int) -> Law:
    """Positive part of weight * target - draft, after a node whose child holds `token`; not normalised."""
    weighted: Any = target * weight
    return excess_of(weighted, draft, token)


def keep_chance(weight: Any, excess: Law) -> Any:
    """Chance that a prefix with a drafted continuation is kept when no longer one is (h_i in the paper)."""
    mass: Any = excess.sum()
    return mass / (mass + 1 - weight) if mass > 0 else int(weight == 1)


def _weights(tree: DraftTree, laws: Laws) -> list[Any]:
    """Weights of the nodes from the root on, up to the last that is not 0: the others cannot be kept."""
    weights: list[Any] = [1.0]
    for node in range(tree.num_drafted):
        weight = float(next_weight(weights[-1], laws.probs(node), _draft(tree, node), tree.tokens[node + 1]))
        if not weight > 0:
            break
        weights.append(weight)
    return weights


def _keep_chance(tree: DraftTree, laws: Laws, weights: Sequence[Any], node: int) -> float:
    """Chance that the coin of `node` falls right: its weight at the chain's end, keep_chance before."""
    if node == tree.num_drafted:
        return float(weights[node])
    return float(keep_chance(weights[node], _excess(tree, laws, weights, node)))


def _excess(tree: DraftTree, laws: Laws, weights: Sequence[Any], node: int) -> Float[Tensor, "V"]:
    return weighted_excess(weights[node], laws.probs(node), _draft(tree, node), tree.tokens[node + 1])


def _finish(tree: DraftTree, laws: Laws, noise: Noise, weights: Sequence[Any], node: int) -> Outcome:
    """Keep the nodes up to `node`; what follows is drawn from the target at the chain's end, else from the excess."""
    path = range(node + 1)
    if node == tree.num_drafted:
        return outcome(tree, path, laws.choice(node))
    rest = _excess(tree, laws, weights, node)
    remaining = rest if bool(rest.sum() > 0) else laws.probs(node)
    return outcome(tree, path, draw_recovered(remaining, noise, laws.position(node)))


def _draft(tree: DraftTree, node: int) -> Float[Tensor, "V"] | None:
    return None if tree.draft_probs is None else tree.draft_probs[node]


def _refuse_branches(tree: DraftTree) -> None:
    branch = next((node for node, children in enumerate(tree.children) if len(children) > 1), None)
    if branch is not None:
        raise UnsupportedError(
            f"rule 'block' judges chains, but node {branch} of the draft tree has {len(tree.children[branch])} "
            "children; use rule 'identical' or 'rejection' for trees"
        )
