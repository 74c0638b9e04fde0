"""What a model's configuration says: whether we can run it, its sizes and its length limit. No weights are needed."""

from typing import Any

from outrider.errors import OptionError, UnsupportedError
from outrider.targets.hf.kv_cache import CacheShape

PLAIN_LAYERS = {"full_attention", "sliding_attention", "attention"}
DEFAULT_MAX_LENGTH = 4096
STATEFUL_HINTS = ("mamba_d_conv", "ssm_cfg", "state_size", "rglru", "linear_conv_kernel_dim", "layers_block_type")


def refuse_unsupported(config: Any, model_class: Any = None) -> None:
    """UnsupportedError, naming the model type and the missing ability, unless every layer is plain causal attention."""
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedError(f"{kind} is an encoder-decoder; Outrider runs decoder-only models")
    if hasattr(config, "vision_config") or hasattr(config, "audio_config"):
        raise UnsupportedError(f"{kind} takes images or sound beside text; Outrider runs text-only models")
    layers = {str(layer) for layer in getattr(config, "layer_types", None) or ()}
    strange = sorted(layers - PLAIN_LAYERS)
    if strange:
        raise UnsupportedError(
            f"{kind} has {strange[0]} layers; their state cannot be rolled back after a rejected draft"
        )
    if getattr(model_class, "_is_stateful", False) or any(hasattr(config, hint) for hint in STATEFUL_HINTS):
        raise UnsupportedError(f"{kind} is recurrent or hybrid; its state cannot be rolled back after a rejected draft")
    if getattr(config, "use_bidirectional_attention", False) or getattr(config, "is_causal", True) is False:
        raise UnsupportedError(f"{kind} attends to later tokens; Outrider runs causal models")
    if getattr(config, "attention_chunk_size", None):
        raise UnsupportedError(f"{kind} attends in chunks, which cannot be masked as a tree")
    if getattr(config, "alibi", False):
        raise UnsupportedError(f"{kind} adds a bias to its attention scores (ALiBi), which is not supported")
    if model_class is not None and not getattr(model_class, "_supports_attention_backend", False):
        raise UnsupportedError(f"{kind} does not use transformers' attention interface, so its cache cannot be ours")


def cache_shape(config: Any) -> CacheShape:
    """Layers, key heads and head size, by whichever names the configuration uses."""
    heads = config.num_attention_heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return CacheShape(config.num_hidden_layers, key_heads, head_size)


def length_limit(config: Any) -> int | None:
    """Most positions the model was made for; None where it says nothing."""
    limit = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":  # beyond it, every key would have to be computed anew
        name = "original_max_position_embeddings"
        return rope.get(name) or getattr(config, name, limit)
    return limit


def choose_max_length(config: Any, asked: int | None) -> int:
    """The asked length if the model can do it, else OptionError; by default the model's limit, at most 4,096."""
    limit = length_limit(config)
    if asked is None:
        return min(limit or DEFAULT_MAX_LENGTH, DEFAULT_MAX_LENGTH)
    if type(asked) is not int or asked < 1:
        raise OptionError(f"max_length is {asked!r}; it must be a whole number of tokens, at least 1")
    if limit is not None and asked > limit:
        raise OptionError(f"max_length is {asked}; {config.model_type} here goes up to {limit} tokens")
    return asked
