"""`python -m outrider.kernels`: what a product of few rows costs, beside torch and beside the machine's limits.

Prints the limits first (bytes read and multiply-adds per second), then per shape and number of rows: milliseconds for
the native kernel (bf16 and int8 weights) and for torch's F.linear in bf16 and fp32, the floor that the limits leave,
and the largest error of the native result in bf16 (1 is half a unit in the last place); last line JSON. Times are the
best of several interleaved tries, each over weights too large for the caches; with one thread it is the processor's
time, which other processes disturb less, with more it is the clock's.
"""

import argparse
import json
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from outrider.kernels.library import Library, available, load
from outrider.kernels.limits import CACHE_BYTES, bytes_per_second, operations_per_second, seconds_of
from outrider.kernels.linear import NativeLinear, native_linear
from outrider.kernels.quantize import quantize_rows
from outrider.kernels.reference import linear_reference

SHAPES = "8960x1536,1536x8960,1536x1536,256x1536,151936x1536,576x1536,49152x576"
ROWS = "1,2,4,8,16,32,128,512"
COLUMNS = ("native", "int8", "torch bf16", "torch fp32")


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m outrider.kernels", description=__doc__)
    parser.add_argument("--shapes", default=SHAPES, help="outputs x inputs, comma-separated")
    parser.add_argument("--rows", default=ROWS, help="numbers of activation rows, comma-separated")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tries", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    library = load()
    if library is None:
        raise SystemExit(f"no native kernels here: {available()[1]}")
    shapes = [tuple(int(size) for size in shape.split("x")) for shape in options.shapes.split(",")]
    with torch.inference_mode():
        report(library, shapes, [int(m) for m in options.rows.split(",")], options.tries)


def report(library: Library, shapes: list[tuple[int, ...]], rows: list[int], tries: int) -> None:
    """Print limits, table and JSON."""
    bandwidth, arithmetic = bytes_per_second(library), operations_per_second(library)
    limits = f"reads {bandwidth / 1e9:.1f} GB/s, computes {arithmetic / 1e9:.1f} GFLOP/s"
    print(f"{torch.get_num_threads()} threads: {limits}; milliseconds:")
    print(f"{'weights':>13} {'rows':>5} {'floor':>9}" + "".join(f"{name:>12}" for name in COLUMNS) + f"{'error':>8}")
    entries: list[dict[str, float | str]] = []
    for outputs, size in shapes:
        layers = Layers(outputs, size)
        for m in rows:
            floor = max(outputs * size * 2 / bandwidth, 2 * m * outputs * size / arithmetic)
            times, error = layers.measure(m, 1 if m > 32 else tries)
            cells = "".join(f"{times[name] * 1e3:12.3f}" for name in COLUMNS)
            print(f"{outputs:>7}x{size:<5} {m:>5} {floor * 1e3:9.3f}{cells}{error:8.2f}", flush=True)
            entries.append({"outputs": outputs, "size": size, "rows": m, "floor": floor, "error": error, **times})
    print(json.dumps({"bytes_per_second": bandwidth, "flops": arithmetic, "seconds": entries}))


class Layers:
    """One shape's weights in all types, enough copies that each try reads from memory."""

    def __init__(self, outputs: int, size: int) -> None:
        copies = max(1, CACHE_BYTES // (outputs * size * 2))
        self.size = size
        self.bf16 = [torch.randn(outputs, size).div_(size**0.5).bfloat16() for _ in range(copies)]
        self.fp32 = [weight.float() for weight in self.bf16[: max(1, copies // 2)]]
        self.native = [_native(weight) for weight in self.bf16]
        self.int8 = [_native(*quantize_rows(weight)) for weight in self.bf16]

    def measure(self, m: int, tries: int) -> tuple[dict[str, float], float]:
        """Best seconds per product for each column, and the native error in half units of bf16's last place."""
        x = torch.randn(m, self.size).bfloat16()
        x_fp32 = x.float()
        runs: dict[str, list[Callable[[], Tensor]]] = {
            "native": [lambda layer=layer: layer(x) for layer in self.native],
            "int8": [lambda layer=layer: layer(x) for layer in self.int8],
            "torch bf16": [lambda weight=weight: F.linear(x, weight) for weight in self.bf16],
            "torch fp32": [lambda weight=weight: F.linear(x_fp32, weight) for weight in self.fp32],
        }
        best = {name: float("inf") for name in runs}
        for _ in range(tries):
            for name, products in runs.items():
                best[name] = min(best[name], seconds_of(products) / len(products))
        few = min(m, 8)
        expected = linear_reference(x[:few], self.bf16[0][:512])
        wrong = (self.native[0](x[:few])[:, :512].double() - expected).abs()
        return best, float((wrong / (expected.abs() * 2**-8 + 2**-16)).max())


def _native(weight: Tensor, scale: Tensor | None = None) -> NativeLinear:
    layer = native_linear(weight, None, scale)
    assert layer is not None
    return layer


if __name__ == "__main__":
    main()
