"""Reads a model and decodes a few tokens, in a process of its own: `python trial.py MODEL`.

A build whose instructions this processor does not have kills this process instead of the user's. It imports nothing of
this package, so that it starts fast. Passes of one token and of nine run different kernels, so both are tried.
"""

import importlib
import sys
from typing import Any

WIDTHS = (1, 9)


def main(path: str) -> None:
    """Decode; raises where llama.cpp says that something failed."""
    native: Any = importlib.import_module("llama_cpp.llama_cpp")
    native.llama_backend_init()
    settings = native.llama_model_default_params()
    settings.n_gpu_layers = 0
    model = native.llama_model_load_from_file(path.encode(), settings)
    if not model:
        raise OSError(f"llama.cpp cannot read {path}")
    sizes = native.llama_context_default_params()
    sizes.n_ctx = sizes.n_batch = sizes.n_ubatch = 64
    sizes.n_threads = sizes.n_threads_batch = 1
    context = native.llama_init_from_model(model, sizes)
    if not context:
        raise MemoryError("llama.cpp made no context")
    for width in WIDTHS:
        tokens = (native.llama_token * width)(*range(1, width + 1))
        if status := native.llama_decode(context, native.llama_batch_get_one(tokens, width)):
            raise ArithmeticError(f"a pass of {width} tokens ended with status {status}")
    native.llama_free(context)
    native.llama_model_free(model)


if __name__ == "__main__":
    main(*sys.argv[1:])
