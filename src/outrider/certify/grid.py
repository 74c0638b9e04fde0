"""What is to be compared: every prompt at every temperature, seed and depth.

A job is one pair of runs. Its key names it in the JSON file, so that a later run can go on where an earlier one ended.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outrider.acceptance.base import Rule
from outrider.errors import OptionError

LAW_NOTE = (
    "rule {rule!r} keeps the target's law, not its very tokens, when sampling; only greedy runs are compared here, and "
    "the law itself is proved by the statistical tests (docs/correctness.md)"
)


@dataclass(frozen=True)
class Job:
    """One prompt under one temperature, seed and depth."""

    prompt_id: str
    kind: str
    prompt_token_ids: tuple[int, ...]
    temperature: float
    seed: int
    depth: int

    @property
    def key(self) -> str:
        return f"{self.prompt_id} t={self.temperature:g} seed={self.seed} depth={self.depth}"


@dataclass(frozen=True)
class Grid:
    """temperatures: 0 is greedy and runs one seed only, for it writes the same text for all. seeds: how many, from 0.

    depths: most tokens drafted in a round. max_new_tokens: the budget. batch: requests that share a pass.
    """

    temperatures: Sequence[float] = (0.0,)
    seeds: int = 1
    depths: Sequence[int] = (4,)
    max_new_tokens: int = 64
    batch: int = 4

    def __post_init__(self) -> None:
        for name, low in (("seeds", 1), ("max_new_tokens", 1), ("batch", 1)):
            _check_whole(name, getattr(self, name), low)
        for depth in self.depths:
            _check_whole("depth", depth, 1, "; 0 is plain decoding, which every depth is compared with")
        if not self.depths or not self.temperatures:
            raise OptionError("give at least one depth and one temperature")
        for temperature in self.temperatures:
            if not 0 <= temperature < float("inf"):
                raise OptionError(f"temperature is {temperature!r}; it must be a finite number of at least 0")

    def settings(self) -> list[tuple[float, int]]:
        """Every (temperature, seed) once, in the order given."""
        pairs = [(t, seed) for t in self.temperatures for seed in range(self.seeds if t else 1)]
        return list(dict.fromkeys(pairs))

    def jobs(self, prompts: Sequence[tuple[str, str, Sequence[int]]]) -> Iterator[Job]:
        """All jobs; prompts: (id, kind, token ids)."""
        for temperature, seed in self.settings():
            for prompt_id, kind, tokens in prompts:
                for depth in dict.fromkeys(self.depths):
                    yield Job(prompt_id, kind, tuple(tokens), temperature, seed, depth)


def comparable(grid: Grid, rule: Rule) -> tuple[Grid, list[str]]:
    """The part of the grid where the rule promises equal tokens, and notes on what is left out and why."""
    notes: list[str] = []
    if not rule.lossless:
        notes.append(f"rule {rule.name!r} is lossy: it does not promise the target's text, so differences are expected")
    if rule.shared_noise or not any(grid.temperatures):
        return grid, notes
    notes.append(LAW_NOTE.format(rule=rule.name))
    return Grid((0.0,), 1, grid.depths, grid.max_new_tokens, grid.batch), notes


def _check_whole(name: str, value: object, low: int, hint: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise OptionError(f"{name} is {value!r}; it must be a whole number of at least {low}{hint}")
