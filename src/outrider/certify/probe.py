"""Measures, on the target itself, how much a score moves with the shape of the pass it was computed in.

The same place of the same text is scored alone, with drafted tokens behind it, as the last of a chain, and, where
passes are not bitwise, with its text elsewhere in the cache; whatever changes is rounding, and its size is the
yardstick for differences between runs. A target whose passes are bitwise must not move at all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.sampling.laws import Laws
from outrider.sampling.noise import Noise
from outrider.sampling.params import SamplingParams
from outrider.targets.base import Target
from outrider.types import DraftTree, Outcome, pack

BEHIND = (1, 3, 7, 15)  # drafted tokens behind the place
BEFORE = (1, 3, 7)  # committed tokens scored in the same pass before it
SAFETY = 2.0  # the noise is a sample, not a bound
ROW = 0  # any row will do: nothing runs while a probe does

# Noise beyond this many units in the last place of the largest logit is no rounding but a fault. The factors are
# judgements: half precisions are rounded at every step but accumulated in float32, so few units; in float32 and
# float64 the order of long sums decides.
CEILING = {torch.bfloat16: 4.0, torch.float16: 8.0}
CEILING_ELSE = 256.0
CEILING_COARSE = 4.0  # where the target itself says how coarsely it rounds


@dataclass(frozen=True)
class Measured:
    """scores (V): what decides here, as the pass of one token gives it. noise: its largest movement over the passes.

    ceiling: the most that rounding can do at this precision. choices: what each of the passes chose. raw_noise: as
    noise, of the model's own logits: finite where a setting such as top_k cuts a token in one pass and not in another.
    """

    scores: Tensor
    noise: float
    ceiling: float
    choices: frozenset[int] = frozenset()
    raw_noise: float = math.inf

    @property
    def tolerance(self) -> float:
        """The largest gap between two scores that rounding can bridge: each may move, in opposite directions."""
        return 2.0 * SAFETY * self.noise if self.noise <= self.ceiling else 0.0


class Probe:
    """Scores places of texts on an idle target; the engine of that target must not be running anything."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def measure(
        self, tokens: Sequence[int], num_prompt: int, params: SamplingParams, candidates: Sequence[int] = ()
    ) -> Measured:
        """What follows `tokens` under resolved params. Noise is taken over the candidates and the likeliest tokens."""
        rows = self._logits_in_passes(list(tokens))
        scores = [self._scores(row, tokens, num_prompt, params) for row in rows]
        ids = self._watched(scores[0], candidates)
        noise = max((_movement(scores[0][ids], other[ids]) for other in scores[1:]), default=0.0)
        warmth = params.temperature or 1.0
        raw = max((_movement(rows[0][ids], other[ids]) for other in rows[1:]), default=0.0) / warmth
        choices = frozenset(int(one.argmax()) for one in scores)
        return Measured(scores[0], noise, self._ceiling(rows[0], warmth), choices, raw)

    def logit_noise(self, tokens: Sequence[int]) -> float:
        """Largest movement of any raw logit over the passes."""
        rows = self._logits_in_passes(list(tokens))
        return max((_movement(rows[0], other) for other in rows[1:]), default=0.0)

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """Raw logits (V,) after `tokens`, the last of them scored alone."""
        try:
            self._fill(list(tokens[:-1]))
            return self._pass(tokens[-1:], len(tokens) - 1, 0)
        finally:
            self.target.free([ROW])

    def ceiling(self, tokens: Sequence[int]) -> float:
        """The most that rounding can move a raw logit after `tokens`."""
        return self._ceiling(self.logits(tokens), 1.0)

    def _logits_in_passes(self, tokens: list[int]) -> list[Tensor]:
        """Logits of the last token's place: alone first, then in passes of other shapes."""
        length = len(tokens) - 1
        room = self.target.info.max_length - len(tokens)
        try:
            self._fill(tokens[:-1])
            rows = [self._pass(tokens[-1:], length, 0)]
            for extra in BEHIND:
                if extra <= room:
                    filler = [tokens[i % len(tokens)] for i in range(extra)]
                    rows.append(self._pass([tokens[-1], *filler], length, 0))
            for extra in BEFORE:
                if extra < len(tokens):
                    self.target.truncate(ROW, length - extra)
                    rows.append(self._pass(tokens[length - extra :], length - extra, extra))
            return rows + (self._elsewhere(tokens) if self.target.info.exact != "bitwise" else [])
        finally:
            self.target.free([ROW])

    def _elsewhere(self, tokens: list[int]) -> list[Tensor]:
        """The same place where the text lies otherwise in the cache: among dropped branches, and behind another row."""
        found, length = list[Tensor](), len(tokens) - 1
        middle = length // 2
        if 1 <= middle < length - 1:
            self._fill(tokens[:middle])
            branches = DraftTree((tokens[middle], *tokens[:2], tokens[middle + 1]), (-1, 0, 0, 0))
            self.target.score(pack([branches], [ROW], [middle], self.target.info.device))
            self.target.commit({ROW: Outcome((0, 3), tokens[middle + 1])})
            self.target.prefill([ROW], [tokens[middle + 2 : -1]])
            found.append(self._pass(tokens[-1:], length, 0))
        if self.target.info.max_rows > 1:
            try:
                self.target.prefill([ROW + 1], [tokens[: max(1, middle)]])
                self._fill(tokens[:-1])
                found.append(self._pass(tokens[-1:], length, 0))
            finally:
                self.target.free([ROW + 1])
        return found

    def _fill(self, tokens: list[int]) -> None:
        self.target.free([ROW])
        for start in range(0, len(tokens), 256):
            self.target.prefill([ROW], [tokens[start : start + 256]])

    def _pass(self, chain: Sequence[int], length: int, node: int) -> Tensor:
        packed = pack([DraftTree.chain(chain[0], chain[1:])], [ROW], [length], self.target.info.device)
        return self.target.score(packed).logits[node].clone()

    def _scores(self, logits: Tensor, tokens: Sequence[int], num_prompt: int, params: SamplingParams) -> Tensor:
        """Greedy: processed logits; sampling: log-probabilities plus the position's noise. Their argmax is written."""
        ends = params.end_token_ids(self.target.info.eos_token_ids)
        noise = Noise(params.seed or 0)
        laws = Laws(logits[None], DraftTree.root(tokens[-1]), tokens, num_prompt, params, ends, noise)
        if params.greedy:
            return laws.logits(0).double()
        return laws.log_probs(0).double() + noise.gumbel(laws.position(0), len(logits), device=logits.device)

    def _watched(self, scores: Tensor, candidates: Sequence[int]) -> Tensor:
        best = scores.topk(min(8, len(scores))).indices
        return torch.cat([best, torch.tensor(list(candidates), dtype=torch.long, device=best.device)])

    def _ceiling(self, logits: Tensor, temperature: float) -> float:
        info, largest = self.target.info, float(logits[logits.isfinite()].abs().max())
        if info.rounding_unit is not None:
            return CEILING_COARSE * info.rounding_unit * largest / temperature
        return CEILING.get(info.dtype, CEILING_ELSE) * torch.finfo(info.dtype).eps * largest / temperature


def gap(scores: Tensor, first: int | None = None, second: int | None = None) -> float:
    """Between the two best scores, or between two tokens' scores."""
    if first is not None and second is not None:
        return abs(float(scores[first] - scores[second]))
    best = scores.topk(min(2, len(scores))).values
    return float(best[0] - best[-1])


def _movement(one: Tensor, other: Tensor) -> float:
    """Largest difference; what is -inf in both does not move."""
    moved = torch.where(one == other, 0.0, (one - other).abs())
    largest = float(moved.max()) if len(moved) else 0.0
    return math.inf if math.isnan(largest) else largest
