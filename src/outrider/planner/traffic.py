"""The user's own traffic: prompts from a JSONL file, with the answers that were given if the file holds them.

One object a line, in any form that prompts.py reads. An answer stands under one of the names in ANSWERS, as text or
token ids, or is the last message of a chat if the assistant wrote it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outrider.errors import PromptError
from outrider.prompts import OWN, TestPrompt, load_prompts
from outrider.targets.base import Target, Tokenizer

ANSWERS = ("answer", "completion", "response", "output", "answer_token_ids")


@dataclass(frozen=True)
class Sample:
    """One request of the traffic. answer: token ids, none if it has yet to be written. recorded: it was in the file."""

    id: str
    kind: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...] = ()
    recorded: bool = False

    @property
    def tokens(self) -> list[int]:
        return [*self.prompt, *self.answer]


def read_traffic(source: str, target: Target, *, limit: int | None, max_new_tokens: int) -> list[Sample]:
    """At most `limit` samples of the file (or "own"), one of each kind in turn; prompts that are too long are left out.

    Answers are cut to max_new_tokens. Raises OptionError, and PromptError if nothing fits.
    """
    prompts = load_prompts(source, None, limit)
    answers = {} if source == OWN else _answers(source)
    made = [_sample(prompt, answers.get(prompt.id), target, max_new_tokens) for prompt in prompts]
    room = target.info.max_length - max_new_tokens
    fitting = [sample for sample in made if 1 <= len(sample.prompt) <= room]
    if not fitting:
        raise PromptError(
            f"no prompt of {source} leaves room for {max_new_tokens} tokens within {target.info.max_length}; "
            "ask for fewer tokens, or load the target with a larger max_length"
        )
    return fitting


def _answers(source: str) -> dict[str, Any]:
    """What the file's lines hold as answers, by the id that load_prompts gives them."""
    found: dict[str, Any] = {}
    for number, line in enumerate(Path(source).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        entry: dict[str, Any] = json.loads(line)
        kind = str(entry.get("kind", entry.get("category", "prompt")))
        answer = next((entry[name] for name in ANSWERS if entry.get(name)), None) or _last_message(entry)
        if answer:
            found[str(entry.get("id", f"{kind}-{number}"))] = answer
    return found


def _last_message(entry: Mapping[str, Any]) -> str | None:
    messages = entry.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if isinstance(last, Mapping) and last.get("role") == "assistant":
        return str(last.get("content") or "") or None
    return None


def _sample(prompt: TestPrompt, answer: Any, target: Target, max_new_tokens: int) -> Sample:
    if _is_chat(prompt) and prompt.prompt and _role(prompt.prompt[-1]) == "assistant":
        prompt = replace(prompt, prompt=prompt.prompt[:-1])
    ids = tuple(prompt.encode(target.tokenizer))
    known = _token_ids(answer, target.tokenizer, target.info.vocab_size, prompt.id) if answer else ()
    return Sample(prompt.id, prompt.kind, ids, known[:max_new_tokens], recorded=bool(known))


def _is_chat(prompt: TestPrompt) -> bool:
    return isinstance(prompt.prompt, list)


def _role(message: object) -> str:
    return str(message.get("role")) if isinstance(message, Mapping) else ""


def _token_ids(answer: Any, tokenizer: Tokenizer | None, vocab_size: int, name: str) -> tuple[int, ...]:
    if not isinstance(answer, str):
        return _checked(answer, vocab_size, name)
    if tokenizer is None:
        raise PromptError(f"the answer of {name!r} is text but the target has no tokenizer; give answer_token_ids")
    return tuple(tokenizer.encode(answer, add_special_tokens=False))


def _checked(answer: Any, vocab_size: int, name: str) -> tuple[int, ...]:
    if not isinstance(answer, list):
        raise PromptError(f"the answer of {name!r} is {answer!r}; it must be text or a list of token ids")
    for token in answer:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise PromptError(f"the answer of {name!r} holds {token!r}; a token id lies between 0 and {vocab_size - 1}")
    return tuple(answer)
