"""How much memory is left: where there is too little, the engine gives back what only speeds things up.

First the warm texts of finished requests go, then drafters, one at a time; the policy names them. The text depends on
neither, and a slow answer is better than a process that the system kills.
"""

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import torch

from outrider.drafters.base import DraftContext, Drafter
from outrider.sampling import checks
from outrider.types import DraftTree

FLOOR = 256 << 20  # bytes; less than this free, and the system is about to kill somebody
EVERY = 1.0  # seconds between two looks
CGROUP = Path("/sys/fs/cgroup")


def available_memory(device: torch.device | None = None) -> int:
    """Bytes that could still be allocated: on a CUDA device, else of the machine and its container (cgroup v2)."""
    if device is not None and device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min([psutil.virtual_memory().available, *_container(CGROUP)])


def _container(folder: Path) -> list[int]:
    """What a container's limit leaves, pages of files that can be dropped not counted; empty if there is no limit."""
    try:
        limit, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return [limit - used + int(stat["inactive_file"])]
    except (OSError, ValueError, KeyError):  # no cgroup v2, or "max"
        return []


class MemoryWatch:
    """Says, at most once a second, whether less than `floor` bytes are left (0: never)."""

    def __init__(self, floor: int | None, device: torch.device, clock: Callable[[], float] = time.monotonic) -> None:
        self.floor = FLOOR if floor is None else checks.whole(0)("memory_floor", floor)
        self._device = device
        self._clock = clock
        self._next = clock()

    def shortage(self) -> str:
        """What is left and what should be, in words; empty if there is enough."""
        if not self.floor or self._clock() < self._next:
            return ""
        self._next = self._clock() + EVERY
        free = available_memory(self._device)
        return f"{free >> 20} MiB of memory are free, fewer than {self.floor >> 20}" if free < self.floor else ""


class GivenUp(Drafter):
    """In the place of a drafter that was given up: proposes nothing and says why."""

    name = "given up"

    def __init__(self, why: str) -> None:
        self.why = why

    def propose_row(self, context: DraftContext) -> DraftTree:
        return DraftTree.root(context.root, self.why)
