"""The web application: routes around one engine thread. Everything it needs is handed in; there are no globals."""

import time
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

import outrider
from outrider.acceptance import available_rules
from outrider.server import pages
from outrider.server.answering import Answering
from outrider.server.config import ServerConfig
from outrider.server.faults import add_error_handlers
from outrider.server.feed import RoundFeed
from outrider.server.guards import ApiKey, Limits, RequestLog
from outrider.server.metrics import CONTENT_TYPE, Metrics
from outrider.server.render import ChatShape, CompletionShape
from outrider.server.runner import EngineThread
from outrider.server.schema import ChatRequest, CompletionRequest
from outrider.server.schema_out import (
    EVENT_STREAM,
    ChatCompletion,
    Health,
    ModelList,
    TextCompletion,
    errors,
)
from outrider.server.sse import encode
from outrider.server.translate import Translator
from outrider.tokens import TokenNames
from outrider.watch.page import live_page

QUIET_SECONDS = 2.0  # without news before those who watch hear how many run and wait


@dataclass(frozen=True)
class Parts:
    """What the application is made of."""

    runner: EngineThread
    translator: Translator
    metrics: Metrics
    config: ServerConfig
    feed: RoundFeed

    @property
    def model_name(self) -> str:
        return self.translator.facts.model_name


def make_app(parts: Parts) -> FastAPI:
    """The application; the runner must be started by the caller."""
    app = FastAPI(
        title="Outrider",
        version=outrider.__version__,
        description="OpenAI's protocol in front of exact speculative decoding: the same text, sooner.",
        docs_url=None,
        redoc_url=None,
        responses=errors(405),
    )
    _add_generation(app, parts)
    _add_figures(app, parts)
    _add_pages(app, parts)
    add_error_handlers(app, parts.metrics.refused)
    config = parts.config
    app.add_middleware(
        Limits,
        max_clients=config.max_clients,
        max_body_bytes=config.max_body_bytes,
        max_pending_bytes=config.max_pending_bytes,
        body_timeout=config.body_timeout,
        on_refusal=parts.metrics.refused,
    )
    app.add_middleware(ApiKey, keys=config.api_keys)
    app.add_middleware(RequestLog)
    return app


# ---- routes


def _add_generation(app: FastAPI, parts: Parts) -> None:
    names = TokenNames(parts.runner.engine.target.tokenizer)
    model = parts.model_name
    failures = errors(400, 401, 404, 408, 413, 415, 429, 500, 503, 504)

    @app.post("/v1/chat/completions", responses={200: _either(ChatCompletion), **failures}, tags=["generation"])
    async def chat(body: ChatRequest, request: Request) -> Response:
        """Go on with a conversation. With `stream` the answer comes as server-sent events."""
        requests = await run_in_threadpool(parts.translator.chat, body)
        shape = ChatShape(model, names, logprobs=body.logprobs)
        return await Answering(parts.runner, parts.config, request, body, shape).answer(requests)

    @app.post("/v1/completions", responses={200: _either(TextCompletion), **failures}, tags=["generation"])
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Go on with a text, or with several. With `stream` the answer comes as server-sent events."""
        requests = await run_in_threadpool(parts.translator.completions, body)
        shape = CompletionShape(model, names, logprobs=body.logprobs is not None)
        return await Answering(parts.runner, parts.config, request, body, shape).answer(requests)


def _add_figures(app: FastAPI, parts: Parts) -> None:
    started = int(time.time())

    @app.get("/v1/models", response_model=ModelList, responses=errors(401, 503), tags=["figures"])
    async def models() -> dict[str, Any]:
        """The model, with the drafters and rules that a request may ask for."""
        info = parts.runner.engine.target.info
        model = {
            "id": parts.model_name,
            "object": "model",
            "created": started,
            "owned_by": "outrider",
            "max_model_len": info.max_length,
            "drafters": list(parts.translator.facts.drafters),
            "rules": list(available_rules()),
            "exact": info.exact,
        }
        return {"object": "list", "data": [model]}

    @app.get("/health", response_model=Health, tags=["figures"])
    async def health() -> dict[str, Any]:
        """The process lives and its event loop turns."""
        return {"status": "ok"}

    @app.get("/ready", response_model=Health, responses={503: {"model": Health}}, tags=["figures"])
    async def ready() -> Response:
        """Whether requests will be answered: the model is loaded, the engine runs, no shutdown has begun."""
        reason = _not_ready(parts.runner)
        return JSONResponse({"status": "not ready" if reason else "ok", "reason": reason}, 503 if reason else 200)

    metrics_page = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **errors(401, 503)}

    @app.get("/metrics", response_class=Response, responses=metrics_page, tags=["figures"])
    async def metrics() -> Response:
        """Figures in Prometheus form."""
        return Response(await run_in_threadpool(parts.metrics.text), media_type=CONTENT_TYPE)


def _add_pages(app: FastAPI, parts: Parts) -> None:
    page = live_page()

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def home() -> str:
        return page

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> str:
        return pages.reference(app.openapi())

    @app.get("/rounds", include_in_schema=False)
    async def rounds() -> Response:
        """Every round as a server-sent event, for the page at / and for `outrider watch`."""
        events = (encode(entry or _load(parts.runner)) async for entry in parts.feed.watch(QUIET_SECONDS))
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _either(model: type) -> dict[str, Any]:
    return {"model": model, "content": EVENT_STREAM, "description": "The whole answer, or a stream of its pieces."}


def _load(runner: EngineThread) -> dict[str, Any]:
    return {"kind": "load", "running": runner.num_running, "waiting": runner.num_waiting}


def _not_ready(runner: EngineThread) -> str | None:
    if runner.draining:
        return "shutting down"
    return None if runner.alive else "the engine does not answer"
