"""What the suite runs over: every drafter and rule found by name, and every setting of a request."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from helpers import World
from outrider import available_drafters
from outrider.acceptance import available_rules, make_rule
from outrider.drafters.base import Drafter
from outrider.drafters.registry import make_drafter

MINIMAL_OPTIONS: dict[str, Callable[[World], dict[str, Any]]] = {
    "none": lambda world: {},
    "lookup": lambda world: {},
    "mix": lambda world: {"drafters": ["suffix", "recycle", make_drafter("model", model=world.draft())]},
    "model": lambda world: {"model": world.draft()},
    "recycle": lambda world: {},
    "self": lambda world: {},
    "suffix": lambda world: {},
}
"""The options without which a drafter cannot be made. A new drafter needs one line here, and then passes everything."""

RULES = available_rules()
LOSSLESS = tuple(name for name in RULES if make_rule(name).lossless)
PATH_ONLY = tuple(name for name in RULES if make_rule(name).visits_path_only)


def make_found(name: str, world: World) -> Drafter:
    return make_drafter(name, **MINIMAL_OPTIONS[name](world))


def drafters() -> tuple[str, ...]:
    """Names of all drafters; the suite fails where one has no entry above."""
    missing = [name for name in available_drafters() if name not in MINIMAL_OPTIONS]
    assert not missing, f"give drafter {missing[0]!r} an entry in MINIMAL_OPTIONS of {__file__}"
    return available_drafters()


def favour_repeats(tokens: list[int], logits: torch.Tensor) -> torch.Tensor:
    """A processor that depends on the whole text: what was written an odd number of times gains."""
    odd = [token for token in set(tokens) if tokens.count(token) % 2]
    logits[odd] += 0.8
    return logits


def forbid_previous(tokens: list[int], logits: torch.Tensor) -> torch.Tensor:
    return logits.index_fill(0, torch.tensor(tokens[-1:]), float("-inf"))


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cold": {"temperature": 0.3},
    "hot": {"temperature": 2.5},
    "almost-greedy": {"temperature": 1e-9},
    "top-k": {"temperature": 1.0, "top_k": 3},
    "top-k-1": {"temperature": 1.0, "top_k": 1},
    "top-p": {"temperature": 1.0, "top_p": 0.8},
    "min-p": {"temperature": 1.0, "min_p": 0.2},
    "repetition": {"repetition_penalty": 1.4},
    "repetition-below-1": {"repetition_penalty": 0.7},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.9},
    "frequency-below-0": {"frequency_penalty": -0.9},
    "bias": {"logit_bias": {2: 3.0, 0: -2.0}},
    "banned": {"banned_token_ids": [1, 4]},
    "min-new": {"min_new_tokens": 6},
    "budget": {"max_new_tokens": 7},
    "budget-1": {"max_new_tokens": 1},
    "stop-ids": {"stop_token_ids": [3, 6]},
    "stop-ids-min-new": {"stop_token_ids": [3, 6], "min_new_tokens": 5},
    "ignore-eos": {"ignore_eos": True},
    "processor": {"logits_processors": [favour_repeats]},
    "processors": {"logits_processors": [favour_repeats, forbid_previous]},
    "logprobs": {"logprobs": 3},
    "logprobs-0": {"logprobs": 0},
    "depth-1": {"max_depth": 1},
    "depth-0": {"max_depth": 0},
    "everything": {
        "temperature": 0.8,
        "top_k": 6,
        "top_p": 0.95,
        "min_p": 0.02,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "logit_bias": {3: 0.5},
        "banned_token_ids": [5],
        "min_new_tokens": 4,
        "stop_token_ids": [6],
        "logits_processors": [favour_repeats],
        "logprobs": 2,
    },
}
"""Every setting alone and all together. A case without temperature runs greedily and sampled."""

TEXT_ONLY = {"stop", "include_stop"}  # need a tokenizer: test_stops.py


def settings_of(name: str, sampled: bool, seed: int = 11) -> dict[str, Any]:
    given = SETTINGS[name]
    return {"max_new_tokens": 12, "temperature": 1.0 if sampled else 0.0, "seed": seed, **given}


def needs_path_only(settings: dict[str, Any]) -> bool:
    processors: Sequence[Any] = settings.get("logits_processors", ())
    return bool(processors)
