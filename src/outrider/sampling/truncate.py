"""Top-k, top-p and min-p: which tokens stay possible. Order: top-k, top-p, min-p; ties go to the lowest id.

Sorting 150,000 entries costs more than the rest of sampling together, so the nucleus is looked for among the
likeliest 1,024 and the search widened only if their mass does not reach p. `truncate_by_sorting` is the plain twin.
"""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

_FIRST_SEARCH = 1024


def truncate(logits: Float[Tensor, "V"], top_k: int, top_p: float, min_p: float) -> Float[Tensor, "V"]:
    """Logits (after temperature) with -inf for every token that the three filters remove; 0, 1.0, 0.0 = off.

    top-k keeps exactly k; top-p the smallest set whose mass, among what top-k left, reaches p; min-p what is at least
    min_p times as likely as the likeliest.
    """
    search = _FIRST_SEARCH
    if 0 < top_k < len(logits):
        logits = _keep(logits, best(logits, top_k))
        search = min(search, top_k)
    if top_p < 1.0:
        logits = _keep(logits, _nucleus(logits, top_p, search))
    return _drop_unlikely(logits, min_p)


def truncate_by_sorting(logits: Float[Tensor, "V"], top_k: int, top_p: float, min_p: float) -> Float[Tensor, "V"]:
    """What `truncate` returns, by one full sort per filter."""
    if 0 < top_k < len(logits):
        logits = _keep(logits, logits.sort(descending=True, stable=True).indices[:top_k])
    if top_p < 1.0:
        order = logits.sort(descending=True, stable=True).indices
        logits = _keep(logits, order[_before(logits.softmax(0), order) < top_p])
    return _drop_unlikely(logits, min_p)


def best(values: Float[Tensor, "V"], count: int) -> Int[Tensor, "K"]:
    """Ids of the `count` largest values, largest first, ties by lowest id."""
    count = min(count, len(values))
    last = _kth_largest(values, count)
    above = ids_where(values > last)
    level = ids_where(values == last)[: count - len(above)]
    order = values[above].sort(descending=True, stable=True).indices
    return torch.cat((above[order], level))


def ids_where(mask: Bool[Tensor, "V"]) -> Int64[Tensor, "K"]:
    """Ids at which the mask is true, ascending. On a CPU numpy finds them ten times as fast as torch."""
    if mask.is_cpu:
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.nonzero().flatten()


def _kth_largest(values: Tensor, k: int) -> float:
    if values.is_cpu:
        return float(np.partition(values.numpy(), len(values) - k)[len(values) - k])
    return float(values.topk(k).values[-1])


def _nucleus(logits: Tensor, top_p: float, search: int) -> Tensor:
    probs = logits.softmax(0)
    while True:
        ids = best(logits, search)
        before = _before(probs, ids)
        if search >= len(logits) or before[-1] >= top_p:
            return ids[before < top_p]
        search *= 8


def _before(probs: Tensor, order: Tensor) -> Tensor:
    """Mass of the tokens that come before each in this order."""
    mass = probs[order].double()
    return mass.cumsum(0) - mass


def _drop_unlikely(logits: Tensor, min_p: float) -> Tensor:
    if min_p == 0.0:
        return logits
    return logits.masked_fill((logits - logits.max()).exp() < min_p, -math.inf)


def _keep(logits: Tensor, ids: Tensor) -> Tensor:
    kept = torch.full_like(logits, -math.inf)
    kept[ids] = logits[ids]
    return kept
