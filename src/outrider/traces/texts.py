"""What a token reads as in a trace: every token says something, also one that is only a part of a character."""

from functools import lru_cache

from outrider.targets.base import Tokenizer
from outrider.tokens import TokenNames

_PART = "\ufffd"
REMEMBERED = 1 << 16  # texts; a vocabulary's common part


class TokenTexts:
    """texts([id, ...]): the token decoded on its own; bytes that are no character by themselves as ⟨e2 96⟩."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._names = TokenNames(tokenizer)
        self.text = lru_cache(maxsize=REMEMBERED)(self._text)

    def texts(self, token_ids: tuple[int, ...]) -> list[str]:
        return [self.text(token) for token in token_ids]

    def _text(self, token_id: int) -> str:
        text = self._names.text(token_id)
        if _PART not in text:
            return text
        found = self._names.utf8(token_id)
        return text if found is None else f"⟨{bytes(found).hex(' ')}⟩"
