"""The systems that are compared, all in one process on the same weights: ours, and transformers' own modes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation.streamers import BaseStreamer

from outrider.bench.runs import Timing
from outrider.engine.engine import Engine
from outrider.sampling.params import NEUTRAL


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
            **NEUTRAL,
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
        passes, config = list[int](), self._config(max_new_tokens)
        hook = self.model.register_forward_pre_hook(lambda module, inputs: passes.append(1))
        try:
            clock = _Clock()
            out = self.model.generate(  # pyright: ignore[reportCallIssue]
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=config,
                streamer=clock,  # pyright: ignore[reportArgumentType]
                assistant_model=self.assistant,  # pyright: ignore[reportArgumentType]
            )
            seconds = time.perf_counter() - clock.start
        finally:
            hook.remove()
        written = tuple(out[0, len(prompt) :].tolist())  # pyright: ignore
        rounds = max(1, len(passes) - 1)
        return Timing(written, seconds, clock.first - clock.start, len(written) - clock.num_first, rounds)

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


class _Clock(BaseStreamer):
    """Notes when the tokens of the first pass arrive, and how many they are: the end of prefill.

    transformers' assisted modes put their first candidates into the prompt's own pass, so these may be several.
    """

    def __init__(self) -> None:
        self.start = self.first = time.perf_counter()
        self.num_first = 0
        self._puts = 0

    def put(self, value: torch.Tensor) -> None:
        self._puts += 1
        if self._puts == 2:  # the first is the prompt
            self.first, self.num_first = time.perf_counter(), value.numel()

    def end(self) -> None:
        """Nothing to do."""
