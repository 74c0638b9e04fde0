"""From exceptions to responses: OpenAI's error object, with Retry-After where trying again helps."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from outrider.errors import CapacityError, OutriderError
from outrider.server.errors import error_body, make_body, status_of, validation_error
from outrider.server.runner import ShuttingDown
from outrider.server.schema import ChatRequest, CompletionRequest

RETRY_SECONDS = 2  # told to a client that finds the queue full


_UNREADABLE = "the body cannot be read as JSON: not UTF-8, nested too deep, or an integer of too many digits"


def add_error_handlers(app: FastAPI, on_refusal: Callable[[str], None]) -> None:
    """Every error that a handler raises on purpose becomes its response. on_refusal: told why nothing was admitted."""

    async def refused(request: Request, error: Exception) -> Response:
        status, _ = status_of(error)
        if isinstance(error, (CapacityError, ShuttingDown)):
            on_refusal("queue" if isinstance(error, CapacityError) else "shutdown")
            return JSONResponse(error_body(error), status, {"Retry-After": str(RETRY_SECONDS)})
        return JSONResponse(error_body(error), status)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        model = CompletionRequest if request.url.path == "/v1/completions" else ChatRequest
        return JSONResponse(error_body(validation_error(error.errors(), list(model.model_fields))), 400)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request_error")
        detail = _UNREADABLE if error.detail == "There was an error parsing the body" else error.detail
        body = make_body(f"{detail}: {request.method} {request.url.path}", error.status_code, code)
        return JSONResponse(body, error.status_code, error.headers)

    handlers: list[tuple[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]] = [
        (OutriderError, refused),
        (RequestValidationError, invalid),
        (HTTPException, http_error),
    ]
    for kind, handler in handlers:
        app.add_exception_handler(kind, handler)
