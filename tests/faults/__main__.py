"""`python -m tests.faults [--only NAME ...] [--list]`: exit code 0 only if every fault is caught."""

import argparse
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded: processes are forked from this one
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from .patches import FAULTS
from .runner import Runner, named


def preload() -> None:
    """What is slow to import, once for all the processes to come; nothing of outrider, which differs in each."""
    import hypothesis.strategies  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch
    import transformers.models.gemma3.modeling_gemma3
    import transformers.models.llama.modeling_llama  # noqa: F401

    torch.set_num_threads(1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="run these faults")
    parser.add_argument("--list", action="store_true", help="show the faults and the tests that must catch them")
    parser.add_argument("--fresh", action="store_true", help="take no verdict from an earlier run")
    given = parser.parse_args()
    if given.list:
        for fault in FAULTS:
            print(f"{fault.name:42} {'; '.join(fault.tests)}")
        return 0
    try:
        faults = named(given.only)
    except ValueError as error:
        parser.error(str(error))
    preload()
    start = time.monotonic()
    missed = Runner(tell=lambda line: print(line, flush=True), remember=not given.fresh).run(faults)
    print(f"{len(faults) - len(missed)} of {len(faults)} faults caught in {time.monotonic() - start:.0f} s", flush=True)
    for name in missed:
        print(f"NOT CAUGHT: {name}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
