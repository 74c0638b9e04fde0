"""The floor of a pass over one token: the time in which this machine reads the weights that it needs."""

from dataclasses import dataclass

from outrider.kernels.library import load
from outrider.kernels.limits import bytes_per_second
from outrider.targets.base import Target


@dataclass(frozen=True)
class Reading:
    """Bytes of weights that a pass reads, and how many bytes a second the machine reads with all threads."""

    num_bytes: int
    bytes_per_second: float

    @property
    def seconds(self) -> float:
        return self.num_bytes / self.bytes_per_second


def weights_read(target: Target) -> Reading | None:
    """None for a target that does not say what it reads or is not on the CPU, and where there are no native kernels."""
    num_bytes, library = getattr(target, "pass_bytes", None), load()
    if num_bytes is None or library is None or target.info.device.type != "cpu":
        return None
    return Reading(num_bytes, bytes_per_second(library))
