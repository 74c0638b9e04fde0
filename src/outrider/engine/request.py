"""What a user hands in, and the prompt as token ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.errors import PromptError
from outrider.sampling.params import SamplingParams
from outrider.targets.base import TargetInfo, Tokenizer

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Request:
    """One generation: a prompt (text, token ids, or chat messages), its settings, and its own drafter or rule if any."""

    prompt: Prompt
    params: SamplingParams = field(default_factory=SamplingParams)
    drafter: str | None = None
    rule: str | None = None


def encode_prompt(prompt: Prompt, tokenizer: Tokenizer | None, info: TargetInfo) -> list[int]:
    """The prompt's token ids, checked. Raises PromptError if it is empty, too long, or holds ids unknown to the target."""
    token_ids = _token_ids(prompt, tokenizer)
    if not token_ids:
        raise PromptError("the prompt is empty; give at least one token")
    for token in token_ids:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < info.vocab_size:
            raise PromptError(f"the prompt holds {token!r}; token ids of {info.name} are 0 to {info.vocab_size - 1}")
    if len(token_ids) >= info.max_length:
        raise PromptError(
            f"the prompt has {len(token_ids)} tokens and the limit is {info.max_length}, one of them to be written; "
            "shorten it or load the target with a larger max_length"
        )
    return token_ids


def _token_ids(prompt: Prompt, tokenizer: Tokenizer | None) -> list[int]:
    if not isinstance(prompt, str) and (not isinstance(prompt, Sequence) or isinstance(prompt, bytes)):
        if hasattr(prompt, "tolist"):
            return _token_ids(prompt.tolist(), tokenizer)
        raise PromptError(f"a prompt is text, token ids or chat messages, not {type(prompt).__name__}")
    if len(prompt) == 0:
        return []
    is_chat = not isinstance(prompt, str) and isinstance(prompt[0], Mapping)
    if not isinstance(prompt, str) and not is_chat:
        return list(prompt)  # pyright: ignore[reportReturnType]
    if tokenizer is None:
        raise PromptError("this target has no tokenizer; give token ids")
    if isinstance(prompt, str):
        return tokenizer.encode(prompt)
    return tokenizer.encode_chat(prompt)  # pyright: ignore[reportArgumentType]
