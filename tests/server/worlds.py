"""A toy model that reads and writes text, with a real tokenizer (256 bytes and an end token), and engines around it."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from helpers import World
from outrider import Engine
from outrider.drafters.registry import make_drafter
from outrider.server.build import make_parts
from outrider.server.config import ServerConfig
from outrider.targets.hf.tokenizer import HFTokenizer
from outrider.testing import FunctionDrafter, FunctionTarget

END = 256
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
WORLD = World(vocab_size=257, seed=5, draft_error=0.6)
MODEL = "toy"


@cache
def tokenizer() -> HFTokenizer:
    """Every byte is a token, so any text can be written, whole characters or not."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|end|>", chat_template=TEMPLATE)
    assert fast.eos_token_id == END
    return HFTokenizer(fast, "bytes")


@cache
def _lean() -> Tensor:
    """Letters and spaces are likely, so that texts can be read; the end is possible."""
    lean = torch.zeros(257, dtype=torch.float64)
    lean[tokenizer().encode("abcdefghijklmnopqrstuvwxyz ")] = 6.0
    lean[END] = 4.0
    return lean


def logits(tokens: Sequence[int]) -> Tensor:
    return WORLD.target_logits(tokens) + _lean()


def draft(tokens: list[int], depth: int) -> list[int]:
    """The chain that an imperfect copy of the target would write."""
    written: list[int] = []
    for _ in range(depth):
        written.append(int((WORLD.draft_logits([*tokens, *written]) + _lean()).argmax()))
    return written


def target(next_logits: Callable[[list[int]], Any] = logits, **options: Any) -> FunctionTarget:
    made = FunctionTarget(next_logits, 257, (END,), **{"max_rows": 4, "max_length": 512, **options})
    made.tokenizer = tokenizer()
    return made


def make_engine(on_round: Any = None, *, model: FunctionTarget | None = None, **drafters: Any) -> Engine:
    chosen = {"function": FunctionDrafter(draft), "lookup": make_drafter("lookup"), **drafters}
    return Engine(model or target(), chosen, reuse_prefixes=True, on_round=on_round)


def parts(model: FunctionTarget | None = None, drafters: Any = None, watching: Any = None, **config: Any) -> Any:
    """A server's parts around the toy, not started."""
    more = dict(drafters or {})
    return make_parts(
        lambda: make_engine(model=model, **more),
        ["function", "lookup", *more],
        ServerConfig(**config),
        target_name=MODEL,
        **(watching or {}),
    )
