"""What a request may ask of sampling: every setting, its range, and how a model's own defaults fill the gaps.

A setting left at None takes the model's default (generation_config.json), else the plain default written in
`PLAIN_DEFAULTS`. `resolve` fills everything in; what it returns is what really happens, and is shown to the user as
the effective parameters. Nothing here knows about logits.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from outrider.errors import OptionError, did_you_mean
from outrider.sampling import checks

LogitsProcessor = Callable[[list[int], Tensor], Tensor]
"""(token ids so far, prompt included; logits (V,)) -> logits (V,)."""

PLAIN_DEFAULTS: dict[str, Any] = {
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logit_bias": {},
    "banned_token_ids": (),
    "min_new_tokens": 0,
    "max_new_tokens": 256,
    "stop_token_ids": (),
    "stop": (),
}


NEUTRAL: dict[str, Any] = {  # greedy, with none of the model's own settings
    name: PLAIN_DEFAULTS[name]
    for name in (
        "temperature",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "banned_token_ids",
        "min_new_tokens",
        "stop",
    )
}


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """The settings of one request; None means: the model's default, else the plain one in brackets.

    temperature: 0 = greedy [0, or what the model says if its do_sample is true]; greedy ignores seed and truncation.
    top_k: keep the k likeliest tokens [0 = off]. top_p: then the smallest set with that mass [1 = off].
    min_p: then those at least this likely relative to the likeliest [0 = off].
    repetition_penalty: divides positive and multiplies negative logits of tokens in prompt or output [1 = off].
    presence_penalty: subtracted once from the logits of tokens in the output [0 = off].
    frequency_penalty: subtracted as often as the token stands in the output [0 = off].
    logit_bias: added per token id. banned_token_ids: never written.
    min_new_tokens: end tokens and stop_token_ids are impossible until that many tokens are written, so with 6 an end
    token may be the 7th; the end token itself counts as written [0]. max_new_tokens: the budget [256].
    seed: of the noise [a fresh one, shown in the effective parameters]; without effect when greedy.
    stop_token_ids: token ids that end the text as the model's own end tokens do. stop: strings that end the text and
    are cut off. include_stop: the stop string stays in the text.
    ignore_eos: the model's end tokens do not end the text. logits_processors: called once per written token, in text
    order. logprobs: how many of the likeliest to report per token [None = no report, 0 = the written token only].
    max_depth: most tokens drafted in a round [None = the policy decides, 0 = plain decoding].
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None
    banned_token_ids: Sequence[int] | None = None
    min_new_tokens: int | None = None
    max_new_tokens: int | None = None
    seed: int | None = None
    stop_token_ids: Sequence[int] | None = None
    stop: str | Sequence[str] | None = None
    include_stop: bool = False
    ignore_eos: bool = False
    logits_processors: Sequence[LogitsProcessor] = ()
    logprobs: int | None = None
    max_depth: int | None = None

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            if value is not None or name in _NEVER_NONE:
                object.__setattr__(self, name, check(name, value))

    @classmethod
    def from_options(cls, **options: Any) -> "SamplingParams":
        """Settings from keywords; an unknown name is refused with the nearest known one."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise OptionError(f"unknown sampling option {name!r}{did_you_mean(name, known)}")
        return cls(**options)

    def resolve(self, defaults: Mapping[str, Any], eos_token_ids: Sequence[int], vocab_size: int) -> "SamplingParams":
        """The effective settings: everything filled in and every id known to the vocabulary. Raises OptionError.

        defaults: the model's, under the names of the fields, with do_sample beside them.
        """
        given = _model_defaults(defaults)
        filled = {name: value for name, value in given.items() if getattr(self, name) is None}
        plain = {name: value for name, value in PLAIN_DEFAULTS.items() if getattr(self, name) is None}
        seed = {"seed": secrets.randbelow(1 << 53)} if self.seed is None and "seed" not in filled else {}
        try:
            resolved = replace(self, **{**plain, **filled, **seed})
        except OptionError as error:
            raise OptionError(f"{error} (this value comes from the model's generation defaults)") from error
        _check_against_model(resolved, eos_token_ids, vocab_size)
        return resolved

    @property
    def greedy(self) -> bool:
        """Always the likeliest token, ties to the lowest id."""
        return self.temperature == 0

    @property
    def shapes_logits(self) -> bool:
        """Whether logits are changed before temperature and truncation."""
        return bool(
            self.logit_bias
            or self.banned_token_ids
            or self.min_new_tokens
            or self.logits_processors
            or self.repetition_penalty not in (None, 1.0)
            or self.presence_penalty
            or self.frequency_penalty
        )

    @property
    def truncates(self) -> bool:
        """Whether top-k, top-p or min-p make tokens impossible."""
        return bool(self.top_k or self.top_p not in (None, 1.0) or self.min_p)

    def end_token_ids(self, eos: Sequence[int]) -> tuple[int, ...]:
        """Every id that ends the text: the model's end tokens (unless ignored) and the request's stop ids."""
        return tuple(sorted({*(() if self.ignore_eos else eos), *(self.stop_token_ids or ())}))

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold; processors by name, ids of logit_bias as strings."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        bias = values["logit_bias"]
        values["logit_bias"] = None if bias is None else {str(token_id): value for token_id, value in bias.items()}
        values["logits_processors"] = [processor_name(processor) for processor in self.logits_processors]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def processor_name(processor: Any) -> str:
    """How messages and reports call a user's logits processor: its function's or class's name."""
    return str(getattr(processor, "__name__", type(processor).__name__))


def _model_defaults(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The model's own settings, None dropped. Without do_sample it decodes greedily, whatever temperature it names."""
    known = [field.name for field in fields(SamplingParams)]
    values = {name: value for name, value in defaults.items() if value is not None}
    if values.pop("do_sample", False):
        values.setdefault("temperature", 1.0)
    else:
        values.pop("temperature", None)
    for name in values:
        if name not in known:
            raise OptionError(
                f"the model's generation defaults set {name!r}, which is not supported; remove it from its "
                "generation_config.json"
            )
    return values


def _check_against_model(params: SamplingParams, eos_token_ids: Sequence[int], vocab_size: int) -> None:
    named = {
        "logit_bias": tuple(params.logit_bias or ()),
        "banned_token_ids": params.banned_token_ids or (),
        "stop_token_ids": params.stop_token_ids or (),
        "eos_token_ids": eos_token_ids,
    }
    for name, ids in named.items():
        for token_id in ids:
            if token_id >= vocab_size:
                raise OptionError(f"{name} holds {token_id}, but the model's ids are 0 to {vocab_size - 1}")
    if len(set(params.banned_token_ids or ())) >= vocab_size:
        raise OptionError(f"banned_token_ids bans all {vocab_size} tokens of the model; leave at least one")
    if (params.logprobs or 0) > vocab_size:
        raise OptionError(f"logprobs must be at most the vocabulary's size {vocab_size}, not {params.logprobs}")
    low, high = params.min_new_tokens or 0, params.max_new_tokens or 0
    if low > high:
        raise OptionError(f"min_new_tokens={low} is more than max_new_tokens={high}; lower the one or raise the other")


_NEVER_NONE = ("include_stop", "ignore_eos", "logits_processors")

_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "temperature": checks.real(0.0),
    "top_k": checks.whole(0),
    "top_p": checks.real(0.0, 1.0, above=True),
    "min_p": checks.real(0.0, 1.0),
    "repetition_penalty": checks.real(0.0, above=True),
    "presence_penalty": checks.real(),
    "frequency_penalty": checks.real(),
    "logit_bias": checks.bias,
    "banned_token_ids": checks.token_ids,
    "min_new_tokens": checks.whole(0),
    "max_new_tokens": checks.whole(1),
    "seed": checks.whole(0, (1 << 64) - 1),
    "stop_token_ids": checks.token_ids,
    "stop": checks.strings,
    "include_stop": checks.flag,
    "ignore_eos": checks.flag,
    "logits_processors": checks.callables,
    "logprobs": checks.whole(0),
    "max_depth": checks.whole(0),
}
