"""Native CPU kernels: matrix products whose result for a row never depends on the other rows, bit for bit.

    native_linear(weight, bias=None, scale=None) -> NativeLinear | None     None: use torch instead
    quantize_rows(weight) -> (int8 weight, scale)                           what `scale` above expects
    available() -> (bool, reason)

Written in C (csrc/), compiled at first use for the processor at hand, kept in the user's cache folder. Without a C
compiler, or with OUTRIDER_KERNELS=0 in the environment, there are none, and everything falls back to torch.

    build.py      compiles, once per source, compiler and processor
    trial.py      runs a new library in a process of its own before anyone else may
    trial_decoder.py  the same for its decoder
    library.py    the C interface
    linear.py     nn.Module over its products
    decoder.py    a whole decoder in one call
    quantize.py   int8 weights with a scale per output
    reference.py  the slow twins, in torch
    __main__.py   `python -m outrider.kernels`: speed beside torch and beside the machine's limits
"""

from outrider.kernels.library import available
from outrider.kernels.linear import NativeLinear, native_linear
from outrider.kernels.quantize import quantize_rows

__all__ = ["NativeLinear", "available", "native_linear", "quantize_rows"]
