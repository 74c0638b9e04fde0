"""Tiny random transformers in memory: real attention, caches and positions, with nothing to download."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from outrider.targets.hf.target import HFTarget

VOCAB = 23


@cache
def llama(seed: int = 0, dtype: torch.dtype = torch.float64, layers: int = 2) -> LlamaForCausalLM:
    """A Llama with weights large enough for its choices to depend on the whole text."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.6,
        bos_token_id=None,
        eos_token_id=None,
    )
    return _built(LlamaForCausalLM, config, seed, dtype)


@cache
def sliding(seed: int = 0, dtype: torch.dtype = torch.float64, window: int = 8) -> Gemma3ForCausalLM:
    """A Gemma-3 whose first two of three layers see only the newest `window` positions."""
    config = Gemma3TextConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=8,
        query_pre_attn_scalar=8,
        sliding_window=window,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        max_position_embeddings=512,
        initializer_range=0.6,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return _built(Gemma3ForCausalLM, config, seed, dtype)


def near_copy(model: Any, noise: float = 0.1, seed: int = 9) -> Any:
    """A draft model that often agrees: the same weights, each off by a little."""
    twin = type(model)(model.config).to(model.dtype).eval()
    twin.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in twin.parameters():
            weight.mul_(
                1 + noise * torch.randn(weight.shape, generator=generator, dtype=torch.float64).to(weight.dtype)
            )
    return twin


def target(model: Any, **options: Any) -> HFTarget:
    return HFTarget(model, name=f"tiny-{model.config.model_type}", **options)


def _built(cls: Any, config: Any, seed: int, dtype: torch.dtype) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return cls(config).to(dtype).eval()


def save_model(folder: Path, model: Any, words: int = VOCAB, **generation: Any) -> str:
    """The model as a folder that can be loaded by path, with a tokenizer of `words` words and these settings."""
    inner = Tokenizer(models.WordLevel({f"w{index}": index for index in range(words)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model.save_pretrained(folder)
    GenerationConfig(**generation).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="w0").save_pretrained(folder)
    return str(folder)
