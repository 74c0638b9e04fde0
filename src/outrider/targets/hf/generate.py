"""transformers' `generate` with Outrider inside: `model.generate(..., custom_generate=transformers_generate)`.

transformers prepares everything (prompt, padding, settings, logits processors, stopping criteria) and hands it to
`transformers_generate` in place of its own loop. What is handed over has its full effect, or is refused by name. This
file is an edge: it stands here beside the target that it needs, and uses the engine. Checked with transformers 5.24.
"""

import sys
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.generation.utils import GenerateDecoderOnlyOutput

from outrider.api import resolve_drafter
from outrider.drafters.base import Drafter
from outrider.engine.engine import Engine, Handle
from outrider.engine.request import Request
from outrider.errors import UnsupportedError
from outrider.sampling.params import SamplingParams
from outrider.targets.hf.facts import DEFAULT_MAX_LENGTH, length_limit
from outrider.targets.hf.generate_settings import Criteria, RowProcessor, Settings, read_settings
from outrider.targets.hf.target import HFTarget

_targets: WeakKeyDictionary[PreTrainedModel, tuple[object, HFTarget]] = WeakKeyDictionary()


def transformers_generate(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    synced_gpus: bool = False,
    streamer: Any = None,
    drafter: str | Drafter | PreTrainedModel | None = "lookup",
    max_depth: int | None = None,
    rule: str = "identical",
    **model_kwargs: Any,
) -> GenerateDecoderOnlyOutput | Tensor:
    """What transformers' own loop would return: ids (B, L + new), or its output object if asked for.

    drafter: a name or spec, a Drafter, a smaller transformers model, or None. max_depth: most tokens drafted in a
    round. Greedy ids are those of transformers up to rounding; sampled ones have the same law and draw their seed from
    torch's global generator. In top-k exactly k tokens stay where transformers keeps all that tie for the last place.
    The output object's `cache` is None: the cache is not transformers'. The model is left as it was. The first call
    prepares it (weights are shared, though float32 layers are packed anew); later calls reuse that until its weights
    change. Raises UnsupportedError for what would not have its effect, OptionError, PairingError.
    """
    streamer = streamer or _callers("streamer")
    _refuse_other_modes(model, generation_config, synced_gpus)
    settings = read_settings(input_ids, logits_processor, stopping_criteria, generation_config, model_kwargs)
    if streamer is not None and len(settings.prompts) > 1:
        raise UnsupportedError(f"a streamer takes one row; this batch has {len(settings.prompts)}")
    target = _target_of(model, settings.max_length)
    engine = Engine(target, _drafter_of(drafter), rule=rule)
    rows = [_Row(engine, settings, index, max_depth, streamer) for index in range(len(settings.prompts))]
    _run(engine, rows)
    if streamer is not None:
        streamer.end()
    return _output(input_ids, rows, settings, generation_config)


class _Row:
    """One row of the batch on its way through the engine."""

    def __init__(self, engine: Engine, settings: Settings, index: int, max_depth: int | None, streamer: Any) -> None:
        self.processor = RowProcessor(settings, index) if settings.needs_processor else None
        self.criteria = Criteria(settings, index, self.processor)
        self.written: list[int] = []
        self._streamer = streamer
        ends = [token for token in settings.end_token_ids if token < engine.target.info.vocab_size]
        params = SamplingParams(
            seed=int(torch.randint(1 << 53, ())) if settings.sampled else 0,
            max_depth=max_depth,
            logits_processors=(self.processor,) if self.processor else (),
            ignore_eos=True,
            stop_token_ids=ends,
            **settings.sampling,
        )
        self.handle: Handle = engine.submit(Request(settings.prompts[index], params))

    def take(self) -> None:
        """Pass on the new tokens up to the first at which a stopping criterion holds; beyond it nothing was written."""
        for event in self.handle.take_events():
            for token in event.token_ids:
                self.written.append(token)
                if self._streamer is not None:
                    self._streamer.put(torch.tensor([token]))
                if self.criteria.stop(self.written):
                    self.handle.cancel()
                    return
        if self.handle.done and (error := self.handle.completion.error) is not None:
            raise error


def _run(engine: Engine, rows: list[_Row]) -> None:
    try:
        while not all(row.handle.done for row in rows):
            engine.step()
            for row in rows:
                row.take()
    finally:
        for row in rows:
            row.handle.cancel()


def _output(
    input_ids: Tensor, rows: list[_Row], settings: Settings, generation_config: Any
) -> GenerateDecoderOnlyOutput | Tensor:
    """Ids padded to the longest row, as transformers pads rows that end early."""
    width = max(len(row.written) for row in rows)
    padded = [row.written + [settings.pad_token_id] * (width - len(row.written)) for row in rows]
    sequences = torch.cat([input_ids, torch.tensor(padded, dtype=input_ids.dtype, device=input_ids.device)], dim=1)
    if not generation_config.return_dict_in_generate:
        return sequences
    record = rows[0].processor
    return GenerateDecoderOnlyOutput(
        sequences=sequences,  # pyright: ignore[reportArgumentType]
        scores=record.scores(width) if record and generation_config.output_scores else None,  # pyright: ignore[reportArgumentType]
        logits=record.raw_logits(width) if record and generation_config.output_logits else None,  # pyright: ignore[reportArgumentType]
    )


def _refuse_other_modes(model: PreTrainedModel, generation_config: Any, synced_gpus: bool) -> None:
    assistant = _callers("assistant_model")
    mode = generation_config.get_generation_mode(assistant).value
    if assistant is not None or mode == "assisted_generation":
        raise UnsupportedError("transformers' own assisted generation cannot be combined with ours; give drafter=...")
    if mode not in ("greedy_search", "sample"):
        raise UnsupportedError(f"generation mode {mode!r} is not supported (num_beams={generation_config.num_beams})")
    if synced_gpus:
        raise UnsupportedError("synced_gpus=True is not supported; generate on one process")
    if model.training:
        raise UnsupportedError("the model is in training mode, where dropout changes its text; call model.eval()")


def _callers(name: str) -> Any:
    """An argument of the `generate` call around us that transformers keeps from custom loops (5.24), if it was given.

    Without a look at it a streamer would wait for ever, and an assistant_model would silently do nothing.
    """
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    for _ in range(4):
        if frame is None:
            return None
        if frame.f_code.co_name == "generate" and "decoding_method" in frame.f_locals:
            return frame.f_locals.get(name)
        frame = frame.f_back
    return None


def _target_of(model: PreTrainedModel, needed: int) -> HFTarget:
    """The model's target, made at the first call and again whenever its modules or weights have changed."""
    limit = length_limit(model.config)
    if limit is not None and needed > limit:
        raise UnsupportedError(f"max_length is {needed}, beyond the {limit} positions of {model.config.model_type}")
    print_now = _fingerprint(model)
    found = _targets.get(model)
    if found and found[0] == print_now and found[1].info.max_length >= needed:
        return found[1]
    target = HFTarget(model, max_length=limit or max(needed, DEFAULT_MAX_LENGTH))
    _targets[model] = (print_now, target)
    return target


def _fingerprint(model: PreTrainedModel) -> object:
    """Changes whenever a module or a tensor is replaced, and when a tensor is written to in place."""
    modules = tuple((id(module), type(module)) for module in model.modules())
    tensors = (*model.parameters(), *model.buffers())
    return modules, tuple((t.data_ptr(), t._version, t.dtype, t.shape) for t in tensors)


def _drafter_of(drafter: str | Drafter | PreTrainedModel | None) -> Drafter | Mapping[str, Drafter] | None:
    if not isinstance(drafter, PreTrainedModel):
        return resolve_drafter(drafter)
    from outrider.drafters.model import ModelDrafter

    return ModelDrafter(_target_of(drafter, 1))
