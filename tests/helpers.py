"""Small worlds with nothing to download, and runs that check what must hold after every run.

A world's laws depend on the whole text (so a wrong history or position shows) and most of all on the last token (so
that texts repeat and prompt lookup finds something). Its draft law is the target's with an error of chosen size.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from outrider import Completion, Engine
from outrider.drafters.base import Drafter
from outrider.targets.base import Target
from outrider.testing import FunctionTarget

NUM_HISTORIES = 4093


@dataclass(frozen=True)
class World:
    """Laws over `vocab_size` tokens. draft_error: size of the draft's mistakes, 0 = the target itself."""

    vocab_size: int = 8
    seed: int = 0
    draft_error: float = 1.0
    habit: float = 2.0

    def target_logits(self, tokens: Sequence[int]) -> Tensor:
        return self._habits[tokens[-1]] + self._histories[hash((1, *tokens)) % NUM_HISTORIES]

    def draft_logits(self, tokens: Sequence[int]) -> Tensor:
        return self.target_logits(tokens) + self.draft_error * self._histories[hash((2, *tokens)) % NUM_HISTORIES]

    def target(self, eos: Sequence[int] = (), **options: Any) -> FunctionTarget:
        parts = {"part_logits": lambda layers: self.draft_logits, "num_layers": 4}
        return FunctionTarget(self.target_logits, self.vocab_size, eos, **{**parts, **options})

    def draft(self, **options: Any) -> FunctionTarget:
        return FunctionTarget(self.draft_logits, self.vocab_size, **options)

    def prompts(self, count: int, longest: int = 7) -> list[list[int]]:
        """`count` prompts of 1, 2, ... `longest`, 1, ... tokens."""
        numbers = torch.randint(self.vocab_size, (count, longest), generator=self._generator(3)).tolist()
        return [row[: 1 + index % longest] for index, row in enumerate(numbers)]

    @cached_property
    def _habits(self) -> Tensor:
        return self.habit * self._normal(1, self.vocab_size)

    @cached_property
    def _histories(self) -> Tensor:
        return self._normal(2, NUM_HISTORIES)

    def _normal(self, which: int, rows: int) -> Tensor:
        return torch.randn(rows, self.vocab_size, generator=self._generator(which), dtype=torch.float64)

    def _generator(self, which: int) -> torch.Generator:
        return torch.Generator().manual_seed(1000 * self.seed + which)


class PieceTokenizer:
    """Token i stands for pieces[i], bytes that are joined and then read as UTF-8, as byte-level tokenizers do."""

    name = "pieces"

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = list(pieces)

    def vocabulary(self) -> Mapping[str, int]:
        return {f"{piece!r}": index for index, piece in enumerate(self.pieces)}

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The longest piece at every place; a byte that no piece begins with is passed over."""
        rest, place, ids = text.encode(), 0, []
        while place < len(rest):
            fitting = [i for i, piece in enumerate(self.pieces) if piece and rest.startswith(piece, place)]
            longest = max(fitting, key=lambda i: len(self.pieces[i]), default=None)
            ids += [] if longest is None else [longest]
            place += 1 if longest is None else len(self.pieces[longest])
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return b"".join(self.pieces[i] for i in token_ids).decode("utf-8", errors="replace")

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        return self.encode("\n".join(message["content"] for message in messages))


def with_text(target: FunctionTarget, pieces: Sequence[bytes]) -> FunctionTarget:
    """The same target, able to read and write text."""
    target.tokenizer = PieceTokenizer(pieces)  # pyright: ignore[reportAttributeAccessIssue]
    return target


def script(texts: Mapping[tuple[int, ...], Sequence[int]], vocab_size: int) -> Callable[[Sequence[int]], Tensor]:
    """Logits of a target that continues each prompt with its scripted tokens, and with id 0 after them."""

    def logits(tokens: Sequence[int]) -> Tensor:
        found = next((p for p in texts if tuple(tokens[: len(p)]) == p), ())
        place, line = len(tokens) - len(found), texts.get(found, ())
        row = torch.zeros(vocab_size, dtype=torch.float64)
        row[line[place] if place < len(line) else 0] = 9.0
        return row

    return logits


def run(engine: Engine, prompts: Sequence[Any], *, errors: bool = False, **sampling: Any) -> list[Completion]:
    """The completions, after checking every identity that holds for any run, and that nothing was left behind."""
    completions = engine.generate_batch(prompts, **sampling)
    for completion in completions:
        if completion.error is not None and not errors:
            raise completion.error
        assert_figures(completion)
    assert_clean(engine)
    return completions


def tokens_of(completions: Sequence[Completion]) -> list[tuple[tuple[int, ...], str]]:
    """What must not depend on drafter, depth, batch: ids and finish reason."""
    return [(completion.token_ids, completion.finish_reason) for completion in completions]


def assert_figures(completion: Completion) -> None:
    stats = completion.stats
    assert stats.delivered == len(completion.token_ids)
    assert 0 <= stats.accepted <= stats.proposed
    assert sum(stats.accepted_by.values()) == stats.accepted
    assert stats.accepted <= stats.delivered <= stats.accepted + stats.rounds
    assert stats.tokens_per_round <= stats.max_proposed + 1
    assert sum(stats.accepted_per_position) * stats.rounds - stats.accepted < 1e-6
    assert all(a >= b for a, b in zip(stats.accepted_per_position, stats.accepted_per_position[1:], strict=False))
    assert completion.logprobs is None or len(completion.logprobs) == len(completion.token_ids)


def assert_clean(engine: Engine) -> None:
    """No row, cache or drafter state is left: nothing is running, so nothing may be kept."""
    assert engine.num_running == engine.num_waiting == 0
    assert_empty(engine.target)
    for drafter in engine._drafting.drafters.values():
        _assert_forgotten(drafter)


def assert_empty(target: Target) -> None:
    lengths = {row: target.length(row) for row in range(target.info.max_rows)}
    assert not any(lengths.values()), f"rows left in {target.info.name}: {lengths}"


def _assert_forgotten(drafter: Drafter) -> None:
    for name, value in vars(drafter).items():
        if name.startswith("_") and isinstance(value, dict | set | deque):
            assert not value, f"drafter {drafter.name} kept {name} = {value}"
    if hasattr(drafter, "_cache"):
        assert not drafter._cache.in_use()
        assert_empty(drafter._cache.draft)
    for part in getattr(drafter, "parts", ()):
        _assert_forgotten(part)
