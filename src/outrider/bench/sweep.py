"""Every drafter under every rule and temperature on the same prompts, between two plain runs: one entry per run.

Under `identical` each text must be the plain one, token for token. The other rules keep the law, not the text, so they
have no text to be compared with (the tests of their law are in tests/conformance); at temperature 0 all rules write the
same, and `identical` stands for them. Entries are plain values, so that a sweep can be stopped and gone on with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from outrider.drafters.base import Drafter
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.prompts import TestPrompt
from outrider.sampling.params import SamplingParams
from outrider.targets.base import Target

PLAIN = "plain"
AGAIN = "plain again"  # the same once more, after all others: how far its speed is from the first is noise
PLAINS = (PLAIN, AGAIN)
SEED = 11


@dataclass(frozen=True)
class Entry:
    """One run. seconds: of decoding, without prefill; draft_seconds: of them, drafting. equal: to plain, or None."""

    prompt_id: str
    kind: str
    temperature: float
    drafter: str
    rule: str
    num_tokens: int
    rounds: int
    proposed: int
    accepted: int
    seconds: float
    draft_seconds: float
    equal: bool | None

    @property
    def key(self) -> tuple[str, float, str, str]:
        return self.prompt_id, self.temperature, self.drafter, self.rule


class Sweep:
    """policy: "fixed" or "auto". One engine runs all: a prompt is computed once and stays warm for every run."""

    def __init__(self, target: Target, drafters: Mapping[str, Drafter], policy: str, max_new_tokens: int) -> None:
        self._target = target
        self._drafters = tuple(drafters)
        self._engine = Engine(target, drafters, policy=policy, reuse_prefixes=True)
        self._max_new_tokens = max_new_tokens

    def run(
        self,
        prompts: Sequence[TestPrompt],
        temperatures: Sequence[float],
        rules: Sequence[str],
        earlier: Sequence[Entry] = (),
        on_entry: Callable[[Entry], None] = lambda entry: None,
    ) -> Iterator[Entry]:
        """Entries that `earlier` lacks, prompt by prompt, plain first, so that neighbours in time are compared."""
        known = {entry.key for entry in earlier}
        for prompt, temperature in product(prompts, temperatures):
            wanted = [key for key in self._keys(prompt, temperature, rules) if key not in known]
            if not wanted:
                continue
            plain, text = self._one(prompt, temperature, PLAIN, "identical", None)
            if plain.key in wanted:
                on_entry(plain)
                yield plain
            for _, _, drafter, rule in wanted[plain.key in wanted :]:
                entry, _ = self._one(prompt, temperature, drafter, rule, text)
                on_entry(entry)
                yield entry

    def _keys(self, prompt: TestPrompt, temperature: float, rules: Sequence[str]) -> list[tuple[str, float, str, str]]:
        chosen = rules if temperature > 0 else ["identical"]
        pairs = [(PLAIN, "identical"), *product(self._drafters, chosen), (AGAIN, "identical")]
        return [(prompt.id, temperature, drafter, rule) for drafter, rule in pairs]

    def _one(
        self, prompt: TestPrompt, temperature: float, drafter: str, rule: str, plain: tuple[int, ...] | None
    ) -> tuple[Entry, tuple[int, ...]]:
        tokens = prompt.encode(self._target.tokenizer)
        depth, name = (0, None) if drafter in PLAINS else (None, drafter)
        params = SamplingParams(
            temperature=temperature, seed=SEED, max_new_tokens=self._max_new_tokens, max_depth=depth
        )
        handle = self._engine.submit(Request(tokens, params, rule=rule, drafter=name))
        while not handle.done:
            self._engine.step()
        stats, text = handle.completion.stats, handle.completion.token_ids
        seconds = stats.seconds
        return (
            Entry(
                prompt.id,
                prompt.kind,
                temperature,
                drafter,
                rule,
                len(text),
                stats.rounds,
                stats.proposed,
                stats.accepted,
                seconds.draft + seconds.score + seconds.accept + seconds.rest,
                seconds.draft,
                text == plain if plain is not None and rule == "identical" else None,
            ),
            text,
        )
