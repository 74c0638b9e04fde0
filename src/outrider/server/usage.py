"""The figures of an answer: OpenAI's usage, ours under `usage.speculation`, and vLLM's per-request `metrics`.

vLLM's names and meanings: docs "Per-Request Metrics" and "Per-Request Acceptance Metrics". A step is a round in which
something was proposed; the bonus token is never counted as accepted.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from outrider.engine.completion import Completion, CompletionStats
from outrider.server.job import Job


def usage_of(completions: Sequence[Completion], num_answers: int) -> dict[str, Any]:
    """Token counts of one HTTP request; a prompt shared by n answers counts once. num_answers: per prompt."""
    prompt = sum(len(completion.prompt_token_ids) for completion in completions[::num_answers])
    written = sum(len(completion.token_ids) for completion in completions)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": sum(one.stats.reused for one in completions[::num_answers])},
        "speculation": speculation_of([completion.stats for completion in completions]),
    }


def speculation_of(stats: Sequence[CompletionStats]) -> dict[str, Any]:
    """What speculation did for these answers together. reason: why there was none."""
    rounds, proposed = sum(one.rounds for one in stats), sum(one.proposed for one in stats)
    accepted, delivered = sum(one.accepted for one in stats), sum(one.delivered for one in stats)
    reasons = list(dict.fromkeys(one.off_reason for one in stats if one.off_reason))
    return {
        "method": "+".join(dict.fromkeys(one.method for one in stats)),
        "rule": stats[0].rule,
        "lossless": all(one.lossless for one in stats),
        "exact": stats[0].exact,
        "rounds": rounds,
        "proposed": proposed,
        "accepted": accepted,
        "tokens_per_round": delivered / rounds if rounds else 0.0,
        "acceptance": accepted / proposed if proposed else None,
        "accepted_per_position": list(stats[0].accepted_per_position) if len(stats) == 1 else None,
        "reason": "; ".join(reasons) or None,
        "warnings": list(dict.fromkeys(warning for one in stats for warning in one.warnings)),
    }


def metrics_of(jobs: Sequence[Job], completions: Sequence[Completion]) -> dict[str, Any] | None:
    """vLLM's per-request `metrics` object; None for several answers, which it cannot speak of."""
    if len(jobs) != 1:
        return None
    return {**_timing(jobs[0], len(completions[0].token_ids)), "speculative_decoding": acceptance(completions[0].stats)}


def acceptance(stats: CompletionStats) -> dict[str, Any]:
    """vLLM's `speculative_decoding` object."""
    steps = stats.rounds - stats.rounds_without_proposal
    histogram = acceptance_histogram(stats)
    return {
        "mean_acceptance_length": 1 + stats.accepted / steps if steps else 1.0,
        "draft_acceptance_rate": stats.accepted / stats.proposed if stats.proposed else 0.0,
        "acceptance_histogram": histogram,
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": stats.accepted,
        "num_draft_tokens": stats.proposed,
        "num_spec_tokens": len(histogram) - 1,
    }


def acceptance_histogram(stats: CompletionStats) -> list[int]:
    """Entry j: rounds with a proposal of which exactly j draft tokens were kept; from how many kept at least j."""
    at_least = [round(share * stats.rounds) for share in stats.accepted_per_position]
    at_least = [stats.rounds - stats.rounds_without_proposal, *at_least, 0]
    return [one - more for one, more in pairwise(at_least)]


def _timing(job: Job, num_tokens: int) -> dict[str, float | None]:
    times = job.times
    if times.started is None or times.first_token is None or times.last_token is None:
        queue = 1000 * times.queue_seconds
        keys = ("time_to_first_token_ms", "generation_time_ms", "mean_itl_ms", "tokens_per_second")
        return {**dict.fromkeys(keys), "queue_time_ms": queue}
    decode, whole = times.last_token - times.first_token, times.last_token - times.started
    return {
        "time_to_first_token_ms": 1000 * (times.first_token - times.started),
        "generation_time_ms": 1000 * decode,
        "queue_time_ms": 1000 * times.queue_seconds,
        "mean_itl_ms": 1000 * decode / (num_tokens - 1) if num_tokens > 1 else None,
        "tokens_per_second": num_tokens / whole if whole > 0 else None,
    }
