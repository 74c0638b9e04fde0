"""Structured logs: one JSON object a line on stderr. Prompts and answers are written only if the server was told to."""

import json
import logging
import sys
import time
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

LOGGER = logging.getLogger("outrider.server")


class JsonLines(logging.Formatter):
    """`{"time": ..., "level": ..., "event": ..., fields of the call}`"""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log(
    event: str,
    *,
    level: int = logging.INFO,
    error: BaseException | None = None,
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write one line. error: its traceback goes along."""
    trace = None if error is None else (type(error), error, error.__traceback__)
    LOGGER.log(level, event, extra={"fields": dict(fields)}, exc_info=trace)


def _log_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    """In the place of warnings.showwarning."""
    log("warning", level=logging.WARNING, fields={"warning": str(message), "kind": category.__name__})


def set_up(level: int = logging.INFO) -> None:
    """Send our lines, Python's warnings and uvicorn's to stderr as JSON."""
    warnings.showwarning = _log_warning
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, lowest in (("outrider.server", level), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(lowest)
