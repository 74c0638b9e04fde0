"""Drafters that break their contract: their own request fails with a clear error, no other notices."""

from collections.abc import Callable

import pytest
import torch

from helpers import World, run, tokens_of
from helpers_drafters import NONSENSE
from helpers_reference import decode
from outrider import Engine
from outrider.acceptance import available_rules
from outrider.errors import DrafterError
from outrider.testing import FunctionDrafter
from outrider.types import DraftTree

WORLD = World(seed=6)
PROMPTS = [[2, 1], [3], [2, 5, 5]]
Answer = Callable[[list[int], int], object]


def plain(prompt: list[int]) -> tuple[tuple[int, ...], str]:
    return decode(WORLD.target_logits, prompt, max_new_tokens=9)


@pytest.mark.parametrize("name", NONSENSE)
def test_a_request_with_a_nonsense_drafter_fails_and_says_so(name: str) -> None:
    engine = Engine(WORLD.target(), FunctionDrafter(NONSENSE[name]))
    with pytest.raises(DrafterError, match="function"):
        engine.generate([1, 2], max_new_tokens=9)
    assert run(engine, [[1, 2]], max_new_tokens=9, max_depth=0)[0].token_ids == plain([1, 2])[0]


@pytest.mark.parametrize("rule", available_rules())
def test_laws_of_nan_do_no_harm(rule: str) -> None:
    """They give no token a chance, so the draft counts as chosen; which is exact."""
    nan = torch.full((3, 8), torch.nan)
    drafter = FunctionDrafter(lambda tokens, depth: DraftTree.chain(tokens[-1], [0, 0], nan))
    completion = run(Engine(WORLD.target(), drafter, rule=rule), [[1, 2]], max_new_tokens=20, temperature=1.0, seed=3)[
        0
    ]
    assert len(completion.token_ids) == 20
    greedy = run(Engine(WORLD.target(), drafter, rule=rule), [[1, 2]], max_new_tokens=9)
    assert tokens_of(greedy) == [plain([1, 2])]


@pytest.mark.parametrize("name", NONSENSE)
def test_only_the_row_at_fault_fails(name: str) -> None:
    """The drafter is sound but for rows whose text begins with 3; those are in the middle of the batch."""

    def propose(tokens: list[int], depth: int) -> object:
        return NONSENSE[name](tokens, depth) if tokens[0] == 3 else [int(WORLD.target_logits(tokens).argmax())]

    engine = Engine(WORLD.target(), FunctionDrafter(propose))
    found = run(engine, PROMPTS, errors=True, max_new_tokens=9)
    assert tokens_of(found)[0] == plain(PROMPTS[0])
    assert tokens_of(found)[2] == plain(PROMPTS[2])
    assert found[1].finish_reason == "error"
    assert isinstance(found[1].error, DrafterError)
    assert found[0].stats.accepted > 0 < found[2].stats.accepted


def test_a_drafter_that_raises_now_and_then_costs_that_request_alone() -> None:
    """Row 1 raises in its fourth round; what it had written by then stands and is right."""

    def propose(tokens: list[int], depth: int) -> list[int]:
        if tokens[0] == 3 and len(tokens) > 4:
            raise RuntimeError("out of ideas")
        return [(int(WORLD.target_logits(tokens).argmax()) + 1) % 8]

    found = run(Engine(WORLD.target(), FunctionDrafter(propose)), PROMPTS, errors=True, max_new_tokens=9)
    assert [c.finish_reason for c in found] == ["length", "error", "length"]
    assert found[1].token_ids == plain(PROMPTS[1])[0][:4]
    assert "out of ideas" in str(found[1].error)
    assert tokens_of(found)[0] == plain(PROMPTS[0])
    assert tokens_of(found)[2] == plain(PROMPTS[2])


@pytest.mark.parametrize("rule", available_rules())
def test_drafts_of_impossible_tokens_are_only_rejected(rule: str) -> None:
    """A draft may claim certainty for what the target forbids: nothing breaks, and it is never written."""

    def propose(tokens: list[int], depth: int) -> DraftTree:
        return DraftTree.chain(tokens[-1], [4, 4], torch.eye(8, dtype=torch.float64)[[4, 4, 4]])

    engine = Engine(WORLD.target(), FunctionDrafter(propose), rule=rule)
    completion = run(engine, [[1]], max_new_tokens=30, banned_token_ids=[4], temperature=1.0, seed=1)[0]
    assert 4 not in completion.token_ids
    assert completion.stats.accepted == 0 < completion.stats.proposed
