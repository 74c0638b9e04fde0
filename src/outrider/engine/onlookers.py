"""Those who only look on (policies that learn, observers) can fail; generation goes on, with a warning."""

import warnings
from collections.abc import Callable
from typing import Any

from outrider.errors import OutriderWarning


def tell(who: str, function: Callable[..., Any], *news: Any) -> None:
    """Tell an onlooker; if it raises, nobody else is disturbed."""
    try:
        function(*news)
    except Exception as error:
        warn_of(who, error)


def warn_of(who: str, error: Exception) -> None:
    """An OutriderWarning that names who failed, and how."""
    warnings.warn(f"{who} failed, and generation goes on: {error!r}", OutriderWarning, stacklevel=3)
