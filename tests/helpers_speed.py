"""Runs without the run-time checks of shapes, which cost four times what they check; for tests of many thousand tokens.

The same code runs checked in the other tests.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping


@contextmanager
def shapes_unchecked() -> Iterator[None]:
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
