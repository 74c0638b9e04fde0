"""The compiled library's C interface, loaded once per process.

Knows csrc/'s signatures and structs; the callers (linear.py, __main__.py) know what to pass. ctypes releases the GIL
for the duration of a call.
"""

import ctypes
import logging
import os
from functools import cache

import torch

from outrider.kernels.build import BuildError, build

logger = logging.getLogger("outrider.kernels")

SWITCH = "OUTRIDER_KERNELS"
TYPE_CODES = {torch.bfloat16: 0, torch.float32: 1, torch.int8: 2}  # as in csrc/linear.h


class LinearStruct(ctypes.Structure):
    """csrc/linear.h's Linear: addresses and sizes of one layer; the tensors must outlive it."""

    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("num_outputs", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("weight_type", ctypes.c_int32),
        ("bias_type", ctypes.c_int32),
    )


class Library:
    """The C functions, with their argument types declared."""

    def __init__(self, path: str) -> None:
        functions = ctypes.CDLL(path)
        pointer, int32, int64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
        self.linear = functions.outrider_linear
        self.linear.argtypes = [pointer, pointer, int64, int32, pointer, int32]
        self.linear.restype = ctypes.c_int
        self.read = functions.outrider_read
        self.read.argtypes = [pointer, int64, int32]
        self.read.restype = ctypes.c_float
        self.multiply = functions.outrider_multiply
        self.multiply.argtypes = [int32]
        self.multiply.restype = ctypes.c_float
        self.multiply_work = functions.outrider_multiply_work
        self.multiply_work.argtypes = []
        self.multiply_work.restype = int64


def load() -> Library | None:
    """The library, or None where there is none (`available` says why). Built at the first call; then free."""
    return _load()[0]


def available() -> tuple[bool, str]:
    """Whether the kernels work here, and why (not)."""
    library, reason = _load()
    return library is not None, reason


@cache
def _load() -> tuple[Library | None, str]:
    try:
        if os.environ.get(SWITCH, "1") == "0":
            raise BuildError(f"switched off by {SWITCH}=0")
        path = str(build())
        library, reason = Library(path), f"compiled as {path}"
    except (BuildError, OSError) as error:
        library, reason = None, str(error)
    logger.info("native kernels: %s", reason)
    return library, reason
