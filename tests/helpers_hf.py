"""Tiny random Hugging Face models of several kinds, and the stock forward pass as the reference."""

import copy

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from outrider.types import DraftTree, Outcome, pack

VOCAB = 61
WINDOW = 6
TREE = DraftTree((7, 8, 9, 10, 11, 12, 13), (-1, 0, 0, 1, 2, 2, 5))  # two branches; node 6 lies four deep

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "attn_implementation": "eager",
}
CONFIGS = {
    "llama": lambda: LlamaConfig(**SIZES),
    "qwen2": lambda: Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
    "qwen3": lambda: Qwen3Config(**SIZES, head_dim=16),
    "mistral": lambda: MistralConfig(**SIZES, sliding_window=WINDOW),
    "gemma3": lambda: Gemma3TextConfig(
        **SIZES,
        head_dim=16,
        query_pre_attn_scalar=12,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        final_logit_softcapping=5.0,
    ),
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCAB,
        n_embd=32,
        n_layer=3,
        n_head=4,
        n_positions=1024,
        scale_attn_by_inverse_layer_idx=True,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="eager",
    ),
    "gpt_neox": lambda: GPTNeoXConfig(
        **{name: value for name, value in SIZES.items() if name != "num_key_value_heads"}, rotary_pct=0.5
    ),
}
KINDS = tuple(CONFIGS)
WINDOWED = ("qwen2", "mistral", "gemma3")


def tiny(kind: str, dtype: torch.dtype = torch.float64, seed: int = 0):
    """A stock model with random weights, large enough that every input matters; eager attention."""
    torch.manual_seed(seed)
    config = copy.deepcopy(CONFIGS[kind]())
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.3)
            else:
                weight.add_(torch.randn_like(weight) * 0.1)
    return model.to(dtype).eval()


def text(length: int, seed: int = 1) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB, (length,), generator=generator).tolist()


@torch.no_grad()
def stock(model, tokens: list[int]) -> Tensor:
    """Logits (n, V) of one stock forward pass over a whole text."""
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def score(target, trees: list[DraftTree], rows: list[int], **options) -> Tensor:
    lengths = [target.length(row) for row in rows]
    return target.score(pack(trees, rows, lengths), **options).logits


def chain(tokens: list[int]) -> DraftTree:
    return DraftTree.chain(tokens[0], tokens[1:])


def outcome(*path: int) -> Outcome:
    return Outcome(path, 0)
