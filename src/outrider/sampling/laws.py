"""The target's laws after the nodes of one row's tree, made when a rule first looks at them.

Each node sees the history of its own path and nothing of its siblings. Everything is cached per node, so a user's
processor runs once per node that a rule visits. How a law follows from logits is `process`'s business.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from jaxtyping import Float
from torch import Tensor

from outrider.errors import TargetError
from outrider.sampling.noise import Noise
from outrider.sampling.params import SamplingParams
from outrider.sampling.process import (
    apply_processors,
    apply_settings,
    law,
    settle_infinities,
    working_precision,
)
from outrider.sampling.truncate import ids_where
from outrider.types import DraftTree

T = TypeVar("T")


class Laws:
    """logits[n] speaks of what follows node n (invariant I2).

    logits: the target's, unprocessed (n, V). history: the committed tokens, the root last; num_prompt of them are the
    prompt's. params: resolved. end_token_ids: those that min_new_tokens holds back. argmax: the likeliest id per node
    as `checked_argmax` gives it for the whole round; used where a greedy request has no other settings.
    """

    def __init__(
        self,
        logits: Float[Tensor, "n V"],
        tree: DraftTree,
        history: Sequence[int],
        num_prompt: int,
        params: SamplingParams,
        end_token_ids: Sequence[int],
        noise: Noise,
        argmax: Sequence[int] | None = None,
    ) -> None:
        self.tree = tree
        self.params = params
        self.noise = noise
        self._rows = logits
        self._history = history
        self._num_prompt = num_prompt
        self._end_token_ids = end_token_ids
        self._argmax = argmax if params.greedy and not params.shapes_logits else None
        self._cache: dict[tuple[str, int], object] = {}

    def position(self, node: int) -> int:
        """Place in the text (the prompt counted) of the token that follows the node."""
        return len(self._history) + self.tree.depths[node]

    def ends(self, token: int) -> bool:
        """Whether the text ends with this token, wherever it stands: nothing after it is ever written."""
        return token in self._end_token_ids

    def choice(self, node: int) -> int:
        """The token that `identical` writes after the node: argmax of log-probability plus noise; greedy: argmax."""
        if self._argmax is not None:
            return self._argmax[node]
        return self._cached("choice", node, self._choose)

    def logits(self, node: int) -> Float[Tensor, "V"]:
        """After bias, penalties, bans, minimum length, processors; before temperature and truncation. No +inf, no NaN.

        Raises TargetError, ProcessorError or OptionError, with the position, where no law is left.
        """
        return self._cached("logits", node, self._process)

    def log_probs(self, node: int) -> Float[Tensor, "V"]:
        """The law after every setting; -inf where impossible. Greedy: 0 at the argmax, -inf elsewhere."""
        return self._cached("log_probs", node, lambda node: law(self.logits(node), self.params))

    def probs(self, node: int) -> Float[Tensor, "V"]:
        """The same as probabilities; greedy: an exact one-hot."""
        return self._cached("probs", node, lambda node: self.log_probs(node).exp())

    def surprisal(self, node: int, token: int) -> float:
        """-log of the token's chance after the node, in nats; 0 for a greedy request."""
        return 0.0 if self.params.greedy else -float(self.log_probs(node)[token])

    def warm_log_probs(self, node: int) -> Float[Tensor, "V"]:
        """log_probs, but for a greedy request the processed law at temperature 1: what reports show."""
        if not self.params.greedy:
            return self.log_probs(node)
        return self._cached("warm", node, lambda node: self.logits(node).log_softmax(0))

    def raw_log_probs(self, node: int) -> Float[Tensor, "V"]:
        """The model's own law, before any setting."""
        return self._cached("raw", node, lambda node: self._raw(node).log_softmax(0))

    def _cached(self, kind: str, node: int, make: Callable[[int], T]) -> T:
        key = (kind, node)
        if key not in self._cache:
            self._cache[key] = make(node)
        return self._cache[key]  # pyright: ignore[reportReturnType]

    def _raw(self, node: int) -> Tensor:
        row = working_precision(self._rows[node])
        _check_peak(float(row.max()), self.position(node))
        return settle_infinities(row)

    def _process(self, node: int) -> Tensor:
        row = self._raw(node)
        path = self.tree.path_tokens(node)
        if not self.params.shapes_logits or not set(path).isdisjoint(self._end_token_ids):
            return row  # beyond a drafted end token nothing is written: no setting applies, no processor is asked
        history = [*self._history, *path]
        row = apply_settings(row, history, self._num_prompt, self.params, self._end_token_ids)
        return settle_infinities(apply_processors(row, history, self.params.logits_processors))

    def _choose(self, node: int) -> int:
        if self.params.greedy:
            return int(self.logits(node).argmax())
        log_probs, position = self.log_probs(node), self.position(node)
        if self.params.truncates:
            ids = ids_where(log_probs > -math.inf)
            return int(ids[(log_probs[ids] + self.noise.gumbel_at(position, ids)).argmax()])
        noise = self.noise.gumbel(position, len(log_probs), device=log_probs.device)
        return int((log_probs + noise).argmax())


def checked_argmax(logits: Float[Tensor, "M V"], positions: Sequence[int]) -> list[int]:
    """The likeliest id of each row, the lowest of a tie. Raises TargetError, with the row's position, for NaN rows."""
    peaks, ids = logits.max(dim=-1)
    for peak, position in zip(peaks.tolist(), positions, strict=True):
        _check_peak(peak, position)
    return ids.tolist()


def _check_peak(peak: float, position: int) -> None:
    if math.isnan(peak):
        raise TargetError(f"the target's logits at position {position} hold NaN; check its weights and dtype")
    if peak == -math.inf:
        raise TargetError(f"the target's logits at position {position} are all -inf: no token is possible")
