"""The tokenizer and the chat template that a GGUF file carries, as the engine wants them.

A token's bytes are read once and kept; text is their concatenation, so decoding never depends on where a text is cut,
but for bytes that are no UTF-8, which come as U+FFFD.
"""

import ctypes
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from outrider.errors import PromptError
from outrider.targets.llamacpp.facts import metadata

SPACE = "tokenizer.ggml.add_space_prefix"
FIRST_BUFFER = 32  # bytes; a longer piece is asked for again


class LlamaTokenizer:
    """Adapter of `targets.base.Tokenizer` over a loaded model's vocabulary."""

    def __init__(self, native: Any, model: Any, name: str) -> None:
        self._native = native
        self._vocab = native.llama_model_get_vocab(model)
        self._count: int = native.llama_vocab_n_tokens(self._vocab)
        template = native.llama_model_chat_template(model, None)
        self._template: str | None = template.decode(errors="replace") if template else None
        self._strips_space = metadata(native, model, SPACE) != "false" and self._is_sentencepiece()
        self._name = name
        self._pieces: dict[tuple[int, bool], bytes] = {}

    @property
    def name(self) -> str:
        return self._name

    @cached_property
    def _texts(self) -> dict[str, int]:
        read = self._native.llama_vocab_get_text
        texts = (read(self._vocab, token).decode(errors="replace") for token in range(self._count))
        if self._is_sentencepiece():  # llama.cpp shows runs of spaces as spaces, the vocabulary writes them so
            texts = (text.replace(" ", "\u2581") for text in texts)
        return {text: token for token, text in enumerate(texts)}

    def vocabulary(self) -> Mapping[str, int]:
        """Every token's text, as the file writes it, and its id; padding included."""
        return self._texts

    def pieces(self) -> list[bytes]:
        """Every token's bytes, as marks are written where it is one."""
        return [self._read_piece(token, True) for token in range(self._count)]

    def special_ids(self) -> list[int]:
        """Tokens that are marks and no text: of control, of chats, of nothing."""
        native, vocab = self._native, self._vocab
        marks = native.LLAMA_TOKEN_ATTR_CONTROL | native.LLAMA_TOKEN_ATTR_UNUSED | native.LLAMA_TOKEN_ATTR_UNKNOWN
        return [token for token in range(self._count) if native.llama_vocab_get_attr(vocab, token) & marks]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of a text; special tokens written out in it are read as such."""
        data = text.encode(errors="replace")
        room = len(data) + 8
        ids = (self._native.llama_token * room)()
        count = self._native.llama_tokenize(self._vocab, data, len(data), ids, room, add_special_tokens, True)
        if count < 0:
            ids = (self._native.llama_token * -count)()
            count = self._native.llama_tokenize(self._vocab, data, len(data), ids, -count, add_special_tokens, True)
        if count < 0:
            raise PromptError(f"{self._name} cannot read this text of {len(text)} characters")
        return list(ids[:count])

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        text = b"".join(self._piece(int(token), not skip_special_tokens) for token in token_ids)
        shown = text.decode(errors="replace")
        return shown[1:] if self._strips_space and shown.startswith(" ") else shown

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of a conversation, ending where the assistant is to speak. Raises PromptError."""
        if not self._template:
            raise PromptError(f"{self._name} has no chat template; give the prompt as text or token ids")
        try:
            text = self._rendered([dict(message) for message in messages])
        except Exception as error:  # templates are programs of the model's authors; they raise anything
            raise PromptError(f"the chat template of {self._name} does not take these messages: {error}") from error
        return self.encode(text, add_special_tokens=False)

    def _rendered(self, messages: list[dict[str, Any]]) -> str:
        """The conversation as text. Templates come with the model, so they run in a sandbox."""
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        world = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        names: Any = world.globals
        names.update(raise_exception=_refuse, strftime_now=_now)
        return world.from_string(self._template or "").render(
            messages=messages,
            add_generation_prompt=True,
            bos_token=self._special(self._native.llama_vocab_bos),
            eos_token=self._special(self._native.llama_vocab_eos),
            tools=None,
            documents=None,
        )

    def _special(self, which: Any) -> str:
        token = which(self._vocab)
        return "" if token < 0 else self._piece(token, True).decode(errors="replace")

    def _piece(self, token: int, special: bool) -> bytes:
        """The token's bytes; nothing for a control token, unless `special`, or for an id that does not exist."""
        key = (token, special)
        if key not in self._pieces:
            self._pieces[key] = self._read_piece(token, special) if 0 <= token < self._count else b""
        return self._pieces[key]

    def _read_piece(self, token: int, special: bool) -> bytes:
        buffer = ctypes.create_string_buffer(FIRST_BUFFER)
        size = self._native.llama_token_to_piece(self._vocab, token, buffer, FIRST_BUFFER, 0, special)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = self._native.llama_token_to_piece(self._vocab, token, buffer, -size, 0, special)
        return buffer.raw[: max(0, size)]

    def _is_sentencepiece(self) -> bool:
        return self._native.llama_vocab_type(self._vocab) == self._native.LLAMA_VOCAB_TYPE_SPM


def _refuse(message: str) -> None:
    raise ValueError(message)


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
