"""What is reported of a written token: its log-probability, rank and rivals, under both laws.

Ranks count what is strictly likelier, then equal ones of lower id, so they are the same on every path.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.sampling.laws import Laws
from outrider.sampling.truncate import best


@dataclass(frozen=True)
class TokenLogprobs:
    """One written token under the law it was drawn from (logprob, rank, top) and the model's own (raw_...).

    Natural logarithms. A greedy request's law is reported as the softmax of the processed logits at temperature 1, for
    the one-hot that it is drawn from says nothing. rank 1 = the likeliest. top: likeliest first, tokens that are
    impossible left out, so it may be shorter than asked.
    """

    token_id: int
    logprob: float
    raw_logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()
    raw_top: tuple[tuple[int, float], ...] = ()


def token_logprobs(laws: Laws, node: int, token_id: int, n: int) -> TokenLogprobs:
    """The report for the token written after the node, with the n likeliest of both laws."""
    drawn, raw = laws.warm_log_probs(node), laws.raw_log_probs(node)
    return TokenLogprobs(
        token_id=token_id,
        logprob=float(drawn[token_id]),
        raw_logprob=float(raw[token_id]),
        rank=_rank(drawn, token_id),
        top=_top(drawn, n),
        raw_top=_top(raw, n),
    )


def _rank(values: Tensor, token_id: int) -> int:
    value = values[token_id]
    likelier = torch.count_nonzero(values > value)
    equal_before = torch.count_nonzero(values[:token_id] == value)
    return 1 + int(likelier) + int(equal_before)


def _top(values: Tensor, n: int) -> tuple[tuple[int, float], ...]:
    if n == 0:
        return ()
    ids = best(values, n)
    possible = ids[values[ids] > -torch.inf]
    return tuple(zip(possible.tolist(), values[possible].tolist(), strict=True))
