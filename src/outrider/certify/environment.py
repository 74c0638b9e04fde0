"""What a result was measured on: machine, versions, date."""

import platform
from datetime import UTC, datetime
from typing import Any

from outrider.machine import installed, machine


def environment() -> dict[str, Any]:
    """Processor, cores, threads in use, versions and the present time in UTC."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **machine(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "tokenizers": installed("tokenizers"),
    }
