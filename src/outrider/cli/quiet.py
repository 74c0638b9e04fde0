"""Keeps the libraries below from talking over our own output."""

import logging
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from outrider.errors import OutriderWarning


@contextmanager
def quiet_loading() -> Generator[None]:
    """No progress bars and no warnings of transformers and the hub while a model is loaded; errors still raise.

    Our own warnings come as one line each.
    """
    from huggingface_hub.utils import disable_progress_bars
    from transformers.utils import logging as transformers_logging

    disable_progress_bars()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", OutriderWarning)
        warnings.showwarning = _one_line
        yield


def _one_line(message: Warning | str, *_: Any) -> None:
    print(f"outrider: {message}", file=sys.stderr)
