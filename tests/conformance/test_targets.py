"""Every target: scoring equals separate forwards, committing and going on equals starting over, and rows are rows."""

from collections.abc import Callable

import pytest
import torch

from helpers import World, assert_empty
from helpers_models import VOCAB, llama, sliding, target
from outrider.targets.base import Target
from outrider.types import DraftTree, Outcome, pack

TARGETS: dict[str, Callable[[], Target]] = {
    "toy": lambda: World(VOCAB).target(max_rows=4),
    "llama-float64": lambda: target(llama(), max_rows=4),
    "llama-float32": lambda: target(llama(dtype=torch.float32), max_rows=4),
    "llama-bfloat16": lambda: target(llama(dtype=torch.bfloat16), max_rows=4),
    "sliding-float64": lambda: target(sliding(), max_rows=4),
    "sliding-float32": lambda: target(sliding(dtype=torch.float32), max_rows=4),
}
TREE = DraftTree((3, 7, 9, 7, 1, 2, 4, 5), (-1, 0, 0, 1, 1, 2, 3, 6))
PREFIX = [5, 1, 8, 2, 2, 6, 9, 4, 11, 3, 7]


@pytest.fixture(params=TARGETS)
def any_target(request: pytest.FixtureRequest) -> Target:
    return TARGETS[request.param]()


def logits_after(one: Target, tokens: list[int], row: int = 3) -> torch.Tensor:
    """Logits after a text, computed from nothing on a row of its own."""
    one.free([row])
    one.prefill([row], [tokens[:-1]])
    logits = one.score(pack([DraftTree.root(tokens[-1])], [row], [len(tokens) - 1])).logits[0]
    one.free([row])
    return logits


def score(one: Target, tree: DraftTree, row: int = 0) -> torch.Tensor:
    return one.score(pack([tree], [row], [one.length(row)])).logits


def test_score_equals_separate_forwards(any_target: Target) -> None:
    """Each node of a branching tree sees the cache and its own path, to the bit."""
    any_target.prefill([0], [PREFIX])
    scored = score(any_target, TREE)
    for node in range(len(TREE.tokens)):
        text = [*PREFIX, TREE.tokens[0], *TREE.path_tokens(node)]
        assert torch.equal(scored[node], logits_after(any_target, text)), node


def test_scoring_commits_nothing(any_target: Target) -> None:
    any_target.prefill([0], [PREFIX])
    first = score(any_target, TREE)
    assert any_target.length(0) == len(PREFIX)
    score(any_target, DraftTree.chain(3, [1, 1, 1]))
    assert torch.equal(first, score(any_target, TREE))


@pytest.mark.parametrize("path", [(0,), (0, 1), (0, 2, 5), (0, 1, 3, 6, 7), (0, 1, 4)])
def test_commit_then_continue_equals_starting_over(any_target: Target, path: tuple[int, ...]) -> None:
    any_target.prefill([0], [PREFIX])
    score(any_target, TREE)
    any_target.commit({0: Outcome(path, 10)})
    text = [*PREFIX, *(TREE.tokens[node] for node in path), 10, 12, 12]
    assert any_target.length(0) == len(PREFIX) + len(path)
    after = score(any_target, DraftTree.chain(10, [12, 12]))
    assert torch.equal(after[2], logits_after(any_target, text))


def test_rows_that_are_not_named_keep_their_cache(any_target: Target) -> None:
    any_target.prefill([0, 1], [PREFIX, PREFIX[:4]])
    before = score(any_target, DraftTree.root(3), row=1)
    any_target.score(pack([TREE, TREE], [0, 1], [len(PREFIX), 4]))
    any_target.commit({0: Outcome((0, 1), 4)})
    assert (any_target.length(0), any_target.length(1)) == (len(PREFIX) + 2, 4)
    assert torch.equal(before, score(any_target, DraftTree.root(3), row=1))


def test_rows_do_not_notice_each_other(any_target: Target) -> None:
    any_target.prefill([0], [PREFIX])
    alone = score(any_target, TREE)
    any_target.prefill([1, 2], [[9], PREFIX[::-1]])
    trees = [DraftTree.chain(1, [2, 3]), TREE, DraftTree.root(8)]
    together = any_target.score(pack(trees, [1, 0, 2], [1, len(PREFIX), len(PREFIX)])).logits
    assert torch.equal(together[3 : 3 + len(TREE.tokens)], alone)


@pytest.mark.parametrize("chunk", [1, 2, 5, 100])
def test_prefill_may_come_in_pieces(any_target: Target, chunk: int) -> None:
    for start in range(0, len(PREFIX), chunk):
        any_target.prefill([0], [PREFIX[start : start + chunk]])
    assert torch.equal(score(any_target, DraftTree.root(3))[0], logits_after(any_target, [*PREFIX, 3]))


@pytest.mark.parametrize("length", [0, 1, 6, 11, 50])
def test_truncate_is_as_if_the_rest_had_never_been(any_target: Target, length: int) -> None:
    any_target.prefill([0], [PREFIX])
    any_target.truncate(0, length)
    kept = PREFIX[:length]
    assert any_target.length(0) == len(kept)
    assert torch.equal(score(any_target, DraftTree.root(3))[0], logits_after(any_target, [*kept, 3]))


@pytest.mark.parametrize("length", [0, 4, 11])
def test_copies_of_rows_are_independent(any_target: Target, length: int) -> None:
    """What a row of the same beginning may start from: the copy is as good as computed, the source stays."""
    any_target.prefill([0], [PREFIX])
    any_target.copy(0, 1, length)
    assert (any_target.length(0), any_target.length(1)) == (len(PREFIX), length)
    before = score(any_target, DraftTree.root(3))
    text = [*PREFIX[:length], 8]
    assert torch.equal(score(any_target, DraftTree.root(8), row=1)[0], logits_after(any_target, text))
    any_target.prefill([1], [[8, 8]])
    any_target.free([1])
    assert torch.equal(score(any_target, DraftTree.root(3)), before)


def test_free_forgets(any_target: Target) -> None:
    any_target.prefill([0, 1], [PREFIX, PREFIX])
    any_target.free([0, 1])
    any_target.free([0])
    assert_empty(any_target)
    assert torch.equal(score(any_target, DraftTree.root(3))[0], logits_after(any_target, [3]))


def test_only_wanted_nodes_are_answered(any_target: Target) -> None:
    any_target.prefill([0], [PREFIX])
    everything = score(any_target, TREE)
    packed = pack([TREE], [0], [len(PREFIX)])
    some = any_target.score(packed, torch.tensor([5, 2])).logits
    assert torch.equal(some, everything[[5, 2]])
    assert some.shape[-1] == any_target.info.vocab_size


def test_long_texts_over_the_window() -> None:
    """60 tokens through a window of 8, in rounds of a tree each, against one pass by the stock model."""
    model = sliding()
    one = target(model)
    text, path = [3], (0, 2, 5)
    generator = torch.Generator().manual_seed(4)
    while len(text) < 60:
        tokens = torch.randint(VOCAB, (8,), generator=generator).tolist()
        tree = DraftTree((text[-1], *tokens[1:]), TREE.parents)
        scored = score(one, tree)
        for node in range(8):
            whole = torch.tensor([[*text, *tree.path_tokens(node)]])
            with torch.no_grad():
                expected = model(whole, use_cache=False).logits[0, -1]
            assert torch.allclose(scored[node], expected, atol=1e-9, rtol=0), (len(text), node)
        one.commit({0: Outcome(path, tokens[0])})
        text += [tree.tokens[2], tree.tokens[5], tokens[0]]
