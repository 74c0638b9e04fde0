"""Runs a fresh library's decoder once, as trial.py does its products: `python trial_decoder.py LIBRARY OPENMP_RUNTIME`.

One layer over a tree of three nodes below one committed token, against the same sums written plainly. Uses the standard
library alone; exits 0 if the results agree, else raises.
"""

import ctypes
import math
import sys
from array import array
from collections.abc import Sequence
from typing import Any

HIDDEN, HEADS, SIZE, INNER = 21, 3, 10, 37  # one key head, serves all three
SLOTS, NODES, PARENTS = 8, 3, (-1, 0, 0)
EPSILON, SCALE, TOLERANCE = 1e-5, 0.3, 1e-4
NORMS = ("input_norm", "mlp_norm", "after_attention", "after_mlp", "query_norm", "key_norm")
SHAPES = {
    "query": (HEADS * SIZE, HIDDEN),
    "key": (SIZE, HIDDEN),
    "value": (SIZE, HIDDEN),
    "output": (HIDDEN, HEADS * SIZE),
    "gate": (INNER, HIDDEN),
    "up": (INNER, HIDDEN),
    "down": (HIDDEN, INNER),
}


class Linear(ctypes.Structure):
    """csrc/linear.h's Linear; this and the structs below are declared here too: nothing of the package is imported."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weight", "scale", "bias")),
        *((name, ctypes.c_int64) for name in ("num_outputs", "size")),
        *((name, ctypes.c_int32) for name in ("weight_type", "bias_type")),
    )


class Shape(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("hidden", "heads", "key_heads", "head_size", "inner")),
        ("epsilon", ctypes.c_float),
        ("activation", ctypes.c_int32),
    )


class Layer(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in SHAPES),
        *(
            (name, ctypes.c_void_p)
            for name in ("input", "mlp", "after_attention", "after_mlp", "query_norm", "key_norm")
        ),
        *((name, ctypes.c_int64) for name in ("index", "window")),
        ("scale", ctypes.c_float),
        ("rope", ctypes.c_int32),
    )


class Row(ctypes.Structure):
    _fields_ = (
        ("buffer", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("capacity", "length", "start", "end", "chain")),
    )


class Pass(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("shape", "layers", "rows", "parents")),
        ("ropes", ctypes.c_void_p * 2),
        *((name, ctypes.c_void_p) for name in ("states", "captured", "wanted", "final_norm", "final")),
        *((name, ctypes.c_int64) for name in ("num_layers", "num_rows", "num_nodes", "num_wanted")),
        ("num_threads", ctypes.c_int32),
    )


def numbers(count: int, seed: int) -> "array[float]":
    """Some numbers within -1 .. 1."""
    return array("f", (math.sin(1.7 * i + seed) for i in range(count)))


def product(weight: "array[float]", size: int, x: Sequence[float]) -> list[float]:
    rows = range(len(weight) // size)
    return [sum(a * b for a, b in zip(weight[n * size : (n + 1) * size], x, strict=True)) for n in rows]


def norm(x: Sequence[float], weight: Sequence[float]) -> list[float]:
    factor = 1 / math.sqrt(sum(value * value for value in x) / len(x) + EPSILON)
    return [value * factor * gain for value, gain in zip(x, weight, strict=True)]


def rotate(x: Sequence[float], table: Sequence[float]) -> list[float]:
    half = SIZE // 2
    turned = [*(-value for value in x[half:]), *x[:half]]
    return [a * table[i] + b * table[SIZE + i] for i, (a, b) in enumerate(zip(x, turned, strict=True))]


def attend(query: Sequence[float], keys: list[Sequence[float]], values: list[Sequence[float]]) -> list[float]:
    weights = [math.exp(SCALE * sum(a * b for a, b in zip(query, key, strict=True))) for key in keys]
    return [sum(w * value[d] for w, value in zip(weights, values, strict=True)) / sum(weights) for d in range(SIZE)]


def expected(data: dict[str, Any]) -> list[float]:
    """The final states of all nodes, node by node."""
    found: list[float] = []
    seen: list[tuple[Sequence[float], Sequence[float]]] = [
        (data["buffer"][:SIZE], data["buffer"][SLOTS * SIZE :][:SIZE])
    ]
    for node in range(NODES):
        position = 1 if PARENTS[node] < 0 else 2
        state, table = data["states"][node * HIDDEN :][:HIDDEN], data["rope"][position * 2 * SIZE :][: 2 * SIZE]
        normed = norm(state, data["input"])
        seen.append((rotate(product(data["key"], HIDDEN, normed), table), product(data["value"], HIDDEN, normed)))
        mine = [seen[0], seen[1], seen[-1]][: position + 1]
        queries = product(data["query"], HIDDEN, normed)
        heads = [rotate(queries[h * SIZE : (h + 1) * SIZE], table) for h in range(HEADS)]
        read = [x for head in heads for x in attend(head, [key for key, _ in mine], [value for _, value in mine])]
        state = [a + b for a, b in zip(state, product(data["output"], HEADS * SIZE, read), strict=True)]
        normed = norm(state, data["mlp"])
        gates, ups = product(data["gate"], HIDDEN, normed), product(data["up"], HIDDEN, normed)
        inner = [g / (1 + math.exp(-g)) * u for g, u in zip(gates, ups, strict=True)]
        state = [a + b for a, b in zip(state, product(data["down"], INNER, inner), strict=True)]
        found += norm(state, data["final_norm"])
    return found


def run(library: ctypes.CDLL, data: dict[str, Any], num_threads: int) -> "array[float]":
    """The same from the library."""
    place = {name: values.buffer_info()[0] for name, values in data.items()}
    linears = [Linear(place[name], None, None, *shape, 1, 1) for name, shape in SHAPES.items()]
    addresses = [ctypes.addressof(linear) for linear in linears]
    layer = Layer(*addresses, place["input"], place["mlp"], None, None, None, None, 0, 0, SCALE, 0)
    layers, captured = (ctypes.c_void_p * 1)(ctypes.addressof(layer)), (ctypes.c_void_p * 1)(None)
    shape, row = Shape(HIDDEN, HEADS, 1, SIZE, INNER, EPSILON, 0), Row(place["buffer"], SLOTS, 1, 0, NODES, 0)
    states, final = array("f", data["states"]), array("f", [0.0] * (NODES * HIDDEN))
    parents, wanted = array("i", PARENTS), array("q", range(NODES))
    places = [ctypes.addressof(part) for part in (shape, layers, row)]
    call = Pass(
        *(*places, parents.buffer_info()[0], (ctypes.c_void_p * 2)(place["rope"], None), states.buffer_info()[0]),
        *(ctypes.addressof(captured), wanted.buffer_info()[0], place["final_norm"], final.buffer_info()[0]),
        *(1, 1, NODES, NODES, num_threads),
    )
    if library.outrider_decode(ctypes.byref(call)):
        raise MemoryError("no memory for the activations")
    return final


def main(path: str, runtime: str) -> None:
    """Load the runtime, then the library, and compare."""
    ctypes.CDLL(runtime, mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(path)
    lengths = {name: rows * columns for name, (rows, columns) in SHAPES.items()}
    lengths |= {"input": HIDDEN, "mlp": HIDDEN, "final_norm": HIDDEN, "states": NODES * HIDDEN}
    lengths |= {"rope": SLOTS * 2 * SIZE, "buffer": 2 * SLOTS * SIZE}
    data = {name: numbers(length, seed) for seed, (name, length) in enumerate(lengths.items())}
    right = expected(data)
    for num_threads in (1, 2):
        for place, (ours, theirs) in enumerate(zip(run(library, data, num_threads), right, strict=True)):
            if not abs(ours - theirs) <= TOLERANCE:
                raise ArithmeticError(f"decoder: number {place} is {ours}, not {theirs}")


if __name__ == "__main__":
    main(*sys.argv[1:])
