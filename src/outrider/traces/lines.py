"""From what an engine tells its observers to the lines of a trace. docs/traces.md describes every field.

Without texts a line keeps shapes and figures only: nothing in it, token ids and text lengths included, tells what was
written.
"""

import hashlib
import math
import platform
import sys
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from outrider.engine.completion import Completion
from outrider.engine.engine import Engine
from outrider.engine.observe import RequestTrace
from outrider.engine.trace import RoundTrace, RowTrace
from outrider.traces.texts import TokenTexts

FORMAT, VERSION = "outrider-trace", 1
Line = dict[str, Any]
_HARMLESS_PARAMS = ("temperature", "max_new_tokens", "max_depth")  # what says nothing about a text


class Lines:
    """Makes the lines of one engine. texts: whether they tell what was written. prompts: also what was asked.

    Times are seconds since this object was made.
    """

    def __init__(self, engine: Engine, *, texts: bool = True, prompts: bool = False) -> None:
        self._engine = engine
        self._show = texts
        self._prompts = prompts and texts
        self._texts = TokenTexts(engine.target.tokenizer)
        self._start = time.perf_counter()

    @property
    def _now(self) -> float:
        return round(time.perf_counter() - self._start, 6)

    def header(self) -> Line:
        info = self._engine.target.info
        target = {
            "name": info.name,
            "exact": info.exact,
            "dtype": str(info.dtype).removeprefix("torch."),
            "device": str(info.device),
            "max_rows": info.max_rows,
            "max_length": info.max_length,
        }
        return {
            "kind": "header",
            "format": FORMAT,
            "version": VERSION,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": _versions(),
            "target": target,
            "drafters": [name for name in self._engine.drafters if name != "none"],
            "rule": self._engine.rule.name,
            "policy": type(self._engine.policy).__name__,
            "texts": self._show,
        }

    def request(self, request: RequestTrace) -> Line:
        return {
            "kind": "request",
            "request": request.request_id,
            "at": self._now,
            "waited": round(request.waited, 6),
            "prompt_tokens": len(request.prompt_token_ids),
            "reused": request.reused,
            "prompt": self._prompt(request.prompt_token_ids) if self._prompts else None,
            "digest": _digest(request.prompt_token_ids) if self._show else None,
            "rule": request.rule,
            "lossless": request.lossless,
            "params": self._params(request.params),
        }

    def round(self, trace: RoundTrace) -> Line:
        seconds = {name: round(value, 6) for name, value in vars(trace.seconds).items()}
        rows = [self._row(row) for row in trace.rows]
        return {
            "kind": "round",
            "round": trace.index,
            "at": self._now,
            "seconds": seconds,
            "nodes": trace.num_nodes,
            "rows": rows,
        }

    def end(self, request_id: int, completion: Completion, released: int) -> Line:
        """released: characters of the text that rounds have delivered; the rest goes with this line."""
        error = completion.error
        told = None if error is None else f"{type(error).__name__}: {error}" if self._show else type(error).__name__
        figures = completion.stats.to_dict()
        if not self._show:
            figures["warnings"] = [] if error else figures["warnings"]
        return {
            "kind": "end",
            "request": request_id,
            "at": self._now,
            "finish": completion.finish_reason,
            "error": told,
            "rest": (completion.text or "")[released:] if self._show else None,
            "figures": _finite(figures),
        }

    def _prompt(self, token_ids: tuple[int, ...]) -> str | None:
        tokenizer = self._engine.target.tokenizer
        return None if tokenizer is None else tokenizer.decode(token_ids, skip_special_tokens=False)

    def _params(self, params: Mapping[str, Any]) -> Line:
        kept = params if self._show else {name: params.get(name) for name in _HARMLESS_PARAMS}
        return {name: _finite(value) for name, value in kept.items()}

    def _row(self, row: RowTrace) -> Line:
        return {
            "request": row.request_id,
            "row": row.cache_row,
            "position": row.position,
            "plan": {"drafter": row.drafter, "depth": row.max_depth, "nodes": row.max_nodes, "reason": row.reason},
            "tree": {
                "parents": list(row.parents),
                "tokens": self._ids(row.tokens),
                "texts": self._read(row.tokens),
                "sources": list(row.sources),
                "confidence": None if row.confidence is None else _chances(row.confidence),
            },
            "target": {
                "chance": _chances(row.target_chance),
                "best": self._ids(row.target_best),
                "best_texts": self._read(row.target_best),
            },
            "path": list(row.path),
            "next": {
                "token": row.next_token if self._show else None,
                "text": self._texts.text(row.next_token) if self._show else None,
                "origin": row.origins[-1],
            },
            "delivered": {
                "count": len(row.delivered),
                "origins": list(row.origins),
                "tokens": self._ids(row.delivered),
                "texts": list(row.texts) if self._show else None,
            },
            "finish": row.finish_reason,
        }

    def _ids(self, token_ids: tuple[int, ...]) -> list[int] | None:
        return list(token_ids) if self._show else None

    def _read(self, token_ids: tuple[int, ...]) -> list[str] | None:
        return self._texts.texts(token_ids) if self._show else None


def _chances(values: Iterable[float]) -> list[float | None]:
    return [round(value, 4) if math.isfinite(value) else None for value in values]


def _digest(token_ids: tuple[int, ...]) -> str:
    """Tells whether two requests had the same prompt."""
    return hashlib.sha256(",".join(map(str, token_ids)).encode()).hexdigest()[:16]


def _finite(value: Any) -> Any:
    """The value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _versions() -> dict[str, str]:
    own = getattr(sys.modules["outrider"], "__version__", "unknown")
    packages = {name: _version(name) for name in ("torch", "transformers")}
    return {"python": platform.python_version(), "outrider": own, **packages}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
