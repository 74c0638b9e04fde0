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
MAX_ROPES = 2  # tables of a pass, as in csrc/decoder.h


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


class ShapeStruct(ctypes.Structure):
    """csrc/decoder.h's Shape."""

    _fields_ = (
        ("hidden", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("key_heads", ctypes.c_int64),
        ("head_size", ctypes.c_int64),
        ("inner", ctypes.c_int64),
        ("epsilon", ctypes.c_float),
        ("activation", ctypes.c_int32),
    )


class LayerStruct(ctypes.Structure):
    """csrc/decoder.h's Layer: seven products, six norms, its place and its attention's settings."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "output", "gate", "up", "down")),
        *((name, ctypes.c_void_p) for name in ("input_norm", "mlp_norm", "after_attention", "after_mlp")),
        *((name, ctypes.c_void_p) for name in ("query_norm", "key_norm")),
        ("index", ctypes.c_int64),
        ("window", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("rope", ctypes.c_int32),
    )


class RowStruct(ctypes.Structure):
    """csrc/decoder.h's Row."""

    _fields_ = (
        ("buffer", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("start", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("chain", ctypes.c_int64),
    )


class PassStruct(ctypes.Structure):
    """csrc/decoder.h's Pass; the arrays and tensors that it names must outlive the call."""

    _fields_ = (
        ("shape", ctypes.c_void_p),
        ("layers", ctypes.POINTER(ctypes.c_void_p)),
        ("rows", ctypes.POINTER(RowStruct)),
        ("parents", ctypes.POINTER(ctypes.c_int32)),
        ("ropes", ctypes.c_void_p * MAX_ROPES),
        ("states", ctypes.c_void_p),
        ("captured", ctypes.POINTER(ctypes.c_void_p)),
        ("wanted", ctypes.c_void_p),
        ("final_norm", ctypes.c_void_p),
        ("final", ctypes.c_void_p),
        ("num_layers", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
        ("num_nodes", ctypes.c_int64),
        ("num_wanted", ctypes.c_int64),
        ("num_threads", ctypes.c_int32),
    )


class Library:
    """The C functions, with their argument types declared."""

    def __init__(self, path: str) -> None:
        functions = ctypes.CDLL(path)
        pointer, int32, int64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
        self.linear = functions.outrider_linear
        self.linear.argtypes = [pointer, pointer, int64, int32, pointer, int32]
        self.linear.restype = ctypes.c_int
        self.decode = functions.outrider_decode
        self.decode.argtypes = [pointer]
        self.decode.restype = ctypes.c_int
        self.activate = functions.outrider_activate
        self.activate.argtypes = [int32, pointer, pointer, pointer, int64]
        self.activate.restype = None
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
