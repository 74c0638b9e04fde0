"""Log-probabilities in OpenAI's two shapes. They are the model's own (before any setting), as OpenAI's and vLLM's are.

One entry per written token, the end token included, so there are as many as `completion_tokens` says.
"""

from collections.abc import Sequence
from typing import Any

from outrider.sampling.logprobs import TokenLogprobs
from outrider.tokens import TokenNames

LOWEST = -9999.0  # stands for minus infinity, which JSON cannot say


def chat_logprobs(reports: Sequence[TokenLogprobs], names: TokenNames) -> dict[str, Any]:
    """The `logprobs` of a chat choice (or of one piece of a stream)."""
    content = [
        {
            **_entry(report.token_id, report.raw_logprob, names),
            "top_logprobs": [_entry(token, value, names) for token, value in report.raw_top],
        }
        for report in reports
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(reports: Sequence[TokenLogprobs], names: TokenNames, offset: int) -> dict[str, Any]:
    """The `logprobs` of a /v1/completions choice. offset: where the first token's text begins in the answer."""
    texts = [names.text(report.token_id) for report in reports]
    offsets = [offset]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    return {
        "tokens": texts,
        "token_logprobs": [_finite(report.raw_logprob) for report in reports],
        "top_logprobs": [_by_text(report, names) for report in reports],
        "text_offset": offsets[:-1],
    }


def _by_text(report: TokenLogprobs, names: TokenNames) -> dict[str, float]:
    """The likeliest by text; of several tokens with one text the likeliest. The written one is always among them."""
    pairs = [*report.raw_top, (report.token_id, report.raw_logprob)]
    found: dict[str, float] = {}
    for token, value in pairs:
        found.setdefault(names.text(token), _finite(value))
    return found


def _entry(token: int, value: float, names: TokenNames) -> dict[str, Any]:
    return {"token": names.text(token), "logprob": _finite(value), "bytes": names.utf8(token)}


def _finite(value: float) -> float:
    return max(value, LOWEST)
