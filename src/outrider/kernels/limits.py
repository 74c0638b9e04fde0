"""What this machine can do at best in a second: bytes that it reads, operations that it computes."""

import time
from collections.abc import Callable, Sequence

import torch

from outrider.kernels.library import Library

CACHE_BYTES = 48_000_000  # more than any cache holds


def bytes_per_second(library: Library) -> float:
    """That all threads read, at best."""
    threads, data = torch.get_num_threads(), torch.ones(CACHE_BYTES)
    return data.numel() * 4 / _best(lambda: library.read(data.data_ptr(), data.numel(), threads))


def operations_per_second(library: Library) -> float:
    """Floating point operations that all threads do, at best."""
    threads = torch.get_num_threads()
    return library.multiply_work() * threads / _best(lambda: library.multiply(threads))


def _best(call: Callable[[], object]) -> float:
    return min(seconds_of([call]) for _ in range(5))


def seconds_of(calls: Sequence[Callable[[], object]]) -> float:
    """That the calls take; of a single thread, without those in which others ran."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    for call in calls:
        call()
    return clock() - start
