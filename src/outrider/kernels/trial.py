"""Runs a freshly compiled library once, in a process of its own: `python trial.py LIBRARY OPENMP_RUNTIME`.

A wrong instruction kills this process instead of the user's. Uses the standard library alone, so that it starts fast;
exits 0 if a small product of every weight type is exact, else raises.
"""

import ctypes
import sys
from array import array

ROWS, OUTPUTS, SIZE = 7, 13, 37
LARGEST = 32767  # with it in a row, int8 weights see the row's whole numbers as they are (scale 1)
TYPES = {"bf16": 0, "fp32": 1, "int8": 2}


class Linear(ctypes.Structure):
    """csrc/linear.h's Linear; declared here as well because this script imports nothing of the package."""

    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("num_outputs", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("weight_type", ctypes.c_int32),
        ("bias_type", ctypes.c_int32),
    )


def stored(values: list[int], kind: str) -> "array[int] | array[float]":
    """Small integers, exact in every type, as they lie in memory."""
    if kind == "bf16":
        return array("H", array("H", array("f", values).tobytes())[1::2])
    return array("f" if kind == "fp32" else "b", values)


def address(values: "array[int] | array[float]") -> int:
    """Where the array's first element lies."""
    return values.buffer_info()[0]


def check(library: ctypes.CDLL, kind: str) -> None:
    """Compare a product of small integers, whose sums are exact in fp32, with Python's own."""
    weight = [(i * 7) % 11 - 5 for i in range(OUTPUTS * SIZE)]
    x = [(i * 5) % 13 - 6 if i % SIZE else LARGEST for i in range(ROWS * SIZE)]
    weights, inputs, ones = stored(weight, kind), stored(x, "fp32"), array("f", [1.0] * OUTPUTS)
    outputs = array("f", [0.0] * (ROWS * OUTPUTS))
    scale = address(ones) if kind == "int8" else None
    linear = Linear(address(weights), scale, address(ones), OUTPUTS, SIZE, TYPES[kind], TYPES["fp32"])
    arguments = (ctypes.c_void_p(address(inputs)), ctypes.c_int64(ROWS), 1, ctypes.c_void_p(address(outputs)), 2)
    if library.outrider_linear(ctypes.byref(linear), *arguments):
        raise MemoryError("no memory for the activations")
    for m in range(ROWS):
        for n in range(OUTPUTS):
            expected = 1 + sum(x[m * SIZE + k] * weight[n * SIZE + k] for k in range(SIZE))
            if outputs[m * OUTPUTS + n] != expected:
                raise ArithmeticError(f"{kind}: row {m}, output {n}: {outputs[m * OUTPUTS + n]}, not {expected}")


def main(path: str, runtime: str) -> None:
    """Load the runtime, then the library, and check every weight type."""
    ctypes.CDLL(runtime, mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(path)
    for kind in TYPES:
        check(library, kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
