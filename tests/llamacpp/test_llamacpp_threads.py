"""torch and llama.cpp in one process share the machine's cores: one OpenMP runtime, or a second that does not spin."""

import subprocess
import sys

import pytest

from outrider.targets.llamacpp.library import missing

LOADED = """
import os, re, torch
first, second = {order}
first(), second()
names = {{line.split()[-1] for line in open("/proc/self/maps") if "/" in line}}
own = [name for name in names if ".libs/" not in name]  # other packages may bring copies that nothing here uses
print(sorted({{m[0] for name in own if (m := re.search(r"lib(gomp|omp|iomp5)(?=[.-])", name))}}))
print(os.environ.get("KMP_BLOCKTIME"))
"""
TORCH = "lambda: torch.randn(300, 300) @ torch.randn(300, 300)"
LLAMA = "lambda: __import__('outrider.targets.llamacpp.library', fromlist=['library']).library()"


@pytest.mark.skipif(bool(missing()) or not sys.platform.startswith("linux"), reason="needs llama.cpp, and /proc")
@pytest.mark.parametrize("order", [f"{TORCH}, {LLAMA}", f"{LLAMA}, {TORCH}"])
def test_one_openmp_runtime(order: str) -> None:
    """gcc's build uses the very runtime that torch brings; clang's own must let go of the cores when it is idle."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(order=order)], capture_output=True, text=True, timeout=120, check=True
    )
    runtimes, spins = done.stdout.splitlines()
    assert runtimes in ("['libgomp']", "['libgomp', 'libomp']", "['libgomp', 'libiomp5']", "['libiomp5']", "[]")
    assert runtimes.count("lib") <= 1 or spins == "0"
