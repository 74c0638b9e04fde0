"""From a checked body to engine requests: one per answer, prompts as token ids, every setting under the engine's name.

Answer j of n to a prompt uses the seed itself for j = 0 and a number mixed from seed and j after that (`choice_seed`),
so n = 1 writes what the first of n = 4 writes. Without a seed a fresh one is drawn.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol

from outrider.acceptance import make_rule
from outrider.engine.engine import Engine
from outrider.engine.request import Prompt, Request, encode_prompt
from outrider.errors import OutriderError, UnsupportedError, did_you_mean
from outrider.sampling.params import SamplingParams
from outrider.server.config import ServerConfig
from outrider.server.errors import BadRequest, UnknownModel
from outrider.server.schema import (
    ChatRequest,
    CompletionRequest,
    Generation,
    JsonObjectFormat,
    JsonSchemaFormat,
    TextFormat,
)
from outrider.structured import Grammar, GrammarCompiler, GrammarProcessor, Structure

COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions
_MASK = (1 << 64) - 1


def choice_seed(seed: int, index: int) -> int:
    """The seed of answer `index`: the request's own for the first, else mixed with SplitMix64's finaliser."""
    if index == 0:
        return seed & _MASK
    mixed = (seed + index * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


@dataclass(frozen=True)
class Facts:
    """What the server's own settings and its engine allow."""

    engine: Engine
    config: ServerConfig
    model_name: str
    drafters: Sequence[str]


class _Factory(Protocol):
    def __call__(self, tokenizer: Any, vocab_size: int, end_token_ids: Sequence[int]) -> GrammarCompiler: ...


class Translator:
    """Makes engine requests of bodies. Called from several threads: tokenizer and grammar compiler are guarded."""

    def __init__(self, facts: Facts, make_compiler: _Factory = GrammarCompiler) -> None:
        self.facts = facts
        self._make_compiler = make_compiler
        self._compiler: GrammarCompiler | None = None
        self._lock = Lock()

    def chat(self, body: ChatRequest) -> list[Request]:
        """One request per answer. Raises BadRequest or UnknownModel."""
        self._check(body, num_prompts=1)
        messages = [{"role": message.role, "content": message.text} for message in body.messages]
        limit = body.max_completion_tokens or body.max_tokens
        top = None if not body.logprobs else body.top_logprobs or 0
        return self._requests(body, [messages], "messages", limit, self.facts.config.max_tokens, top)

    def completions(self, body: CompletionRequest) -> list[Request]:
        """One request per prompt and answer, prompt by prompt. Raises BadRequest or UnknownModel."""
        self._check(body, num_prompts=len(body.prompts))
        return self._requests(body, body.prompts, "prompt", body.max_tokens, COMPLETION_TOKENS, body.logprobs)

    # ---- checks

    def _check(self, body: Generation, num_prompts: int) -> None:
        facts, asked = self.facts, body.speculation
        if body.model != facts.model_name:
            raise UnknownModel(f"no model {body.model!r} here{did_you_mean(body.model, [facts.model_name])}")
        if body.n * num_prompts > facts.config.max_choices:
            raise BadRequest(
                f"{body.n} answers to {num_prompts} prompts are more than this server's {facts.config.max_choices}", "n"
            )
        if asked and not asked.enabled and (asked.drafter not in (None, "none") or asked.max_depth):
            raise BadRequest("speculation.enabled is false; drafter and max_depth need it to be true", "speculation")
        if asked and asked.drafter and asked.drafter not in (*facts.drafters, "none"):
            known = did_you_mean(asked.drafter, facts.drafters) if facts.drafters else "; it has none"
            raise BadRequest(f"this server has no drafter {asked.drafter!r}{known}", "speculation.drafter")
        if field := _structured_by(body):
            for name in ("ignore_eos", "min_tokens"):
                if getattr(body, name):
                    raise BadRequest(f"{name} cannot be combined with {field}: the grammar's end is the end", name)

    # ---- requests

    def _requests(
        self,
        body: Generation,
        prompts: Sequence[Prompt],
        field: str,
        limit: int | None,
        default: int,
        logprobs: int | None,
    ) -> list[Request]:
        grammar = self._grammar(body)
        seed = secrets.randbelow(1 << 53) if body.seed is None else body.seed
        requests: list[Request] = []
        for prompt in prompts:
            tokens = self._encode(prompt, field)
            params = self._params(body, self._budget(limit, default, len(tokens)), logprobs)
            requests += [self._request(body, tokens, params, choice_seed(seed, i), grammar) for i in range(body.n)]
        self._dry_run(requests[0])
        return requests

    def _encode(self, prompt: Prompt, field: str) -> list[int]:
        target = self.facts.engine.target
        with self._lock:
            return _naming(field, lambda: encode_prompt(prompt, target.tokenizer, target.info))

    def _budget(self, asked: int | None, default: int, num_prompt: int) -> int:
        room = self.facts.engine.target.info.max_length - num_prompt
        limit = self.facts.config.max_tokens
        if asked is None:
            return max(1, min(default, limit, room))
        if asked > limit:
            raise BadRequest(f"max_tokens is {asked}; this server allows {limit}", "max_tokens")
        if asked > room:
            raise BadRequest(
                f"the prompt has {num_prompt} tokens and max_tokens is {asked}, but the context holds "
                f"{num_prompt + room}; lower max_tokens to {room} or shorten the prompt",
                "max_tokens",
            )
        return asked

    def _params(self, body: Generation, budget: int, logprobs: int | None) -> SamplingParams:
        asked = body.speculation
        depth = 0 if asked and not asked.enabled else asked.max_depth if asked else None
        options: dict[str, Any] = {
            "temperature": body.temperature,
            "top_k": body.top_k,
            "top_p": body.top_p,
            "min_p": body.min_p,
            "repetition_penalty": body.repetition_penalty,
            "presence_penalty": body.presence_penalty,
            "frequency_penalty": body.frequency_penalty,
            "logit_bias": body.logit_bias and {int(token): bias for token, bias in body.logit_bias.items()},
            "min_new_tokens": body.min_tokens,
            "max_new_tokens": budget,
            "stop": body.stop,
            "stop_token_ids": body.stop_token_ids,
            "include_stop": body.include_stop_str_in_output,
            "ignore_eos": body.ignore_eos,
            "logprobs": logprobs,
            "max_depth": depth,
        }
        return _naming(None, lambda: SamplingParams.from_options(**options))

    def _request(
        self, body: Generation, tokens: list[int], params: SamplingParams, seed: int, grammar: Grammar | None
    ) -> Request:
        processors = () if grammar is None else (GrammarProcessor(grammar.fresh(), len(tokens)),)
        asked = body.speculation
        return Request(
            tokens,
            replace(params, seed=seed, logits_processors=processors),
            drafter=asked.drafter if asked else None,
            rule=asked.rule if asked else None,
        )

    def _grammar(self, body: Generation) -> Grammar | None:
        field = _structured_by(body)
        if field is None:
            return None
        with self._lock:
            compiler = _naming(field, self._grammar_compiler)
        if isinstance(body.response_format, JsonObjectFormat):
            return compiler.json_object()
        return _naming(field, lambda: _structure(body).compile(compiler))

    def _grammar_compiler(self) -> GrammarCompiler:
        """Made when it is first needed: it takes seconds and memory that most servers never need."""
        target = self.facts.engine.target
        if target.tokenizer is None:
            raise UnsupportedError("structured output needs a target with a tokenizer")
        if self._compiler is None:
            self._compiler = self._make_compiler(target.tokenizer, target.info.vocab_size, target.info.eos_token_ids)
        return self._compiler

    def _dry_run(self, request: Request) -> None:
        """Everything that the engine would refuse is refused here, before an answer has begun."""
        info = self.facts.engine.target.info
        params = request.params
        _naming(None, lambda: params.resolve(info.generation_defaults, info.eos_token_ids, info.vocab_size))
        rule_name = request.rule
        rule = _naming("speculation.rule", lambda: make_rule(rule_name)) if rule_name else self.facts.engine.rule
        if params.logits_processors and not rule.visits_path_only:
            raise BadRequest(f"rule {rule.name!r} cannot be combined with structured output", "speculation.rule")
        if params.stop and self.facts.engine.target.tokenizer is None:
            raise BadRequest("stop needs a target with a tokenizer; use stop_token_ids", "stop")


def _structured_by(body: Generation) -> str | None:
    """The field that asks for text of a grammar, if one does."""
    if body.structured_outputs:
        return "structured_outputs"
    return "response_format" if body.response_format and not isinstance(body.response_format, TextFormat) else None


def _structure(body: Generation) -> Structure:
    wanted = body.structured_outputs
    if wanted:
        return Structure(json_schema=wanted.json_, regex=wanted.regex, choice=wanted.choice, lark=wanted.grammar)
    assert isinstance(body.response_format, JsonSchemaFormat)
    return Structure(json_schema=body.response_format.json_schema.schema_)


def _naming(field: str | None, make: Callable[[], Any]) -> Any:
    """The value; what the library refuses becomes a BadRequest that names the field."""
    try:
        return make()
    except OutriderError as error:
        raise BadRequest(_as_fields(str(error)), field or _field_in(str(error))) from error


_NAMES = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "include_stop": "include_stop_str_in_output",
}


def _as_fields(message: str) -> str:
    for ours, theirs in _NAMES.items():
        message = message.replace(ours, theirs)
    return message


def _field_in(message: str) -> str | None:
    """The field that a message of SamplingParams begins with."""
    word = _as_fields(message).split(" ", 1)[0].split("=", 1)[0].split("[", 1)[0].split("'", 1)[0]
    return word if word in (*Generation.model_fields, *ChatRequest.model_fields) else None
