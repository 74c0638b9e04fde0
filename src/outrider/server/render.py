"""From engine events and completions to OpenAI's answers, for both endpoints, whole and in pieces.

The pieces of a stream joined are the whole answer, however rounds cut it.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

from outrider.engine.completion import Completion, TokenEvent
from outrider.sampling.logprobs import TokenLogprobs
from outrider.server.logprobs import chat_logprobs, completion_logprobs
from outrider.tokens import TokenNames

ENDINGS = ("stop", "length")


class Shape(Protocol):
    """How one endpoint writes its answers."""

    def whole(self, index: int, completion: Completion) -> dict[str, Any]:
        """One choice of a whole answer."""
        ...

    def opening(self, index: int) -> dict[str, Any] | None:
        """What a stream says of a choice before its first piece; None: nothing."""
        ...

    def piece(self, index: int, events: Sequence[TokenEvent]) -> dict[str, Any] | None:
        """One choice of a stream's piece; None if there is nothing to say."""
        ...

    def head(self, *, stream: bool) -> dict[str, Any]:
        """The fields around the choices."""
        ...


class ChatShape:
    """/v1/chat/completions"""

    def __init__(self, model: str, names: TokenNames, *, logprobs: bool) -> None:
        self._head = _head("chatcmpl", model)
        self._names = names
        self._logprobs = logprobs

    def head(self, *, stream: bool) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk" if stream else "chat.completion"}

    def whole(self, index: int, completion: Completion) -> dict[str, Any]:
        message = {"role": "assistant", "content": completion.text or "", "refusal": None}
        logprobs = self._report(completion.logprobs or ())
        finish = completion.finish_reason
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def opening(self, index: int) -> dict[str, Any] | None:
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def piece(self, index: int, events: Sequence[TokenEvent]) -> dict[str, Any] | None:
        text, reports, finish = _joined(events)
        if not (text or finish or (self._logprobs and reports)):
            return None
        delta = {"content": text} if text else {}
        return {"index": index, "delta": delta, "logprobs": self._report(reports), "finish_reason": finish}

    def _report(self, reports: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        return chat_logprobs(reports, self._names) if self._logprobs else None


class CompletionShape:
    """/v1/completions"""

    def __init__(self, model: str, names: TokenNames, *, logprobs: bool) -> None:
        self._head = _head("cmpl", model)
        self._names = names
        self._logprobs = logprobs
        self._offsets: dict[int, int] = {}

    def head(self, *, stream: bool) -> dict[str, Any]:
        return {**self._head, "object": "text_completion"}

    def whole(self, index: int, completion: Completion) -> dict[str, Any]:
        logprobs = self._report(index, completion.logprobs or ())
        finish = completion.finish_reason
        return {"index": index, "text": completion.text or "", "logprobs": logprobs, "finish_reason": finish}

    def opening(self, index: int) -> dict[str, Any] | None:
        return None

    def piece(self, index: int, events: Sequence[TokenEvent]) -> dict[str, Any] | None:
        text, reports, finish = _joined(events)
        if not (text or finish or (self._logprobs and reports)):
            return None
        return {"index": index, "text": text, "logprobs": self._report(index, reports), "finish_reason": finish}

    def _report(self, index: int, reports: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        if not self._logprobs:
            return None
        offset = self._offsets.get(index, 0)
        report = completion_logprobs(reports, self._names, offset)
        self._offsets[index] = offset + sum(map(len, report["tokens"]))
        return report


def _head(prefix: str, model: str) -> dict[str, Any]:
    return {"id": f"{prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}


def _joined(events: Sequence[TokenEvent]) -> tuple[str, list[TokenLogprobs], str | None]:
    """Text, reports and finish reason of several events; an answer that broke off has an error, not a reason."""
    text = "".join(event.text for event in events)
    reports = [event.logprobs for event in events if event.logprobs is not None]
    return text, reports, next((e.finish_reason for e in events if e.finish_reason in ENDINGS), None)
