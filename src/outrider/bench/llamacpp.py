"""llama-cpp-python's own ways as peers: its plain loop and its prompt lookup, on the same file and as many threads."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module  # llama_cpp is an optional extra
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outrider.bench.runs import Timing

FAMILY = "llama.cpp"
CONTEXT = 2048
LOOKUP_TOKENS = 2  # what llama-cpp-python's documentation advises on machines without a GPU


@dataclass(frozen=True)
class LlamaCpp:
    """`Llama.generate`, greedy. model: a `llama_cpp.Llama`, with a draft model where method is "lookup"."""

    name: str
    method: str
    model: Any
    end_token_ids: frozenset[int]
    family: str = FAMILY

    def run(self, prompt: Sequence[int], max_new_tokens: int) -> Timing:
        self.model.reset()
        written, first, passes_before = list[int](), 0.0, self.model.passes
        start = time.perf_counter()
        for token in self.model.generate(list(prompt), temp=0.0, repeat_penalty=1.0):
            written.append(int(token))
            first = first or time.perf_counter()
            if len(written) == max_new_tokens or token in self.end_token_ids:
                break
        seconds = time.perf_counter() - start
        rounds = max(1, self.model.passes - passes_before - 1)
        return Timing(tuple(written), seconds, first - start, len(written) - 1, rounds)

    def logits(self, tokens: Sequence[int], num_prompt: int) -> list[Tensor]:
        """llama.cpp's logits (columns) after the text: in one pass, and one token a pass behind the prompt."""
        found: list[Tensor] = []
        for pieces in ([list(tokens)], [list(tokens[:num_prompt]), *([token] for token in tokens[num_prompt:])]):
            self.model.reset()
            for piece in filter(None, pieces):
                self.model.eval(piece)
            found.append(_last_logits(self.model))
        return found


def llamacpp_peers(path: Path, methods: Sequence[str], threads: int) -> list[LlamaCpp]:
    """Its plain loop, and its prompt lookup if "lookup" is among the methods. Raises ModelError if it is missing."""
    from outrider.targets.llamacpp.library import library

    native = library()
    plain = _model(path, threads)
    vocab = native.llama_model_get_vocab(plain.model)
    count = native.llama_vocab_n_tokens(vocab)
    ends = frozenset(token for token in range(count) if native.llama_vocab_is_eog(vocab, token))
    peers = [LlamaCpp(f"{FAMILY} plain", "plain", plain, ends)]
    if "lookup" in methods:
        speculative: Any = import_module("llama_cpp.llama_speculative")
        draft = speculative.LlamaPromptLookupDecoding(num_pred_tokens=LOOKUP_TOKENS)
        peers.append(LlamaCpp(f"{FAMILY} prompt lookup", "lookup", _model(path, threads, draft), ends))
    return peers


def _model(path: Path, threads: int, draft: Any = None) -> Any:
    base: Any = import_module("llama_cpp").Llama

    class Counting(base):
        """Counts passes."""

        passes = 0

        def eval(self, tokens: Sequence[int]) -> None:
            self.passes += 1
            super().eval(tokens)

    options: dict[str, Any] = {"n_threads": threads, "n_threads_batch": threads, "verbose": False}
    return Counting(model_path=str(path), n_ctx=CONTEXT, draft_model=draft, **options)


def _last_logits(model: Any) -> Tensor:
    native: Any = import_module("llama_cpp.llama_cpp")
    found = native.llama_get_logits_ith(model.ctx, -1)
    return torch.tensor(found[: native.llama_vocab_n_tokens(native.llama_model_get_vocab(model.model))]).double()
