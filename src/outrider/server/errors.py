"""From an exception to what a client is told: OpenAI's error object and a status. Causes stay in the log.

OptionError, PromptError, UnsupportedError   400  invalid_request_error
UnknownModel                                 404  model_not_found
CapacityError                                429  server_busy, with Retry-After
ShuttingDown                                 503  shutting_down, with Retry-After
DeadlineExceeded                             504  deadline_exceeded
any other OutriderError                      500  generation_failed, with its message
anything else                                500  internal_error, without it
"""

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.errors import CapacityError, OptionError, OutriderError, PromptError, UnsupportedError, did_you_mean
from outrider.server.runner import DeadlineExceeded, ShuttingDown


class UnknownModel(OutriderError):
    """The request names a model that this server does not serve."""


class BadRequest(OutriderError):
    """A request's field is wrong; `param` names it."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


def status_of(error: BaseException) -> tuple[int, str]:
    """HTTP status and OpenAI's `code` for an error."""
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return status, code
    return 500, "internal_error"


_STATUS: tuple[tuple[type[BaseException], int, str], ...] = (
    (BadRequest, 400, "invalid_request_error"),
    (OptionError, 400, "invalid_request_error"),
    (PromptError, 400, "invalid_request_error"),
    (UnsupportedError, 400, "invalid_request_error"),
    (UnknownModel, 404, "model_not_found"),
    (CapacityError, 429, "server_busy"),
    (ShuttingDown, 503, "shutting_down"),
    (DeadlineExceeded, 504, "deadline_exceeded"),
    (OutriderError, 500, "generation_failed"),
)


def error_body(error: BaseException) -> dict[str, Any]:
    """`{"error": {...}}` as OpenAI's clients read it."""
    status, code = status_of(error)
    message = str(error) if isinstance(error, OutriderError) else "internal error; the server's log has the cause"
    return make_body(message, status, code, getattr(error, "param", None))


def make_body(message: str, status: int, code: str, param: str | None = None) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def validation_error(errors: Sequence[Mapping[str, Any]], known: Sequence[str]) -> BadRequest:
    """One clear line out of pydantic's list: the first field at fault and what is wrong with it.

    known: field names of the body, for a "did you mean".
    """
    first = _deepest(errors)
    place = [part for part in first["loc"] if part != "body"]
    name = ".".join(str(part) for part in place if not _is_type_tag(part)) or "body"
    if first["type"] == "extra_forbidden":
        where = did_you_mean(str(place[-1]), known) if len(place) == 1 else ""
        return BadRequest(f"{name!r} is not supported{where}", name)
    if first["type"] == "json_invalid":
        return BadRequest(f"the body is not JSON: {first.get('ctx', {}).get('error', 'it cannot be read')}")
    if first["type"] == "missing":
        return BadRequest(f"{name!r} is missing", name)
    if name.partition(".")[0] in _SEVERAL_KINDS:
        name = name.partition(".")[0]
    problem = _SEVERAL_KINDS.get(name) or _plain(str(first["msg"]))
    return BadRequest(f"{name!r} is not valid: {problem}{_shown(first.get('input'))}", name)


_SEVERAL_KINDS = {
    "prompt": "it must be a text, a list of token ids, or a list of such (none of them empty)",
    "stop": "it must be a text or a list of up to 16 (none of them empty)",
}


def _deepest(errors: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Where a field may be of several kinds every kind complains; the one that came furthest was meant."""
    root = errors[0]["loc"][:2]
    return max((error for error in errors if error["loc"][:2] == root), key=lambda error: len(error["loc"]))


def _is_type_tag(part: object) -> bool:
    """Pydantic names the branch of a union in the path; a reader has no use for it."""
    return isinstance(part, str) and (part.startswith(("list[", "function-", "constrained-")) or part in _BRANCHES)


_BRANCHES = {"str", "int", "float", "bool", "dict"}


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ").removeprefix("Input ").strip()


def _shown(value: object) -> str:
    text = repr(value)
    return f", not {text}" if len(text) <= 60 and isinstance(value, (str, int, float, bool)) else ""
