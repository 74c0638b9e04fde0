"""A transformers tokenizer as the engine wants it: exact ids, and text that is exactly what the ids say."""

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.errors import PromptError


class HFTokenizer:
    """Adapter of `targets.base.Tokenizer`. `inner` is the transformers tokenizer."""

    def __init__(self, inner: Any, name: str) -> None:
        self.inner = inner
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def vocabulary(self) -> Mapping[str, int]:
        """Every token's text, as the vocabulary writes it, and its id; added tokens included."""
        return self.inner.get_vocab()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of a text. Raises PromptError for what no tokenizer can read: halves of surrogate pairs."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PromptError(f"the text is no Unicode text: {error.reason} at character {error.start}") from error
        return list(self.inner.encode(text, add_special_tokens=add_special_tokens))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        options = {"skip_special_tokens": skip_special_tokens, "clean_up_tokenization_spaces": False}
        return self.inner.decode(list(token_ids), **options)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of a conversation, ending where the assistant is to speak. Raises PromptError."""
        if not getattr(self.inner, "chat_template", None):
            raise PromptError(f"{self._name} has no chat template; give the prompt as text or token ids")
        conversation = [dict(message) for message in messages]
        try:
            ids = self.inner.apply_chat_template(conversation, add_generation_prompt=True, return_dict=False)
        except Exception as error:  # templates are programs of the model's authors; they raise anything
            raise PromptError(f"the chat template of {self._name} does not take these messages: {error}") from error
        return list(ids)
