"""From a model's logits to the law of the next token: pure functions on one row, one order, one place.

Order: logit bias, repetition / presence / frequency penalties, banned ids, minimum length, the user's processors,
temperature, top-k, top-p, min-p. Softmax is in float32 at least. Rows, nodes and rules are not known here.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from outrider.errors import OptionError, ProcessorError
from outrider.sampling.noise import Noise, Stream
from outrider.sampling.params import LogitsProcessor, SamplingParams, processor_name
from outrider.sampling.truncate import best, ids_where, truncate

_MODERATE = (1e-30, 1e30)  # temperatures that float32 can divide by


def draft_law(
    logits: Float[Tensor, "V"],
    history: Sequence[int],
    num_prompt: int,
    params: SamplingParams,
    end_token_ids: Sequence[int],
) -> Float[Tensor, "V"]:
    """Log-probabilities of a drafter's next token under the request's settings, its own processors left out.

    history: the committed tokens and the drafted ones so far. Ids that the drafter's vocabulary lacks are passed over.
    """
    working = working_precision(logits)
    if params.shapes_logits:
        working = apply_settings(working, history, num_prompt, params, end_token_ids)
    return law(settle_infinities(working), params)


def draw_without_replacement(
    log_probs: Float[Tensor, "V"], noise: Noise, position: int, count: int, stream: Stream = "draft"
) -> list[int]:
    """At most `count` different tokens in the order drawn (Gumbel top-k); fewer if fewer are possible.

    With stream "token" and the target's noise the first is the one that the target would choose from the same law.
    """
    ids = ids_where(log_probs > -math.inf)
    scores = log_probs[ids].double() + noise.gumbel_at(position, ids, stream=stream)
    return ids[best(scores, count)].tolist() if count > 0 else []


def working_precision(logits: Float[Tensor, "V"]) -> Float[Tensor, "V"]:
    """The same logits in float32, or float64 if they are."""
    logits = logits.detach()
    return logits if logits.dtype == torch.float64 else logits.float()


def apply_settings(
    logits: Float[Tensor, "V"],
    history: Sequence[int],
    num_prompt: int,
    params: SamplingParams,
    end_token_ids: Sequence[int],
) -> Float[Tensor, "V"]:
    """Bias, penalties, bans and minimum length. history: every token so far, the prompt's num_prompt first.

    Raises OptionError if nothing is left to write. The input is left as it was.
    """
    logits = logits.clone()
    _add_bias(logits, params)
    _penalise(logits, history, num_prompt, params)
    _forbid(logits, params.banned_token_ids or ())
    if len(history) - num_prompt < (params.min_new_tokens or 0):
        _forbid(logits, end_token_ids)
    if logits.max() == -math.inf:
        raise OptionError(
            f"at position {len(history)} banned_token_ids and min_new_tokens leave no token possible; relax them"
        )
    return logits


def apply_processors(
    logits: Float[Tensor, "V"], history: Sequence[int], processors: Sequence[LogitsProcessor]
) -> Float[Tensor, "V"]:
    """The user's processors, one after another, each given its own copies. Raises ProcessorError by name and position.

    +inf is allowed: the tokens that have it share all the mass equally.
    """
    for processor in processors:
        logits = _apply_processor(logits, history, processor)
    return logits


def settle_infinities(logits: Float[Tensor, "V"]) -> Float[Tensor, "V"]:
    """Finite or -inf logits of the same law: where some are +inf, these become 0 and all others -inf."""
    if logits.max() != math.inf:
        return logits
    return torch.where(logits == math.inf, 0.0, -math.inf).to(logits.dtype)


def law(logits: Float[Tensor, "V"], params: SamplingParams) -> Float[Tensor, "V"]:
    """Log-probabilities after temperature and truncation; greedy: 0 at the likeliest (ties: lowest id), else -inf."""
    if params.greedy:
        log_probs = torch.full_like(logits, -math.inf)
        log_probs[logits.argmax()] = 0.0
        return log_probs
    warm = _temper(logits, params.temperature or 1.0)
    return truncate(warm, params.top_k or 0, params.top_p or 1.0, params.min_p or 0.0).log_softmax(0)


def _temper(logits: Tensor, temperature: float) -> Tensor:
    """(logits - max) / temperature. The largest is always 0, so a tiny temperature ends in greedy, not in NaN."""
    if temperature == 1.0:
        return logits
    centred = logits - logits.max()
    if _MODERATE[0] < temperature < _MODERATE[1]:
        return centred / temperature
    return (centred.double() / temperature).to(logits.dtype)


def _add_bias(logits: Tensor, params: SamplingParams) -> None:
    pairs = [(token_id, added) for token_id, added in (params.logit_bias or {}).items() if token_id < len(logits)]
    if pairs:
        ids, added = zip(*pairs, strict=True)
        logits[_known(ids, logits)] += torch.tensor(added, dtype=logits.dtype, device=logits.device)


def _penalise(logits: Tensor, history: Sequence[int], num_prompt: int, params: SamplingParams) -> None:
    """Repetition (prompt and output, as in transformers), then presence and frequency (output, as in OpenAI's API)."""
    repetition = params.repetition_penalty or 1.0
    presence, frequency = params.presence_penalty or 0.0, params.frequency_penalty or 0.0
    if repetition != 1.0:
        seen = _known(history, logits)
        values = logits[seen]
        logits[seen] = torch.where(values < 0, values * repetition, values / repetition)
    if presence or frequency:
        written = _known(history[num_prompt:], logits)
        counts = torch.bincount(written, minlength=len(logits)).to(logits.dtype)
        logits -= presence * (counts > 0) + frequency * counts


def _known(tokens: Sequence[int], logits: Tensor) -> Tensor:
    ids = torch.tensor(tokens, dtype=torch.long, device=logits.device)
    return ids[ids < len(logits)]


def _forbid(logits: Tensor, ids: Sequence[int]) -> None:
    logits[_known(ids, logits)] = -math.inf


def _apply_processor(logits: Tensor, history: Sequence[int], processor: LogitsProcessor) -> Tensor:
    where = f"logits processor {processor_name(processor)!r} at position {len(history)}"
    try:
        changed = processor(list(history), logits.clone())
    except Exception as error:
        raise ProcessorError(f"{where} raised {type(error).__name__}: {error}") from error
    if not isinstance(changed, Tensor) or changed.shape != logits.shape:  # pyright: ignore[reportUnnecessaryIsInstance]
        found = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ProcessorError(f"{where} returned {found}; it must return the logits, of shape {tuple(logits.shape)}")
    peak = float(changed.max())
    if math.isnan(peak):
        raise ProcessorError(f"{where} returned NaN; use -inf for tokens that are impossible")
    if peak == -math.inf:
        raise ProcessorError(f"{where} made every token impossible; leave at least one above -inf")
    return changed.detach().to(logits)
