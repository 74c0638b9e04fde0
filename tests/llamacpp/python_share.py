"""How much of a plain round is not llama.cpp's own work: `python tests/llamacpp/python_share.py MODEL [TOKENS]`."""

import sys
import time
from typing import Any

from outrider import Engine
from outrider.targets.loading import load_target

PROMPT = "def add(a, b):\n    return a + b\n\n\ndef"


class Timed:
    """llama.cpp's interface, counting the seconds inside llama_decode."""

    def __init__(self, native: Any) -> None:
        self.native, self.seconds, self.passes = native, 0.0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def llama_decode(self, *arguments: Any) -> int:
        start = time.perf_counter()
        status = self.native.llama_decode(*arguments)
        self.seconds += time.perf_counter() - start
        self.passes += 1
        return status


def main(name: str, num_tokens: int = 128) -> None:
    """Prints the share, and what it is made of, in one line."""
    target: Any = load_target(name, backend="llama.cpp", max_rows=1)
    engine, timed = Engine(target), Timed(target._native)
    engine.generate(PROMPT, max_new_tokens=8, temperature=0.0)
    target._native = timed
    start = time.perf_counter()
    engine.generate(PROMPT, max_new_tokens=num_tokens, temperature=0.0, ignore_eos=True)
    seconds = time.perf_counter() - start
    rest = seconds - timed.seconds
    print(
        f"{name}: Python's share {rest / seconds:.1%} of {num_tokens} rounds "
        f"({1000 * rest / timed.passes:.2f} of {1000 * seconds / timed.passes:.2f} ms a round)"
    )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
