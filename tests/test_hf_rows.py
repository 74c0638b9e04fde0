"""Cache rows: rows do not see each other, roll-back leaves no trace, and no result depends on the shape of its pass."""

import pytest
import torch

from helpers_hf import KINDS, TREE, chain, outcome, score, text, tiny
from outrider.errors import OptionError, TargetError
from outrider.targets.hf import linear
from outrider.targets.hf.target import HFTarget
from outrider.types import DraftTree, pack

DTYPES = [torch.float64, torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tiny models gain nothing from a second thread, and wait for it on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def targets():
    """One target per kind and dtype; tests free the rows that they use."""
    made: dict[tuple[str, torch.dtype], HFTarget] = {}

    def get(kind: str, dtype: torch.dtype) -> HFTarget:
        if (kind, dtype) not in made:
            made[kind, dtype] = HFTarget(tiny(kind, dtype), max_length=1000)
        made[kind, dtype].free(range(8))
        return made[kind, dtype]

    return get


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_test_at_load_confirms_bitwise(kind, dtype, targets):
    info = targets(kind, dtype).info
    assert (info.exact, info.exact_reason) == ("bitwise", "")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_width_prefill_or_neighbours(kind, dtype, targets):  # CON-1, CON-5, NUM-4
    target, tokens, other = targets(kind, dtype), text(40), text(30, seed=5)
    wide = score(target, [chain(tokens)], [0])
    for start, token in enumerate(tokens):
        assert torch.equal(score(target, [DraftTree.root(token)], [0])[0], wide[start]), start
        target.commit({0: outcome(0)})
    target.prefill([1, 2], [tokens[:31], other])
    beside = score(target, [TREE, chain(tokens[31:])], [2, 1])
    assert torch.equal(beside[len(TREE.tokens) :], wide[31:])
    assert torch.equal(beside[: len(TREE.tokens)], score(target, [TREE], [2]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_commit_then_continue_equals_starting_over(kind, dtype, targets):
    target, tokens, more = targets(kind, dtype), text(11), text(7, seed=3)
    target.prefill([0], [tokens])
    score(target, [TREE], [0])
    target.commit({0: outcome(0, 2, 5, 6)})
    kept = [TREE.tokens[node] for node in (0, 2, 5, 6)]
    assert target.length(0) == 15
    target.prefill([1], [tokens + kept])
    assert torch.equal(score(target, [chain(more)], [0]), score(target, [chain(more)], [1]))


@pytest.mark.parametrize("path", [(0,), (0, 1), (0, 1, 3), (0, 2, 4)])
def test_rejected_nodes_leave_no_trace(path, targets):  # KVR
    target, tokens = targets("llama", torch.float32), text(5)
    target.prefill([0, 1], [tokens, tokens + [TREE.tokens[node] for node in path]])
    score(target, [TREE], [0])
    target.commit({0: outcome(*path)})
    used = target._cache._rows
    assert torch.equal(used[0].buffer, used[1].buffer)


def test_scoring_again_and_rows_that_are_not_committed_start_from_the_same_cache(targets):
    target, tokens = targets("llama", torch.float64), text(12)
    target.prefill([0, 1], [tokens[:4], tokens[:5]])
    first = score(target, [TREE, chain(tokens[5:9])], [0, 1])
    assert torch.equal(score(target, [TREE, chain(tokens[5:9])], [0, 1]), first)
    target.commit({1: outcome(0, 1)})
    assert (target.length(0), target.length(1)) == (4, 7)
    assert torch.equal(score(target, [TREE], [0]), first[: len(TREE.tokens)])


def test_truncate_and_free(targets):
    target, tokens = targets("llama", torch.float64), text(30)
    target.prefill([0, 1], [tokens, tokens[:10]])
    target.truncate(0, 10)
    target.truncate(1, 25)
    assert (target.length(0), target.length(1)) == (10, 10)
    assert torch.equal(score(target, [chain(tokens[10:])], [0]), score(target, [chain(tokens[10:])], [1]))
    target.free([0, 0, 7])
    assert target.length(0) == 0
    assert torch.equal(score(target, [TREE], [0]), score(target, [TREE], [7]))


@pytest.mark.parametrize("length", [510, 511, 512, 513, 700])
def test_block_borders_and_growth(length, targets):
    target, tokens = targets("llama", torch.float32), text(length + 6)
    target.prefill([0], [tokens])
    whole = score(target, [DraftTree.root(3)], [0])
    target.prefill([1], [tokens[:length]])
    assert all(torch.isfinite(score(target, [DraftTree.root(token)], [1])).all() for token in tokens[length:])
    target.prefill([1], [tokens[length:]])
    assert torch.equal(score(target, [DraftTree.root(3)], [1]), whole)


def test_a_poisoned_neighbour_and_a_poisoned_draft_harm_nobody():
    model, tokens = tiny("llama"), text(6)
    target = HFTarget(model, max_length=64)
    target.prefill([0], [tokens])
    clean = score(target, [chain(tokens)], [0])
    with torch.no_grad():
        model.get_input_embeddings().weight[60] = float("nan")  # a token whose state is not a number
    mixed = score(target, [chain(tokens), DraftTree.chain(60, [1, 2])], [0, 1])
    assert torch.equal(mixed[:6], clean)
    assert mixed[6].isnan().all()  # its own law shows it; nodes below it are never reached
    for broken in (DraftTree.chain(tokens[0], [60, 60]), DraftTree((tokens[0], 60, 4), (-1, 0, 0))):
        scored = score(target, [broken], [0])
        assert torch.equal(scored[0], clean[0])
        assert scored[1].isnan().all()
        target.commit({0: outcome(0)})
        assert torch.equal(score(target, [chain(tokens[1:])], [0]), clean[1:])
        target.truncate(0, len(tokens))
    target.prefill([0], [[60]])
    assert score(target, [DraftTree.root(1)], [0]).isnan().all()  # a broken prompt is not hidden


def test_a_failed_prefill_leaves_rows_as_they_were(targets, monkeypatch):  # CON-4
    target, tokens = targets("llama", torch.float64), text(300)
    target.prefill([0], [tokens[:3]])
    before = score(target, [TREE], [0])
    passes = []

    def failing(*arguments):
        passes.append(1)
        if len(passes) == 2:
            raise KeyboardInterrupt
        return original(*arguments)

    original = target._pass
    with monkeypatch.context() as patch:
        patch.setattr(target, "_pass", failing)
        with pytest.raises(KeyboardInterrupt):
            target.prefill([0, 1], [tokens, tokens])
    assert (target.length(0), target.length(1)) == (3, 0)
    assert torch.equal(score(target, [TREE], [0]), before)


def test_memory_stays_flat_over_many_requests(targets):  # CON-3
    target, sizes = targets("llama", torch.float32), []
    for turn in range(20):
        target.prefill([turn % 3], [text(20, seed=turn)])
        target.free([turn % 3])
        sizes.append(target._cache.num_bytes())
    assert set(sizes) == {0}


def test_broken_calls_are_named(targets):
    target, tokens = targets("llama", torch.float64), text(4)
    with pytest.raises(TargetError, match="row 8 does not exist; this target has rows 0 to 7"):
        target.prefill([8], [tokens])
    with pytest.raises(TargetError, match="row 0 would hold 1001 tokens; the limit is 1000"):
        target.prefill([0], [text(1001)])
    with pytest.raises(TargetError, match="holds 0 tokens; its root was placed at 3"):
        target.score(pack([TREE], [0], [3]))
    with pytest.raises(TargetError, match="twice"):
        target.score(pack([TREE, TREE], [0, 0], [0, 0]))
    with pytest.raises(TargetError, match="without a score"):
        target.commit({0: outcome(0)})
    score(target, [TREE], [0])
    with pytest.raises(TargetError, match="row 5, which was not in the last score, or was freed"):
        target.commit({5: outcome(0)})
    target.free([0])
    with pytest.raises(TargetError, match="or was freed"):
        target.commit({0: outcome(0)})
    with pytest.raises(TargetError, match="hidden layer 3 does not exist"):
        target.score(pack([TREE], [0], [0]), hidden_layers=[3])
    target.prefill([0], [text(998)])
    with pytest.raises(TargetError, match="position 1000 is beyond"):
        score(target, [chain([1, 2, 3])], [0])
    assert score(target, [chain([1, 2])], [0]).shape[0] == 2  # LEN-3: the last position is usable


@pytest.mark.parametrize("rows", [0, -1, 1.5, True, "4"])
def test_max_rows_is_checked(rows):
    with pytest.raises(OptionError, match="max_rows is"):
        HFTarget(tiny("llama"), max_rows=rows)


@pytest.mark.parametrize("length", [0, -1, 1.5, True, "4"])
def test_max_length_is_checked(length):
    with pytest.raises(OptionError, match="max_length is"):
        HFTarget(tiny("llama"), max_length=length)


def test_learned_positions_limit_the_length():
    assert HFTarget(tiny("gpt2")).info.max_length == 1024
    with pytest.raises(OptionError, match="max_length is 1025; gpt2 here goes up to 1024"):
        HFTarget(tiny("gpt2"), max_length=1025)


@pytest.mark.parametrize("max_rows", [1, 2])
@pytest.mark.parametrize("max_length", [1, 5, 17])
def test_the_smallest_targets_load(max_rows, max_length):
    target = HFTarget(tiny("llama"), max_rows=max_rows, max_length=max_length)
    assert target.info.exact == "bitwise"
    assert score(target, [DraftTree.root(0)], [0]).shape[0] == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_the_number_of_threads(dtype, targets):
    target, tokens = targets("llama", dtype), text(200)
    one = score(target, [chain(tokens)], [0])
    torch.set_num_threads(2)
    try:
        assert torch.equal(score(target, [chain(tokens)], [0]), one)
        assert torch.equal(score(target, [chain(tokens[:3])], [0]), one[:3])
    finally:
        torch.set_num_threads(1)


class Leaky(torch.nn.Module):
    """A linear layer whose rows depend on their number, as a per-tensor scale makes them."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, inputs):
        return self.inner(inputs) * (1 + 1e-6 * inputs.shape[-2])


def test_a_row_dependent_layer_is_found_at_load(monkeypatch):
    from outrider.errors import ModelError
    from outrider.targets.hf import target as module

    def leak(model):
        linear.make_row_independent(model)
        model.lm_head = Leaky(model.lm_head)

    monkeypatch.setattr(module, "make_row_independent", leak)
    info = HFTarget(tiny("llama")).info
    assert info.exact == "near-tie"
    assert "2 nodes against 17" in info.exact_reason
    with pytest.raises(ModelError, match="not exact to the bit here"):
        HFTarget(tiny("llama"), exact="bitwise")
    assert HFTarget(tiny("llama"), exact="near-tie").info.exact_reason == "asked for"
    with pytest.raises(OptionError, match="exact is 'very'"):
        HFTarget(tiny("llama"), exact="very")
