"""Prompts to measure and certify with: the project's own in six kinds, or a file of one's own.

A JSONL file has one object a line, with the prompt under one of the names in `FORMS`; `kind` (or `category`) and `id`
are optional. The own prompts were written for this project and are chat messages.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.errors import OptionError, PromptError, did_you_mean

if TYPE_CHECKING:
    from outrider.targets.base import Tokenizer

OWN = "own"


@dataclass(frozen=True)
class TestPrompt:
    """One prompt: text, chat messages or token ids, as a request takes them."""

    __test__ = False  # pytest: this is no test class

    id: str
    kind: str
    prompt: str | list[int] | list[Mapping[str, Any]]

    def encode(self, tokenizer: "Tokenizer | None") -> list[int]:
        """The token ids. Chat goes through the model's chat template. Raises PromptError without a tokenizer."""
        if not isinstance(self.prompt, str) and not (self.prompt and isinstance(self.prompt[0], Mapping)):
            return [int(token) for token in self.prompt]  # pyright: ignore[reportArgumentType]
        if tokenizer is None:
            raise PromptError(f"prompt {self.id!r} is text but the target has no tokenizer; give token_ids")
        if isinstance(self.prompt, str):
            return tokenizer.encode(self.prompt)
        return tokenizer.encode_chat(self.prompt)  # pyright: ignore[reportArgumentType]


FORMS: dict[str, Callable[[Any], Any]] = {
    "messages": lambda value: list(value),
    "turns": lambda value: [{"role": "user", "content": value[0]}],  # the first turn alone
    "prompt": str,
    "token_ids": lambda value: [int(token) for token in value],
}


def load_prompts(source: str = OWN, kinds: Sequence[str] | None = None, limit: int | None = None) -> list[TestPrompt]:
    """The prompts of "own" or of a .jsonl file, of these kinds, at most `limit`, taken from the kinds in turn.

    Raises OptionError for a missing or broken file, an unknown kind, or a limit below 1.
    """
    if limit is not None and limit < 1:
        raise OptionError(f"the number of prompts is {limit}; it must be at least 1")
    prompts = _read(source)
    known = {prompt.kind for prompt in prompts}
    for kind in kinds or ():
        if kind not in known:
            raise OptionError(f"no prompt of kind {kind!r} in {source}{did_you_mean(kind, known)}")
    chosen = [prompt for prompt in prompts if not kinds or prompt.kind in kinds]
    return chosen if limit is None else _spread(chosen)[:limit]


def _read(source: str) -> list[TestPrompt]:
    text = _own_text() if source == OWN else _file_text(source)
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise OptionError(f"{source} holds no prompts")
    prompts = [_parse(source, number, line) for number, line in lines]
    ids = [prompt.id for prompt in prompts]
    for prompt in prompts:
        if ids.count(prompt.id) > 1:
            raise OptionError(f"{source} has the id {prompt.id!r} twice; ids must differ")
    return prompts


def _own_text() -> str:
    return (files("outrider") / "data" / "prompts.jsonl").read_text(encoding="utf-8")


def _file_text(source: str) -> str:
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read prompts from {source!r}: {error}; give a .jsonl file or {OWN!r}") from error


def _parse(source: str, number: int, line: str) -> TestPrompt:
    where = f"{source}, line {number}"
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise OptionError(f"{where} is not JSON: {error}") from error
    form = next((form for form in FORMS if isinstance(entry, dict) and form in entry), None)
    if form is None:
        raise OptionError(f"{where} has no prompt; give one of {', '.join(FORMS)}")
    try:
        prompt = FORMS[form](entry[form])
    except (TypeError, ValueError, LookupError) as error:
        raise OptionError(f"{where}: {form} is {entry[form]!r}, which is no prompt") from error
    kind = str(entry.get("kind", entry.get("category", "prompt")))
    return TestPrompt(str(entry.get("id", f"{kind}-{number}")), kind, prompt)


def _spread(prompts: Sequence[TestPrompt]) -> list[TestPrompt]:
    """The same prompts, one of each kind in turn, so that a short run sees every kind."""
    by_kind: dict[str, list[TestPrompt]] = {}
    for prompt in prompts:
        by_kind.setdefault(prompt.kind, []).append(prompt)
    place = {prompt.id: rank for group in by_kind.values() for rank, prompt in enumerate(group)}
    return sorted(prompts, key=lambda prompt: place[prompt.id])
