"""What clients may send: OpenAI's fields that are supported, the extensions that vLLM's users know, and `speculation`.

Everything else is refused by name. A field that is null counts as not sent. Strict: "4" is no number, true is no 1.
Ranges are checked where the setting is known (SamplingParams); here only shapes, and what the protocol itself limits.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

TokenId = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]
Stops = Text | Annotated[list[Text], Field(max_length=16)]


class Strict(BaseModel):
    """Unknown fields are errors, null is absence."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if value is not None}
        return data


class Speculation(Strict):
    """How this request is to be sped up; the text is the same in any case (but for a lossy rule)."""

    enabled: bool = Field(default=True, description="false: plain decoding.")
    drafter: str | None = Field(default=None, description="One of the server's drafters, see /v1/models.")
    max_depth: Annotated[int, Field(ge=0, le=1024)] | None = Field(
        default=None, description="Most tokens drafted in a round; default: the server's policy decides."
    )
    rule: str | None = Field(default=None, description="Acceptance rule; default: the server's.")


class StreamOptions(Strict):
    include_usage: bool = Field(default=False, description="A last chunk holds usage and figures.")


class TextFormat(Strict):
    type: Literal["text"]


class JsonObjectFormat(Strict):
    type: Literal["json_object"]


class JsonSchema(Strict):
    """schema: enforced exactly whatever `strict` says. name, description: for people; the model does not see them."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "schema"
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool = True


class JsonSchemaFormat(Strict):
    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class StructuredOutputs(Strict):
    """One of these, enforced exactly: JSON of a schema, a regular expression, one of several texts, a Lark grammar."""

    json_: dict[str, Any] | None = Field(default=None, alias="json")
    regex: Text | None = None
    choice: Annotated[list[Text], Field(min_length=1)] | None = None
    grammar: Text | None = None

    @model_validator(mode="after")
    def _one(self) -> "StructuredOutputs":
        if sum(value is not None for value in vars(self).values()) != 1:
            raise ValueError("give one of json, regex, choice, grammar")
        return self


class Generation(Strict):
    """What both endpoints share."""

    model: Text
    n: Annotated[int, Field(ge=1, le=128)] = Field(default=1, description="Answers; seeds are derived from `seed`.")
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="0 = greedy. Default: the model's own (generation_config), else 0."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)] | None = None
    stop: Stops | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[Annotated[str, Field(pattern=r"^[0-9]{1,18}$")], float] | None = Field(
        default=None, description="Token id to what is added to its logit."
    )
    user: str | None = Field(default=None, max_length=256, description="Named in the log, nothing else.")
    top_k: Annotated[int, Field(ge=0)] | None = Field(default=None, description="Extension. 0 = off.")
    min_p: Annotated[float, Field(ge=0, le=1)] | None = Field(default=None, description="Extension. 0 = off.")
    repetition_penalty: Annotated[float, Field(gt=0)] | None = Field(default=None, description="Extension. 1 = off.")
    min_tokens: Annotated[int, Field(ge=0)] | None = Field(default=None, description="Extension.")
    stop_token_ids: list[TokenId] | None = Field(default=None, description="Extension.")
    ignore_eos: bool = Field(default=False, description="Extension. The model's end tokens do not end the text.")
    include_stop_str_in_output: bool = Field(default=False, description="Extension.")
    response_format: ResponseFormat | None = Field(default=None, description="JSON, enforced exactly.")
    structured_outputs: StructuredOutputs | None = Field(default=None, description="Extension, as in vLLM.")
    speculation: Speculation | None = Field(default=None, description="Extension.")
    deadline: Annotated[float, Field(ge=0.01)] | None = Field(
        default=None, description="Extension. Seconds after which the request ends with an error."
    )

    @model_validator(mode="after")
    def _consistent(self) -> "Generation":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream: true")
        if self.structured_outputs and self.response_format:
            raise ValueError("response_format and structured_outputs exclude each other; send one of them")
        return self


class TextPart(Strict):
    type: Literal["text"]
    text: str


class Message(Strict):
    """One turn. Only text is supported; roles are passed to the model's chat template, which may refuse one."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(Generation):
    """POST /v1/chat/completions"""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @model_validator(mode="after")
    def _agree(self) -> "ChatRequest":
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise ValueError("max_tokens and max_completion_tokens differ; send one of them")
        return self


Ids = Annotated[list[TokenId], Field(min_length=1)]
Prompts = Text | Ids | Annotated[list[Text | Ids], Field(min_length=1)]


class CompletionRequest(Generation):
    """POST /v1/completions"""

    prompt: Prompts
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts one by one."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if all(isinstance(item, int) for item in self.prompt):
            return [[item for item in self.prompt if isinstance(item, int)]]
        return [item for item in self.prompt if not isinstance(item, int)]
