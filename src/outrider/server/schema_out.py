"""What the server answers, for OpenAPI's readers. Answers are built in `render`; a test holds the two together."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Finish = Literal["stop", "length"]


class Answer(BaseModel):
    """Closed: a field that is not here is never sent."""

    model_config = ConfigDict(extra="forbid")


class ErrorDetail(Answer):
    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(Answer):
    error: ErrorDetail


class SpeculationFigures(Answer):
    """What speculation did for this request. reason: why there was none."""

    method: str
    rule: str
    lossless: bool
    exact: str
    rounds: int
    proposed: int
    accepted: int
    tokens_per_round: float
    acceptance: float | None
    accepted_per_position: list[float] | None
    reason: str | None
    warnings: list[str]


class PromptDetails(Answer):
    cached_tokens: int


class Usage(Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    speculation: SpeculationFigures


class SpeculativeDecoding(Answer):
    """Names and meanings are vLLM's."""

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int
    num_spec_tokens: int


class RequestMetrics(Answer):
    """Names and meanings are vLLM's."""

    time_to_first_token_ms: float | None
    generation_time_ms: float | None
    queue_time_ms: float
    mean_itl_ms: float | None
    tokens_per_second: float | None
    speculative_decoding: SpeculativeDecoding


class TopLogprob(Answer):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Answer):
    content: list[TokenLogprob]
    refusal: None


class ChatMessage(Answer):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Answer):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Finish


class ChatCompletion(Answer):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    metrics: RequestMetrics | None


class TextLogprobs(Answer):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(Answer):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Finish


class TextCompletion(Answer):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage
    metrics: RequestMetrics | None


class Model(Answer):
    """max_model_len: most tokens of prompt and answer. exact: bitwise or near-tie, see docs/correctness.md."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    drafters: list[str]
    rules: list[str]
    exact: str


class ModelList(Answer):
    object: Literal["list"]
    data: list[Model]


class Health(Answer):
    status: Literal["ok", "not ready"]
    reason: str | None = None


EVENT_STREAM: dict[str, Any] = {
    "text/event-stream": {
        "schema": {"type": "string"},
        "example": 'data: {"object": "chat.completion.chunk", "choices": [...]}\n\ndata: [DONE]\n\n',
    }
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's entries for these error statuses."""
    return {status: {"model": ErrorAnswer, "description": _MEANING[status]} for status in statuses}


_MEANING = {
    400: "A field is wrong or not supported; the message names it.",
    401: "The API key is missing or wrong.",
    404: "This server does not serve that model, or has no such page.",
    405: "The method is not allowed here.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body does not say that it is JSON.",
    429: "The queue is full; see Retry-After.",
    500: "Generation failed.",
    503: "Too many clients, or shutting down; see Retry-After.",
    504: "The request's deadline passed.",
}

__all__ = ["EVENT_STREAM", "ChatCompletion", "ErrorAnswer", "Health", "ModelList", "TextCompletion", "errors"]
