"""What transformers hands to a custom loop, in our terms: prompts without padding, settings, processors, criteria.

Settings that mean the same here become SamplingParams, so that drafters know them too; every other logits processor is
called as transformers would call it, with the row's padded ids. Knows no engine and no model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.generation import logits_process, stopping_criteria

from outrider.errors import UnsupportedError

WITHOUT_EFFECT = {"attention_mask", "position_ids", "use_cache", "logits_to_keep", "cache", "past_key_values"}
WARPERS = (
    (logits_process.TemperatureLogitsWarper, "temperature"),
    (logits_process.TopKLogitsWarper, "top_k"),
    (logits_process.TopPLogitsWarper, "top_p"),
    (logits_process.MinPLogitsWarper, "min_p"),
)
CALLS_THE_MODEL = (logits_process.UnbatchedClassifierFreeGuidanceLogitsProcessor,)


@dataclass
class Settings:
    """One call. input_ids (B, L) as given; prompts: its rows without padding. sampling: SamplingParams fields.

    processors, criteria: those that have to be called. record: the caller wants scores or logits.
    """

    input_ids: Tensor
    prompts: list[list[int]]
    sampled: bool
    max_length: int
    pad_token_id: int
    end_token_ids: list[int]
    sampling: dict[str, Any]
    processors: list[Any] = field(default_factory=list[Any])
    criteria: list[Any] = field(default_factory=list[Any])
    record: bool = False

    @property
    def needs_processor(self) -> bool:
        return bool(self.processors) or self.record


def read_settings(
    input_ids: Tensor, processors: Sequence[Any], criteria: Sequence[Any], config: Any, model_kwargs: Mapping[str, Any]
) -> Settings:
    """Raises UnsupportedError, naming it, for anything that would not have its full effect."""
    _refuse_outputs(config, input_ids.shape[0])
    _refuse_model_kwargs(model_kwargs)
    pads = _left_padding(input_ids, model_kwargs.get("attention_mask"), model_kwargs.get("position_ids"))
    prompts = [row[pad:] for row, pad in zip(input_ids.tolist(), pads, strict=True)]
    record = bool(config.return_dict_in_generate and (config.output_scores or config.output_logits))
    sampling, called = {"temperature": 0.0}, list(processors)
    if config.do_sample:
        sampling = {"temperature": 1.0}
    if not record:
        sampling |= _take_warpers(called) if config.do_sample else {}
        sampling |= _take_repetition(called, pads)
    length, ends, rest = _split_criteria(criteria)
    _refuse_for_batches(called, rest, ends, len(prompts))
    return Settings(
        input_ids=input_ids,
        prompts=prompts,
        sampled=bool(config.do_sample),
        max_length=length,
        pad_token_id=0 if config._pad_token_tensor is None else int(config._pad_token_tensor),
        end_token_ids=ends,
        sampling={**sampling, "max_new_tokens": max(1, length - input_ids.shape[1])},
        processors=called,
        criteria=rest,
        record=record,
    )


class RowProcessor:
    """A logits processor of ours that calls transformers' own for one row of the batch; keeps scores if asked to.

    A processor sees the row as it stands in the batch: padded, at its own place, so that per-row arguments fit.
    """

    def __init__(self, settings: Settings, index: int) -> None:
        self._settings = settings
        self._index = index
        self._num_prompt = len(settings.prompts[index])
        self._prompt = settings.input_ids[index].tolist()
        self._scores: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, tokens: list[int], logits: Tensor) -> Tensor:
        written = tokens[self._num_prompt :]
        size = len(self._settings.prompts)
        device = self._settings.input_ids.device
        ids = torch.tensor([[*self._prompt, *written]], device=device).repeat(size, 1)
        raw = logits.to(device=device, dtype=torch.float32)
        scores = raw.repeat(size, 1)
        for processor in self._settings.processors:
            scores = processor(ids, scores)
        row = scores[self._index]
        if self._settings.record:
            self._scores[len(written)] = (row[None].clone(), raw[None].clone())
        return row.to(logits.device)

    def scores(self, count: int) -> tuple[Tensor, ...]:
        """Processed scores (1, V) of the first `count` written tokens."""
        return tuple(self._scores[place][0] for place in range(count))

    def raw_logits(self, count: int) -> tuple[Tensor, ...]:
        """The model's logits (1, V) of the first `count` written tokens."""
        return tuple(self._scores[place][1] for place in range(count))


class Criteria:
    """The stopping criteria of one row beside length and end tokens, asked after each written token."""

    def __init__(self, settings: Settings, index: int, record: RowProcessor | None) -> None:
        self._settings = settings
        self._prompt = settings.input_ids[index].tolist()
        self._record = record if settings.record else None

    def stop(self, written: list[int]) -> bool:
        if not self._settings.criteria:
            return False
        ids = torch.tensor([[*self._prompt, *written]], device=self._settings.input_ids.device)
        scores = self._record.scores(len(written)) if self._record else None
        return any(bool(criterion(ids, scores)[0]) for criterion in self._settings.criteria)


def _refuse_outputs(config: Any, num_rows: int) -> None:
    for name in ("output_attentions", "output_hidden_states"):
        if config.return_dict_in_generate and getattr(config, name, False):
            raise UnsupportedError(f"{name}=True is not supported; call the model on the finished text for them")
    for name in ("output_scores", "output_logits"):
        if config.return_dict_in_generate and getattr(config, name, False) and num_rows > 1:
            raise UnsupportedError(f"{name}=True is supported for one row; this batch has {num_rows}")


def _refuse_model_kwargs(model_kwargs: Mapping[str, Any]) -> None:
    for name, value in model_kwargs.items():
        if value is not None and name not in WITHOUT_EFFECT:
            raise UnsupportedError(f"{name} is not supported; the prompt must be input_ids alone")
    for name in ("cache", "past_key_values"):
        cache = model_kwargs.get(name)
        if getattr(cache, "_is_user_defined", False) or (cache is not None and _cache_length(cache)):
            raise UnsupportedError(f"a {name} of your own is not supported; give the whole text as input_ids")
        if any("Quant" in type(part).__name__ for part in (cache, *getattr(cache, "layers", ()))):
            raise UnsupportedError(
                "a quantized cache changes the text and is not supported; leave out cache_implementation"
            )


def _cache_length(cache: Any) -> int:
    return int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else 0


def _left_padding(input_ids: Tensor, mask: Tensor | None, positions: Tensor | None) -> list[int]:
    """How many padding tokens each row begins with."""
    num_rows, length = input_ids.shape
    seen = torch.ones_like(input_ids) if mask is None else (mask != 0).long()
    pads = [length - int(row.sum()) for row in seen]
    for index, pad in enumerate(pads):
        if pad == length or not bool(seen[index, pad:].all()):
            raise UnsupportedError(
                f"row {index} of attention_mask is not ones after zeros; pad on the left (padding_side='left')"
            )
        expected = torch.arange(length - pad, device=input_ids.device)
        if positions is not None and not torch.equal(positions.expand(num_rows, -1)[index, pad:], expected):
            raise UnsupportedError(f"position_ids of row {index} do not count 0, 1, 2, ...; leave them out")
    return pads


def _take_warpers(processors: list[Any]) -> dict[str, Any]:
    """Temperature, top-k, top-p, min-p at the end of the list, in this order, leave it and become settings."""
    taken: dict[str, Any] = {}
    for kind, name in reversed(WARPERS):
        if processors and type(processors[-1]) is kind and _is_plain(processors[-1]):
            taken[name] = getattr(processors.pop(), name)
    return taken


def _is_plain(warper: Any) -> bool:
    least = getattr(warper, "min_tokens_to_keep", 1)
    return getattr(warper, "filter_value", -math.inf) == -math.inf and least == 1


def _take_repetition(processors: list[Any], pads: Sequence[int]) -> dict[str, Any]:
    """The repetition penalty, if it comes first and leaves out nothing but padding."""
    first = processors[0] if processors else None
    if type(first) is not logits_process.RepetitionPenaltyLogitsProcessor:
        return {}
    ignored = first.prompt_ignore_length
    same = not any(pads) if ignored is None else isinstance(ignored, Tensor) and ignored.tolist() == list(pads)
    return {"repetition_penalty": float(processors.pop(0).penalty)} if same else {}


def _split_criteria(criteria: Sequence[Any]) -> tuple[int, list[int], list[Any]]:
    """(length in all, end tokens, the rest)."""
    length, ends, rest = 0, list[int](), list[Any]()
    for criterion in criteria:
        if type(criterion) is stopping_criteria.MaxLengthCriteria:
            length = min(length or criterion.max_length, criterion.max_length)
        elif type(criterion) is stopping_criteria.EosTokenCriteria:
            ends += [token for token in criterion.eos_token_id.flatten().tolist() if token >= 0]
        else:
            rest.append(criterion)
    if not length:
        raise UnsupportedError("no length limit was given; set max_new_tokens or max_length")
    return length, ends, rest


def _refuse_for_batches(processors: Sequence[Any], criteria: Sequence[Any], ends: Sequence[int], num_rows: int) -> None:
    for processor in processors:
        if isinstance(processor, CALLS_THE_MODEL):
            raise UnsupportedError("guidance_scale is not supported: it needs passes of its own beside every token")
    if num_rows == 1:
        return
    for kind, items, home in (
        ("logits processor", processors, logits_process),
        ("stopping criterion", criteria, stopping_criteria),
    ):
        for item in items:
            if type(item).__module__ != home.__name__:
                raise UnsupportedError(
                    f"{kind} {type(item).__name__} sees one row at a time here, and this batch has {num_rows}; "
                    "generate its rows one by one"
                )
    if criteria and not ends:
        raise UnsupportedError("stopping criteria for a batch without eos_token_id: rows would go on after their end")
