"""One timed run of one prompt by one system, and the interleaving that makes runs comparable on a noisy machine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.prompts import TestPrompt
from outrider.types import PhaseSeconds

WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Timing:
    """What a system did with one prompt. seconds: wall-clock in all; prefill: up to the first decoding pass.

    decoded: tokens that the remaining seconds brought (transformers takes its first ones from the prefill pass).
    rounds: passes of the target after prefill. phases: where the time went, for our own systems.
    """

    token_ids: tuple[int, ...]
    seconds: float
    prefill: float
    decoded: int
    rounds: int
    proposed: int = 0
    accepted: int = 0
    phases: PhaseSeconds | None = None

    @property
    def rate(self) -> float:
        """Decoded tokens per second of decoding; 0 where nothing was decoded."""
        spent = self.seconds - self.prefill
        return self.decoded / spent if spent > 0 else 0.0


class System(Protocol):
    """Something that writes text: ours with a drafter, ours without, transformers' modes.

    family: "outrider" or "transformers"; method: "plain", "lookup", "model", ... ; a method of one family is compared
    with the same of the other.
    """

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def method(self) -> str: ...

    def run(self, prompt: Sequence[int], max_new_tokens: int) -> Timing: ...


@dataclass(frozen=True)
class Run:
    """A timing and what it is of."""

    system: str
    prompt_id: str
    kind: str
    repeat: int
    num_prompt: int
    timing: Timing


def measure(
    systems: Sequence[System],
    prompts: Sequence[tuple[TestPrompt, Sequence[int]]],
    max_new_tokens: int,
    repeats: int,
    on_run: Callable[[Run], None] = lambda run: None,
) -> Iterator[Run]:
    """Every system on every prompt, `repeats` times, neighbours in time, turns changing; a warm-up comes before."""
    for system in systems:
        system.run(prompts[0][1], min(WARM_UP_TOKENS, max_new_tokens))
    turn = 0
    for repeat in range(repeats):
        for prompt, tokens in prompts:
            for place in range(len(systems)):
                system = systems[(place + turn) % len(systems)]
                timing = system.run(tokens, max_new_tokens)
                run = Run(system.name, prompt.id, prompt.kind, repeat, len(tokens), timing)
                on_run(run)
                yield run
            turn += 1
