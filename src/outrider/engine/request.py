"""What a user hands in, and the prompt as token ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from outrider.errors import OptionError, PromptError
from outrider.sampling.params import SamplingParams
from outrider.targets.base import TargetInfo, Tokenizer

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Request:
    """One generation: a prompt (text, token ids, or chat messages), its settings, its own drafter or rule if any.

    timeout: seconds from submission after which it is cancelled with what it has.
    """

    prompt: Prompt
    params: SamplingParams = field(default_factory=SamplingParams)
    drafter: str | None = None
    rule: str | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.params, SamplingParams):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"params must be SamplingParams, not {self.params!r}")
        for name in ("drafter", "rule"):
            if not isinstance(getattr(self, name), str | None):
                raise OptionError(f"{name} must be a name, not {getattr(self, name)!r}")
        if self.timeout is not None and not _is_duration(self.timeout):
            raise OptionError(f"timeout is {self.timeout!r}; it must be a number of seconds above 0")


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def encode_prompt(prompt: Prompt, tokenizer: Tokenizer | None, info: TargetInfo) -> list[int]:
    """The prompt's token ids. Raises PromptError if it is empty, too long, or holds ids unknown to the target."""
    token_ids = _token_ids(prompt, tokenizer)
    if not token_ids:
        raise PromptError("the prompt is empty; give at least one token")
    for token in token_ids:
        if not _is_id(token, info.vocab_size):
            raise PromptError(f"the prompt holds {token!r}; token ids of {info.name} are 0 to {info.vocab_size - 1}")
    if len(token_ids) >= info.max_length:
        raise PromptError(
            f"the prompt has {len(token_ids)} tokens and the limit is {info.max_length}, one of them to be written; "
            "shorten it or load the target with a larger max_length"
        )
    return [int(token) for token in token_ids]


def _is_id(token: object, vocab_size: int) -> bool:
    return isinstance(token, Integral) and token is not True and token is not False and 0 <= int(token) < vocab_size


def _token_ids(prompt: object, tokenizer: Tokenizer | None) -> list[int]:
    """The ids of a text, of chat messages, or given as such (a list, an array, a tensor)."""
    tolist = getattr(prompt, "tolist", None)
    items: Any = tolist() if callable(tolist) else prompt
    if not isinstance(items, str | list | tuple):
        raise PromptError(f"a prompt is text, token ids or chat messages, not {type(prompt).__name__}")
    if not items:
        return []
    if not isinstance(items, str) and not isinstance(items[0], Mapping):
        return list(items)
    if not isinstance(items, str):
        _check_messages(items)
    if tokenizer is None:
        raise PromptError("this target has no tokenizer; give token ids")
    return tokenizer.encode(items) if isinstance(items, str) else tokenizer.encode_chat(items)


def _check_messages(items: Sequence[Any]) -> None:
    for item in items:
        if not isinstance(item, Mapping) or not isinstance(item.get("role"), str) or len(item) < 2:
            raise PromptError(f"a chat message is a mapping with role and content, not {item!r}")
