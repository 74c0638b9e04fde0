"""A stopwatch that splits a step into phases."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal, get_args

from outrider.types import PhaseSeconds

Phase = Literal["prefill", "draft", "score", "accept"]


class Stopwatch:
    """Adds up seconds by phase; what no phase claims is the rest."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._spent: dict[str, float] = dict.fromkeys(get_args(Phase), 0.0)

    @contextmanager
    def __call__(self, phase: Phase) -> Generator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._spent[phase] += time.perf_counter() - start

    def read(self) -> PhaseSeconds:
        """Seconds so far."""
        rest = time.perf_counter() - self._start - sum(self._spent.values())
        return PhaseSeconds(**self._spent, rest=rest)
