"""What makes tests of many thousand tokens quick: no run-time checks of shapes, and one thread.

The checks cost four times what they check (the same code runs checked in the modules' own tests); and passes of a few
microseconds only lose by being shared out, the more so where other programs run.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping
import torch


@contextmanager
def quick() -> Iterator[None]:
    checked, threads = not jaxtyping.config.jaxtyping_disable, torch.get_num_threads()
    jaxtyping.config.update("jaxtyping_disable", True)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", not checked)
        torch.set_num_threads(threads)
