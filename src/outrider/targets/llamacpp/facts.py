"""What a GGUF file says of its model: whether we can run it, its sizes, its end tokens, its sampling settings."""

import ctypes
from dataclasses import dataclass
from typing import Any

from outrider.errors import OptionError, UnsupportedError

DEFAULT_MAX_LENGTH = 4096
MOST_BYTES = 2 << 30  # of a cache whose size was not asked for
TEXT_BYTES = 1 << 16
SAMPLING = {  # the file's name: ours, and its type
    "general.sampling.temp": ("temperature", float),
    "general.sampling.top_k": ("top_k", int),
    "general.sampling.top_p": ("top_p", float),
    "general.sampling.min_p": ("min_p", float),
    "general.sampling.penalty_repeat": ("repetition_penalty", float),
}
NEUTRAL = {"general.sampling.xtc_probability": 0.0, "general.sampling.mirostat": 0.0}


@dataclass(frozen=True)
class ModelFacts:
    """Sizes and ids of a model. window: of its sliding attention, 0 if it has none."""

    architecture: str
    vocab_size: int
    num_columns: int
    trained_length: int
    window: int
    end_token_ids: tuple[int, ...]
    token_bytes: int  # of one cached token at two bytes a number


def read_facts(native: Any, model: Any) -> ModelFacts:
    """The facts of a loaded model."""
    vocab = native.llama_model_get_vocab(model)
    count = native.llama_vocab_n_tokens(vocab)
    return ModelFacts(
        architecture=metadata(native, model, "general.architecture") or "unknown",
        vocab_size=_real_tokens(native, vocab, count),
        num_columns=count,
        trained_length=native.llama_model_n_ctx_train(model),
        window=native.llama_model_n_swa(model),
        end_token_ids=tuple(token for token in range(count) if native.llama_vocab_is_eog(vocab, token)),
        token_bytes=_token_bytes(native, model),
    )


def refuse_unsupported(native: Any, model: Any, name: str) -> None:
    """UnsupportedError, with the reason, unless this is a decoder whose cache can be rolled back."""
    kind = metadata(native, model, "general.architecture") or name
    if native.llama_model_has_encoder(model) or not native.llama_model_has_decoder(model):
        raise UnsupportedError(f"{kind} is no decoder-only model; Outrider runs decoder-only models")
    for what, is_such in (("recurrent", native.llama_model_is_recurrent), ("hybrid", native.llama_model_is_hybrid)):
        if is_such(model):
            raise UnsupportedError(f"{kind} is {what}; its state cannot be rolled back after a rejected draft")
    if native.llama_model_is_diffusion(model):
        raise UnsupportedError(f"{kind} writes by diffusion, not one token after another")


def metadata(native: Any, model: Any, key: str) -> str | None:
    """A value of the file's header as text; None if it is not there."""
    buffer = ctypes.create_string_buffer(TEXT_BYTES)
    size = native.llama_model_meta_val_str(model, key.encode(), buffer, TEXT_BYTES)
    return None if size < 0 else buffer.value.decode(errors="replace")


def sampling_defaults(native: Any, model: Any) -> dict[str, Any]:
    """Sampling settings that the file recommends, under SamplingParams names. Raises UnsupportedError."""
    for key, nothing in NEUTRAL.items():
        value = metadata(native, model, key)
        if value is not None and float(value) != nothing:
            raise UnsupportedError(f"the file sets {key}={value}, which is not supported")
    found = {ours: (metadata(native, model, key), kind) for key, (ours, kind) in SAMPLING.items()}
    return {ours: kind(float(text)) for ours, (text, kind) in found.items() if text is not None}


def choose_max_length(facts: ModelFacts, asked: int | None) -> int:
    """The asked length if the model can do it, else OptionError; by default the model's limit, at most 4,096."""
    limit = facts.trained_length
    if asked is None:
        return min(limit or DEFAULT_MAX_LENGTH, DEFAULT_MAX_LENGTH)
    if type(asked) is not int or asked < 1:
        raise OptionError(f"max_length is {asked!r}; it must be a whole number of tokens, at least 1")
    if limit and asked > limit:
        raise OptionError(f"max_length is {asked}; {facts.architecture} here goes up to {limit} tokens")
    return asked


def choose_cache_tokens(facts: ModelFacts, asked: int | None, max_rows: int, max_length: int, spare: int) -> int:
    """Places in the cache: as asked, else enough for all rows, at most 2 GiB, at least one row; `spare` for drafts."""
    if asked is not None:
        if asked < max_length:
            raise OptionError(
                f"cache_tokens is {asked}, less than one row of max_length={max_length}; lower max_length"
            )
        return asked + spare
    affordable = MOST_BYTES // max(1, facts.token_bytes)
    return max(max_length, min(max_rows * max_length, affordable)) + spare


def _real_tokens(native: Any, vocab: Any, count: int) -> int:
    """Without the padding at the end: ids that the file marks as unused."""
    while count > 1 and native.llama_vocab_get_attr(vocab, count - 1) & native.LLAMA_TOKEN_ATTR_UNUSED:
        count -= 1
    return count


def _token_bytes(native: Any, model: Any) -> int:
    """Bytes of keys and values of one token at 16 bits a number (an estimate: heads may differ by layer)."""
    kind = metadata(native, model, "general.architecture")
    named = metadata(native, model, f"{kind}.attention.key_length")
    head_size = int(named) if named else native.llama_model_n_embd(model) // max(1, native.llama_model_n_head(model))
    return 2 * 2 * native.llama_model_n_layer(model) * native.llama_model_n_head_kv(model) * head_size
