"""What one token reads as, for logprob reports and traces: its text alone, and its bytes where they can be told."""

from functools import lru_cache

from outrider.targets.base import Tokenizer

_UNKNOWN = "\ufffd"


class TokenNames:
    """text(id) and utf8(id). A token that is part of a character reads as U+FFFD; its bytes are the truth."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._written: dict[int, str] | None = None

    def text(self, token_id: int) -> str:
        """The token decoded on its own; without a tokenizer, its number."""
        if self._tokenizer is None:
            return str(token_id)
        return self._tokenizer.decode([token_id], skip_special_tokens=False)

    def utf8(self, token_id: int) -> list[int] | None:
        """The token's bytes; None where they cannot be told."""
        if self._tokenizer is None:
            return None
        text = self.text(token_id)
        if _UNKNOWN not in text:
            return list(text.encode())
        return _bytes_of(self._as_written(token_id))

    def _as_written(self, token_id: int) -> str:
        if self._written is None:
            assert self._tokenizer is not None
            self._written = {index: text for text, index in self._tokenizer.vocabulary().items()}
        return self._written.get(token_id, "")


def _bytes_of(written: str) -> list[int] | None:
    """Bytes of a vocabulary entry, written `<0xE2>` (byte fallback) or in byte-level BPE's alphabet."""
    if written.startswith("<0x") and written.endswith(">"):
        return [int(written[3:-1], 16)]
    alphabet = _byte_level()
    if written and all(character in alphabet for character in written):
        return [alphabet[character] for character in written]
    return None


@lru_cache(maxsize=1)
def _byte_level() -> dict[str, int]:
    """Byte-level BPE writes a byte that prints as itself, and the others as the characters from U+0100 on, in order."""
    prints = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in prints]
    return {**{chr(byte): byte for byte in prints}, **{chr(0x100 + i): byte for i, byte in enumerate(others)}}
