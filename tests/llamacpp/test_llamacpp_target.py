"""llama.cpp's target over real weights: trees equal separate passes, kept paths equal starting over, rows are rows.

Results are equal up to rounding to 8 bits inside a pass. So that a wrong mask or position cannot hide in a tolerance,
every comparison has a control beside it: the logits after another text lie much further away.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import outrider
from outrider.errors import CapacityError, OptionError, TargetError, UnsupportedError
from outrider.targets.llamacpp.target import LlamaTarget
from outrider.targets.loading import load_target
from outrider.types import DraftTree, Outcome, pack

pytestmark = pytest.mark.real

PARENTS = (-1, 0, 0, 1, 1, 2, 3, 6)
TEXT = "The quick brown fox jumps over the lazy dog"
WORDS = " go home walk far sit down run back"
FAR = 4.0  # a wrong text's logits lie at least so many times further off than rounding's


@pytest.fixture
def one(llamacpp: Callable[..., LlamaTarget]) -> LlamaTarget:
    target = llamacpp("smollm2-135m")
    target.free(range(4))
    return target


@pytest.fixture
def prefix(one: LlamaTarget) -> list[int]:
    return one.tokenizer.encode(TEXT)


@pytest.fixture
def tree(one: LlamaTarget) -> DraftTree:
    return DraftTree(tuple(one.tokenizer.encode(WORDS)[:8]), PARENTS)


def after(target: LlamaTarget, tokens: list[int], row: int = 3) -> Tensor:
    """Logits after a text, computed from nothing in a row of its own."""
    target.free([row])
    target.prefill([row], [tokens[:-1]])
    logits = target.score(pack([DraftTree.root(tokens[-1])], [row], [len(tokens) - 1])).logits[0]
    target.free([row])
    return logits


def score(target: LlamaTarget, tree: DraftTree, row: int = 0) -> Tensor:
    return target.score(pack([tree], [row], [target.length(row)])).logits


def apart(one: Tensor, other: Tensor) -> float:
    """Mean distance of logits, each seen from its own mean."""
    return float(((one - one.mean()) - (other - other.mean())).abs().mean())


def assert_same(found: Tensor, right: Tensor, wrong: Tensor) -> None:
    assert apart(found, right) * FAR < apart(found, wrong), (apart(found, right), apart(found, wrong))
    assert apart(found, right) < 0.25


def test_score_equals_separate_forwards(one: LlamaTarget, prefix: list[int], tree: DraftTree) -> None:
    one.prefill([0], [prefix])
    scored = score(one, tree)
    for node in range(1, 8):
        path = [*prefix, tree.tokens[0], *tree.path_tokens(node)]
        right, wrong = after(one, path), after(one, [*prefix, tree.tokens[node]])
        assert_same(scored[node], right, wrong)


def test_scoring_commits_nothing(one: LlamaTarget, prefix: list[int], tree: DraftTree) -> None:
    one.prefill([0], [prefix])
    first = score(one, tree)
    score(one, DraftTree.chain(tree.tokens[0], tree.tokens[3:7]))
    assert one.length(0) == len(prefix)
    assert torch.equal(first, score(one, tree))


@pytest.mark.parametrize("path", [(0, 2, 5), (0, 1, 3, 6, 7)])
def test_commit_then_continue_equals_starting_over(
    one: LlamaTarget, prefix: list[int], tree: DraftTree, path: tuple[int, ...]
) -> None:
    one.prefill([0, 1], [prefix, prefix[:3]])
    one.score(pack([tree, tree], [0, 1], [len(prefix), 3]))
    one.commit({0: Outcome(path, 0)})
    assert (one.length(0), one.length(1)) == (len(prefix) + len(path), 3)
    kept = [*prefix, *(tree.tokens[node] for node in path)]
    root = tree.tokens[2]
    found = score(one, DraftTree.chain(root, tree.tokens[4:6]))
    right = after(one, [*kept, root, *tree.tokens[4:6]])
    assert_same(found[2], right, after(one, [*prefix, root, *tree.tokens[5:6]]))


def test_rows_do_not_notice_each_other(one: LlamaTarget, prefix: list[int], tree: DraftTree) -> None:
    one.prefill([0], [prefix])
    alone = score(one, tree)
    one.prefill([1, 2], [prefix[:2], prefix[::-1]])
    trees = [DraftTree.chain(prefix[0], prefix[4:6]), tree, DraftTree.root(prefix[8])]
    together = one.score(pack(trees, [1, 0, 2], [2, len(prefix), len(prefix)])).logits
    for node in range(8):
        assert_same(together[3 + node], alone[node], together[1])


@pytest.mark.parametrize("length", [0, 1, 6, 50])
def test_truncate_is_as_if_the_rest_had_never_been(one: LlamaTarget, prefix: list[int], length: int) -> None:
    one.prefill([0], [prefix])
    one.truncate(0, length)
    kept = prefix[:length]
    assert one.length(0) == len(kept)
    found = score(one, DraftTree.root(prefix[-1]))[0]
    assert_same(found, after(one, [*kept, prefix[-1]]), after(one, [*kept, prefix[0], prefix[-1]]))


def test_copies_of_rows_are_independent(one: LlamaTarget, prefix: list[int]) -> None:
    one.prefill([0], [prefix])
    one.copy(0, 1, 6)
    assert (one.length(0), one.length(1)) == (len(prefix), 6)
    before = score(one, DraftTree.root(prefix[3]))
    found = score(one, DraftTree.root(prefix[8]), row=1)[0]
    assert_same(found, after(one, [*prefix[:6], prefix[8]]), after(one, [*prefix[:5], prefix[8]]))
    one.prefill([1], [prefix[8:10]])
    one.free([1])
    assert torch.equal(score(one, DraftTree.root(prefix[3])), before)


def test_only_wanted_nodes_are_answered(one: LlamaTarget, prefix: list[int], tree: DraftTree) -> None:
    one.prefill([0], [prefix])
    everything = score(one, tree)
    some = one.score(pack([tree], [0], [len(prefix)]), torch.tensor([5, 2, 5])).logits
    assert torch.equal(some, everything[[5, 2, 5]])
    assert some.shape == (3, one.info.vocab_size)


def test_prefill_goes_on_over_several_batches(llamacpp: Callable[..., LlamaTarget], prefix: list[int]) -> None:
    one = llamacpp("smollm2-135m", max_length=128, options="threads=1,batch_size=32")
    text = (prefix * 12)[:70]  # more than two batches of 32
    one.prefill([0], [text])
    assert one.length(0) == 70
    found = score(one, DraftTree.root(prefix[0]))[0]
    one.free([0])
    for start in range(0, 70, 20):
        one.prefill([0], [text[start : start + 20]])
    assert_same(found, score(one, DraftTree.root(prefix[0]))[0], after(one, [*prefix, prefix[0]]))


def test_limits_are_told_by_name(one: LlamaTarget, prefix: list[int]) -> None:
    long = (prefix * 200)[:1025]
    with pytest.raises(TargetError, match="1025 tokens; the limit is 1024"):
        one.prefill([0], [long])
    with pytest.raises(TargetError, match="row 4 does not exist"):
        one.prefill([4], [prefix])
    with pytest.raises(TargetError, match="513 nodes is more than batch_size=512"):
        score(one, DraftTree.chain(3, [4] * 512))
    with pytest.raises(CapacityError, match="branches"):
        score(one, DraftTree(tuple(range(3, 143)), (-1, *([0] * 139))))
    with pytest.raises(TargetError, match="root was placed at 5"):
        one.score(pack([DraftTree.root(3)], [0], [5]))
    with pytest.raises(TargetError, match="commit without a score"):
        one.commit({})
    with pytest.raises(UnsupportedError, match="hidden states"):
        one.score(pack([DraftTree.root(3)], [0], [0]), None, (1,))
    one.prefill([0], [prefix])
    assert one.length(0) == len(prefix)


def test_a_full_cache_is_one_clear_error_and_harms_no_row(llamacpp: Callable[..., LlamaTarget]) -> None:
    small = llamacpp("smollm2-135m", max_rows=3, max_length=96, options="threads=1,cache_tokens=96,batch_size=32")
    tokens = list(range(20, 110))
    small.prefill([0, 1], [tokens, tokens])
    with pytest.raises(CapacityError, match=r"places hold .*cache_tokens"):
        small.prefill([2], [tokens])
    assert [small.length(row) for row in range(3)] == [90, 90, 0]
    small.free([1])
    small.prefill([2], [tokens[:5]])
    assert torch.equal(score(small, DraftTree.root(7))[0], score(small, DraftTree.root(7))[0])


def test_files_that_are_no_models_are_refused(tmp_path: Path, one: LlamaTarget) -> None:
    from outrider.errors import ModelError

    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(64))
    for path, message in (
        (broken, "llama.cpp cannot"),
        (tmp_path / "none.gguf", "no file"),
        (tmp_path / "model.bin", "reads .gguf files"),
    ):
        with pytest.raises(ModelError, match=message):
            outrider.load(str(path), backend="llama.cpp")


def test_gpu_layers_without_a_gpu_are_refused(one: LlamaTarget) -> None:
    with pytest.raises(OptionError, match="gpu_layers is 3, but this build"):
        load_target("smollm2-135m", backend="llama.cpp", backend_options={"gpu_layers": 3})
