"""GRA: constraints, made of a user's processor, which knows nothing of rounds."""

from typing import Any

import pytest
import torch

from helpers import World, run, tokens_of
from helpers_reference import decode
from outrider import Engine
from outrider.testing import FunctionDrafter

WORLD = World(vocab_size=10, seed=141)
END = 9


class Digits:
    """Allows exactly `size` tokens below 5, then the end; raises when it is asked about a text that has ended."""

    def __init__(self, num_prompt: int, size: int) -> None:
        self.num_prompt, self.size = num_prompt, size
        self.texts: list[list[int]] = []

    def __call__(self, tokens: list[int], logits: torch.Tensor) -> torch.Tensor:
        written = tokens[self.num_prompt :]
        if END in written:
            raise RuntimeError("the constraint was fed after its end")
        if any(token >= 5 for token in written):
            raise RuntimeError("the constraint was fed a token that it forbids")
        self.texts.append(written)
        allowed = list(range(5)) if len(written) < self.size else [END]
        return torch.full_like(logits, -torch.inf).index_copy(0, torch.tensor(allowed), logits[allowed])


def constrained(draft: Any, size: int, **options: Any) -> tuple[Any, Digits]:
    constraint = Digits(2, size)
    engine = Engine(WORLD.target((END,)), FunctionDrafter(draft))
    completion = run(engine, [[1, 2]], logits_processors=[constraint], max_new_tokens=20, **options)[0]
    expected = decode(
        WORLD.target_logits, [1, 2], (END,), logits_processors=[Digits(2, size)], max_new_tokens=20, **options
    )
    assert tokens_of([completion]) == [expected]
    return completion, constraint


@pytest.mark.parametrize("size", range(1, 7))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_gra_1_a_block_across_the_end_is_cut_there(size: int, temperature: float) -> None:
    """The draft is right up to the end and goes three tokens beyond it."""
    options = {"temperature": temperature, "seed": 1}

    def draft(tokens: list[int], depth: int) -> list[int]:
        rest = decode(
            WORLD.target_logits, [1, 2], (END,), logits_processors=[Digits(2, size)], max_new_tokens=20, **options
        )
        return [*rest[0][len(tokens) - 2 :], 3, 3, 3]

    completion, constraint = constrained(draft, size, max_depth=12, **options)
    assert completion.finish_reason == "stop"
    assert completion.token_ids[-1] == END
    assert completion.stats.rounds == 1
    assert len(constraint.texts) == size + 1


def test_gra_2_illegal_drafts_are_only_rejected() -> None:
    """A token that the constraint forbids, in the first place: rejected, and the constraint never sees it."""
    completion, constraint = constrained(lambda tokens, depth: [7, 1, 1], 6, max_depth=3)
    assert completion.stats.accepted == 0 < completion.stats.proposed
    assert constraint.texts == [list(completion.token_ids[:n]) for n in range(7)]
