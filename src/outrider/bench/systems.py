"""The systems that are compared, all in one process on the same weights: ours, and transformers' own modes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation.logits_process import LogitsProcessor, LogitsProcessorList

from outrider.bench.runs import Timing
from outrider.engine.engine import Engine


@dataclass(frozen=True)
class Ours:
    """Our engine, greedy, without any setting of the model's own. max_depth: None = the drafter's usual depth."""

    name: str
    method: str
    engine: Engine
    max_depth: int | None = None
    family: str = "outrider"

    def run(self, prompt: Sequence[int], max_new_tokens: int) -> Timing:
        start = time.perf_counter()
        completion = self.engine.generate(
            list(prompt),
            temperature=0.0,
            repetition_penalty=1.0,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            logit_bias={},
            banned_token_ids=(),
            min_new_tokens=0,
            stop=(),
            max_new_tokens=max_new_tokens,
            max_depth=self.max_depth,
        )
        seconds = time.perf_counter() - start
        stats = completion.stats
        return Timing(
            token_ids=completion.token_ids,
            seconds=seconds,
            prefill=stats.seconds.prefill,
            decoded=len(completion.token_ids),
            rounds=stats.rounds,
            proposed=stats.proposed,
            accepted=stats.accepted,
            phases=stats.seconds,
        )


@dataclass(frozen=True)
class Transformers:
    """`model.generate`, greedy, in one of its modes, whose own defaults are left as they are.

    settings: of its GenerationConfig. assistant: its draft model.
    """

    name: str
    method: str
    model: PreTrainedModel
    eos_token_ids: Sequence[int]
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    assistant: PreTrainedModel | None = None
    family: str = "transformers"

    def run(self, prompt: Sequence[int], max_new_tokens: int) -> Timing:
        ids = torch.tensor([list(prompt)], device=self.model.device)
        clock, passes = _Clock(), list[int]()
        hook = self.model.register_forward_pre_hook(lambda module, inputs: passes.append(1))
        config = self._config(max_new_tokens)
        try:
            start = time.perf_counter()
            out = self.model.generate(  # pyright: ignore[reportCallIssue]
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=config,
                logits_processor=LogitsProcessorList([clock]),
                assistant_model=self.assistant,  # pyright: ignore[reportArgumentType]
            )
            seconds = time.perf_counter() - start
        finally:
            hook.remove()
        written = tuple(out[0, len(prompt) :].tolist())  # pyright: ignore
        prefill = (clock.first or start) - start
        return Timing(written, seconds, prefill, max(0, len(written) - 1), max(1, len(passes) - 1))

    def _config(self, max_new_tokens: int) -> GenerationConfig:
        ends = list(self.eos_token_ids)
        return GenerationConfig(
            do_sample=False,
            repetition_penalty=1.0,
            max_new_tokens=max_new_tokens,
            eos_token_id=ends or None,
            pad_token_id=ends[0] if ends else None,
            **self.settings,
        )


class _Clock(LogitsProcessor):
    """Notes when the first logits arrive: the end of prefill."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.first: float | None = None
        self._now = now

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # pyright: ignore
        if self.first is None:
            self.first = self._now()
        return scores
