"""Tokens as the bytes they stand for, so that vocabularies of different families can be compared.

Byte-level vocabularies (GPT-2 and what follows it) write every byte as one printable character, a space as `Ġ`;
SentencePiece vocabularies write a space as `▁` and bytes outside the vocabulary as `<0x0A>`. Special tokens, and whole
vocabularies of other kinds, are taken as they are written.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache

from outrider.targets.base import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def spell(tokenizer: Tokenizer) -> dict[bytes, int]:
    """Bytes of every token and its id. Of two tokens of the same bytes the one written plainly, then the lower id."""
    texts = tokenizer.vocabulary()
    read = _style(texts)
    spelled: dict[bytes, int] = {}
    for text, token_id in sorted(texts.items(), key=lambda item: (bool(_BYTE.fullmatch(item[0])), item[1])):
        spelled.setdefault(read(text), token_id)
    return spelled


def _style(texts: Mapping[str, int]) -> Callable[[str], bytes]:
    """How this vocabulary is read: told from how it begins words. (Either sign may be a letter of the other kind.)"""
    byte_level = sum(text.startswith("Ġ") for text in texts)
    sentence_piece = sum(text.startswith("▁") for text in texts)
    if byte_level > sentence_piece:
        return _byte_level
    if sentence_piece:
        return _sentence_piece
    return str.encode


def _byte_level(text: str) -> bytes:
    table = _byte_characters()
    if all(character in table for character in text):
        return bytes(table[character] for character in text)
    return text.encode()  # a special token


def _sentence_piece(text: str) -> bytes:
    if found := _BYTE.fullmatch(text):
        return bytes([int(found[1], 16)])
    return text.replace("▁", " ").encode()


@cache
def _byte_characters() -> Mapping[str, int]:
    """The character that stands for each byte: printable ones for themselves, the others from U+0100 on in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + rank): byte for rank, byte in enumerate(others)}
