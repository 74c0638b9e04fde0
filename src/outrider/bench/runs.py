"""One timed run of one prompt by one system, and the interleaving that makes runs comparable on a noisy machine."""

from collections.abc import Callable, Collection, Iterator, Sequence
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
    done: Collection[tuple[str, int]] = (),
) -> Iterator[Run]:
    """Every system on every prompt, `repeats` times, neighbours in time, turns changing; a warm-up comes before.

    done: (prompt, repeat) that are left out.
    """
    wanted = [(repeat, *pair) for repeat in range(repeats) for pair in prompts if (pair[0].id, repeat) not in done]
    for system in systems if wanted else ():
        system.run(prompts[0][1], min(WARM_UP_TOKENS, max_new_tokens))
    for turn, (repeat, prompt, tokens) in enumerate(wanted):
        for place in range(len(systems)):
            system = systems[(place + turn) % len(systems)]
            timing = system.run(tokens, max_new_tokens)
            run = Run(system.name, prompt.id, prompt.kind, repeat, len(tokens), timing)
            on_run(run)
            yield run


def done_by_all(runs: Sequence[Run], systems: Sequence[System]) -> set[tuple[str, int]]:
    """Prompts and repeats that every system has run."""
    names = {system.name for system in systems}
    by_place: dict[tuple[str, int], set[str]] = {}
    for run in runs:
        by_place.setdefault((run.prompt_id, run.repeat), set()).add(run.system)
    return {place for place, seen in by_place.items() if names <= seen}
