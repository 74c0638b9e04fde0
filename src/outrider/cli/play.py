"""Runs one request for the command line, and the same one without speculation beside it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.engine.completion import Completion, TokenEvent
from outrider.engine.engine import Engine
from outrider.engine.request import Prompt


def play(
    engine: Engine, prompt: Prompt, sampling: Mapping[str, Any], on_event: Callable[[TokenEvent], None]
) -> Completion:
    """The completion of one prompt, its events shown as they come. Raises the request's own error."""
    handle = engine.submit(prompt, **sampling)
    try:
        while not handle.done:
            engine.step()
            for event in handle.take_events():
                on_event(event)
    finally:
        handle.cancel()
    if handle.completion.error is not None:
        raise handle.completion.error
    return handle.completion


@dataclass(frozen=True)
class Comparison:
    """One request with speculation and without: the same prompt, settings and seed."""

    speculative: Completion
    plain: Completion

    @property
    def equal(self) -> bool:
        """The same tokens, text and reason to finish."""
        return _result(self.speculative) == _result(self.plain)

    @property
    def first_difference(self) -> int | None:
        """Place of the first token that differs, counted from 0; None if there is none."""
        if self.speculative.token_ids == self.plain.token_ids:
            return None
        pairs = zip(self.speculative.token_ids, self.plain.token_ids, strict=False)
        shorter = min(len(self.speculative.token_ids), len(self.plain.token_ids))
        return next((i for i, (one, other) in enumerate(pairs) if one != other), shorter)

    @property
    def must_be_equal(self) -> bool:
        """Whether a difference is a defect: the rule promises the same tokens, and the target the same bits."""
        stats, greedy = self.speculative.stats, self.speculative.effective_params["temperature"] == 0
        same_tokens = stats.rule == "identical" or (stats.lossless and greedy)
        return same_tokens and stats.exact == "bitwise"

    @property
    def speed_up(self) -> float | None:
        """Ratio of the speeds; None where the outputs differ, for then it would say nothing."""
        return tokens_per_second(self.speculative) / tokens_per_second(self.plain) if self.equal else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "first_difference": self.first_difference,
            "must_be_equal": self.must_be_equal,
            "speed_up": self.speed_up,
            "plain": as_dict(self.plain),
        }


def compare(engine: Engine, prompt: Prompt, sampling: Mapping[str, Any], speculative: Completion) -> Comparison:
    """Run the prompt once more without speculation, with the same effective seed."""
    same = {**sampling, "seed": speculative.effective_params["seed"], "max_depth": 0}
    return Comparison(speculative, engine.generate(prompt, **same))


def warm_up(engine: Engine, prompt: Prompt) -> None:
    """Both kinds of pass once, so that the first run to be timed does not pay for the first use of anything."""
    engine.generate(prompt, max_new_tokens=8, temperature=0.0)
    engine.generate(prompt, max_new_tokens=2, temperature=0.0, max_depth=0)


def tokens_per_second(completion: Completion) -> float:
    """Written tokens per second of the request's own work, reading the prompt included, loading the model not."""
    seconds = completion.stats.seconds.total
    return len(completion.token_ids) / seconds if seconds else 0.0


def as_dict(completion: Completion) -> dict[str, Any]:
    """Everything about a completion that JSON can hold."""
    return {
        "text": completion.text,
        "token_ids": list(completion.token_ids),
        "finish_reason": completion.finish_reason,
        "stop_match": completion.stop_match,
        "prompt_token_ids": list(completion.prompt_token_ids),
        "effective_params": dict(completion.effective_params),
        "logprobs": _logprobs(completion),
        "tokens_per_second": round(tokens_per_second(completion), 3),
        "stats": completion.stats.to_dict(),
    }


def _result(completion: Completion) -> tuple[object, ...]:
    return completion.token_ids, completion.text, completion.finish_reason, completion.stop_match


def _logprobs(completion: Completion) -> list[dict[str, Any]] | None:
    if completion.logprobs is None:
        return None
    return [vars(report) for report in completion.logprobs]
