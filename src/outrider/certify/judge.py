"""Compares two completions of one request and says of the first difference whether rounding explains it.

A difference is a near tie only if the target does not claim bitwise passes, and the gap between the two tokens lies
within what the measured noise can bridge. Everything else is NOT EXPLAINED: the text was changed.
"""

import math
from collections.abc import Callable
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from outrider.certify.probe import Measured, Probe, gap
from outrider.certify.records import Difference, Verdict
from outrider.engine.completion import Completion
from outrider.sampling.params import SamplingParams


class Judge:
    """Holds what a difference is measured with. bitwise: the target claims that no difference can occur."""

    def __init__(self, probe: Probe, *, bitwise: bool) -> None:
        self.probe = probe
        self.bitwise = bitwise

    def compare(self, plain: Completion, other: Completion, params: SamplingParams) -> Difference | None:
        """The first difference, or None if the two completions say the same. params: resolved, as both were run."""
        for which, completion in (("plain", plain), ("speculative", other)):
            if completion.error is not None:
                return Difference("error", "NOT EXPLAINED", f"the {which} run failed: {completion.error}")
        for what, read in _MUST_AGREE.items():
            if read(plain) != read(other):
                reason = f"{what} must be the same in both runs"
                return Difference(what, "NOT EXPLAINED", reason, None, read(plain), read(other))
        if plain.token_ids != other.token_ids:
            return self._tokens(plain, other, params)
        for what, read in _FOLLOWS_FROM_TOKENS.items():
            if read(plain) != read(other):
                reason = f"the same tokens gave another {what}"
                return Difference(what, "NOT EXPLAINED", reason, None, read(plain), read(other))
        return self._logprobs(plain, other)

    def _tokens(self, plain: Completion, other: Completion, params: SamplingParams) -> Difference:
        position, first, second = first_difference(plain.token_ids, other.token_ids)
        if first is None or second is None:
            reason = "one text is the beginning of the other: they stop in different places"
            return Difference("token", "NOT EXPLAINED", reason, position, first, second)
        tokens = [*plain.prompt_token_ids, *plain.token_ids[:position]]
        measured = self.probe.measure(tokens, len(plain.prompt_token_ids), params, (first, second))
        return self._explain(measured, position, first, second)

    def _explain(self, measured: Measured, position: int, first: int, second: int) -> Difference:
        between = gap(measured.scores, first, second)
        verdict, reason = self._verdict(measured, between, {first, second})
        return Difference(
            "token",
            verdict,
            reason,
            position,
            first,
            second,
            gap=_finite(gap(measured.scores)),
            pair_gap=_finite(between),
            noise=_finite(measured.noise),
            tolerance=measured.tolerance,
        )

    def _verdict(self, measured: Measured, between: float, pair: set[int]) -> tuple[Verdict, str]:
        if self.bitwise:
            return "NOT EXPLAINED", "the target claims bitwise passes, so no difference is allowed"
        if math.isinf(measured.noise) and measured.raw_noise <= measured.ceiling and pair <= measured.choices:
            return "near tie", "rounding moves what a setting cuts off: passes of this target chose both tokens"
        if measured.noise > measured.ceiling:
            return "NOT EXPLAINED", (
                f"scores move by {measured.noise:.3g} with the shape of the pass, and rounding can do no more than "
                f"{measured.ceiling:.3g}"
            )
        if between <= measured.tolerance:
            return "near tie", f"the gap {between:.3g} is within the measured noise"
        return "NOT EXPLAINED", f"the gap {between:.3g} is above the tolerance {measured.tolerance:.3g}"

    def _logprobs(self, plain: Completion, other: Completion) -> Difference | None:
        """Bit for bit on a bitwise target; elsewhere the largest movement must be one that rounding can do."""
        pairs = list(zip(plain.logprobs or (), other.logprobs or (), strict=True))
        unequal = [place for place, (one, two) in enumerate(pairs) if one != two]
        if not unequal:
            return None
        if self.bitwise:
            reason = "the target claims bitwise passes, so log-probabilities must agree to the last bit"
            return _logprob_difference(pairs, unequal[0], reason)
        place = max(unequal, key=lambda place: _moved(*pairs[place]))
        tokens = [*plain.prompt_token_ids, *plain.token_ids[:place]]
        ceiling = self.probe.ceiling(tokens)
        moved = _moved(*pairs[place])
        if moved <= ceiling:
            return None
        reason = f"a log-probability moved by {moved:.3g}; rounding can do {ceiling:.3g}"
        return _logprob_difference(pairs, place, reason)


def first_difference(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, int | None, int | None]:
    """(place, token of the one, token of the other) of the first difference; None for a text that has ended."""
    for place, (first, second) in enumerate(zip_longest(one, other)):
        if first != second:
            return place, first, second
    raise ValueError("the two texts are equal")


def comparable_params(completion: Completion) -> dict[str, Any]:
    """The effective options without the one that is meant to differ."""
    return {name: value for name, value in completion.effective_params.items() if name != "max_depth"}


_Reader = Callable[[Completion], Any]
_MUST_AGREE: dict[str, _Reader] = {
    "prompt_token_ids": lambda completion: list(completion.prompt_token_ids),
    "effective_params": comparable_params,
}
_FOLLOWS_FROM_TOKENS: dict[str, _Reader] = {
    "text": lambda completion: completion.text,
    "finish_reason": lambda completion: completion.finish_reason,
    "stop_match": lambda completion: completion.stop_match,
}


def _logprob_difference(pairs: list[tuple[Any, Any]], place: int, reason: str) -> Difference:
    one, two = pairs[place]
    return Difference("logprobs", "NOT EXPLAINED", reason, place, asdict(one), asdict(two))


def _moved(one: Any, other: Any) -> float:
    return max(_apart(one.logprob, other.logprob), _apart(one.raw_logprob, other.raw_logprob))


def _apart(one: float, other: float) -> float:
    return 0.0 if one == other else abs(one - other)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
