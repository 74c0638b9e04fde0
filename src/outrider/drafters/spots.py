"""What may follow one node of a draft tree, in the order in which candidates join the tree, under every kind of rule.

- Shared noise (rule `identical`): candidates in the order of log-probability plus the target's own noise; greedy: of
  log-probability. Which of them is in the tree changes nothing but speed, so their chances may be looked at first.
- Drawn (rules that read draft_probs): candidates in the order drawn without replacement. Whether one more is drawn may
  depend on what was drawn by then and on laws, never on what comes next; so the prospect of the next is the greatest
  chance of any token still in the urn, and its own chance is looked at only afterwards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from outrider.drafters.base import DraftContext
from outrider.errors import OptionError
from outrider.sampling.noise import Noise, mix64
from outrider.sampling.params import SamplingParams
from outrider.sampling.process import draft_law, draw_without_replacement
from outrider.sampling.truncate import best, ids_where


@dataclass
class Spot:
    """A node whose followers can be had. prospects[i]: the chance by which candidate i is chosen or left.

    law: log-probabilities (V,) that the candidates were drawn from; None if they were chosen.
    """

    tokens: Sequence[int]
    chances: Sequence[float]
    prospects: Sequence[float]
    law: Tensor | None = None
    taken: int = 0

    @property
    def prospect(self) -> float:
        """Of the next candidate; 0 if there is none."""
        return self.prospects[self.taken] if self.taken < len(self.tokens) else 0.0

    def take(self) -> tuple[int, float]:
        """The next candidate and its chance, both known from now on."""
        self.taken += 1
        return self.tokens[self.taken - 1], self.chances[self.taken - 1]


class Spots:
    """Makes the spots of one row in one round. end_token_ids: those that min_new_tokens holds back."""

    def __init__(self, context: DraftContext, end_token_ids: Sequence[int], width: int) -> None:
        self.drawn = context.want_probs and not context.params.greedy
        self._context = context
        self._ends = end_token_ids
        self._width = width
        self._params = _warm(context.params) if context.params.greedy else context.params

    def make(self, logits: Tensor, path: Sequence[int], branch: int) -> Spot | None:
        """The spot of a node; None if nothing may follow. logits: (V,) over the target's ids; path: below the root.

        branch: number of the node among those of its depth that have a spot: they must not draw with the same noise.
        """
        history = [*self._context.tokens, *path]
        try:
            law = draft_law(logits, history, self._context.num_prompt, self._params, self._ends)
        except OptionError:  # of the tokens that the drafter can propose the settings leave none
            return None
        if self.drawn:
            return self._draw(law, len(history), branch)
        return self._choose(law, len(history))

    def _draw(self, law: Tensor, position: int, branch: int) -> Spot | None:
        shared = self._context.stream == "token"
        noise = self._context.noise if shared else _branch_noise(self._context.noise, branch)
        tokens = draw_without_replacement(law, noise, position, self._width, self._context.stream)
        if not tokens:
            return None
        return Spot(tokens, law[tokens].exp().tolist(), _greatest_left(law, tokens), law)

    def _choose(self, law: Tensor, position: int) -> Spot | None:
        """By noisy score. Chances: softmax of the scores as if logits erred by about 1, whatever the temperature.

        Greedy that is the draft's own law, the usual estimate; at temperature T a logit's error counts 1/T in a score.
        """
        params, noise = self._context.params, self._context.noise
        ids = ids_where(law > -math.inf)
        scores = law[ids].double()
        if not params.greedy:
            scores = (scores + noise.gumbel_at(position, ids, stream=self._context.stream)) * (
                params.temperature or 1.0
            )
        if not len(ids):
            return None
        order = best(scores, self._width)
        chances = (scores[order] - scores.logsumexp(0)).exp().clamp(max=1.0).tolist()
        return Spot(ids[order].tolist(), chances, chances)


def _greatest_left(law: Tensor, drawn: Sequence[int]) -> list[float]:
    """Before each draw: the greatest chance of a token that was not drawn by then."""
    ids = best(law, len(drawn))
    greatest = list(zip(ids.tolist(), law[ids].exp().tolist(), strict=True))
    return [next(chance for token, chance in greatest if token not in drawn[:count]) for count in range(len(drawn))]


def _warm(params: SamplingParams) -> SamplingParams:
    """A greedy request's settings at temperature 1: its choices are the same, and their chances can be told apart."""
    return replace(params, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def _branch_noise(noise: Noise, branch: int) -> Noise:
    """Noise of its own for every spot of a depth; the first has the round's."""
    return noise if branch == 0 else replace(noise, seed=mix64(noise.seed ^ mix64(branch)))
