"""v(N): how the target's pass grows with its width, in passes of width 1. What speculation can win depends on it."""

import time
from collections.abc import Sequence
from statistics import median

from outrider.targets.base import Target
from outrider.types import DraftTree, pack

WIDTHS = (1, 2, 4, 8, 16)
CONTEXT = 256
ROW = 0


def pass_seconds(
    target: Target, context: Sequence[int], widths: Sequence[int] = WIDTHS, repeats: int = 3
) -> dict[int, float]:
    """Median seconds of a pass of each width behind a context (cut to CONTEXT tokens); the target must be idle."""
    tokens = list(context)[-CONTEXT:]
    room = target.info.max_length - len(tokens)
    spent: dict[int, list[float]] = {width: [] for width in widths if width <= room}
    try:
        target.free([ROW])
        target.prefill([ROW], [tokens[:-1]])
        for repeat in range(repeats + 1):  # the first is a warm-up
            for width, seconds in spent.items():
                chain = [tokens[-1 - i % len(tokens)] for i in range(width)]
                packed = pack([DraftTree.chain(chain[0], chain[1:])], [ROW], [len(tokens) - 1], target.info.device)
                start = time.perf_counter()
                target.score(packed).logits[0, 0].item()  # waits for a device that runs behind
                if repeat:
                    seconds.append(time.perf_counter() - start)
    finally:
        target.free([ROW])
    return {width: median(seconds) for width, seconds in spent.items()}
