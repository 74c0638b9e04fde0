"""What this machine can do at best in a second: bytes that it reads, operations that it computes."""

import time
from collections.abc import Callable, Sequence

import torch

from outrider.kernels.library import Library

CACHE_BYTES = 48_000_000  # more than any cache holds


def measure_limits(library: Library) -> tuple[float, float]:
    """Bytes per second that all threads read, and floating point operations per second that they do, at best."""
    threads = torch.get_num_threads()
    data = torch.ones(CACHE_BYTES)
    read = min(seconds_of([lambda: library.read(data.data_ptr(), data.numel(), threads)]) for _ in range(5))
    compute = min(seconds_of([lambda: library.multiply(threads)]) for _ in range(5))
    return data.numel() * 4 / read, library.multiply_work() * threads / compute


def seconds_of(calls: Sequence[Callable[[], object]]) -> float:
    """That the calls take; of a single thread, without those in which others ran."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    for call in calls:
        call()
    return clock() - start
