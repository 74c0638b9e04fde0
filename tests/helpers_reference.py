"""Plain decoding written a second time, in numpy, one token after another: no tree, no cache, no batch, no engine.

It shares with the library the noise (whose numbers have their own tests) and nothing else, so an equal text means that
both read every setting the same way at every position.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from outrider import SamplingParams
from outrider.sampling.noise import Noise

NextLogits = Callable[[Sequence[int]], Any]


def decode(
    next_logits: NextLogits, prompt: Sequence[int], eos: Sequence[int] = (), max_length: int = 4096, **options: Any
) -> tuple[tuple[int, ...], str]:
    """(token ids, finish reason) of plain decoding. Stop strings are not known here."""
    logits = np.asarray(next_logits(prompt))
    params = SamplingParams.from_options(**options).resolve({}, eos, len(logits))
    budget = min(params.max_new_tokens or 0, max_length - len(prompt))
    ends = {*(() if params.ignore_eos else eos), *(params.stop_token_ids or ())}
    tokens = list(prompt)
    while len(tokens) - len(prompt) < budget:
        tokens.append(next_token(next_logits(tokens), tokens, len(prompt), params, ends))
        if tokens[-1] in ends:
            return tuple(tokens[len(prompt) :]), "stop"
    return tuple(tokens[len(prompt) :]), "length"


def next_token(logits: Any, tokens: Sequence[int], num_prompt: int, params: SamplingParams, ends: set[int]) -> int:
    """The token that the request's seed chooses after these."""
    chances = law(logits, tokens, num_prompt, params, ends)
    if params.temperature == 0:
        return int(np.argmax(chances))
    noise = Noise(params.seed or 0).gumbel(len(tokens), len(chances)).numpy()
    with np.errstate(divide="ignore"):
        return int(np.argmax(np.log(chances) + noise))


def law(logits: Any, tokens: Sequence[int], num_prompt: int, params: SamplingParams, ends: set[int]) -> np.ndarray:
    """Probabilities of the next token after every setting; a one-hot at temperature 0."""
    x = np.asarray(logits).astype(np.float64)  # a copy
    for token, bias in (params.logit_bias or {}).items():
        x[token] += bias
    for token in set(tokens):
        x[token] = x[token] * params.repetition_penalty if x[token] < 0 else x[token] / params.repetition_penalty
    for token in set(tokens[num_prompt:]):
        count = list(tokens[num_prompt:]).count(token)
        x[token] -= params.presence_penalty + params.frequency_penalty * count
    x[list(params.banned_token_ids or ())] = -math.inf
    if len(tokens) - num_prompt < params.min_new_tokens:
        x[list(ends)] = -math.inf
    for processor in params.logits_processors:
        x = processor(list(tokens), torch.from_numpy(x.copy())).numpy()
    if params.temperature == 0:
        return np.eye(len(x))[int(np.argmax(x))]
    return _truncate(_softmax(x / params.temperature), params)


def _truncate(p: np.ndarray, params: SamplingParams) -> np.ndarray:
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    if params.top_k:
        p[order[params.top_k :]] = 0
        p /= p.sum()
    if params.top_p < 1:
        mass, kept = 0.0, 0
        while mass < params.top_p and kept < len(order):
            mass, kept = mass + p[order[kept]], kept + 1
        p[order[kept:]] = 0
    p[p < params.min_p * p.max()] = 0
    return p / p.sum()


def _softmax(x: np.ndarray) -> np.ndarray:
    p = np.exp(x - x.max())
    return p / p.sum()
