"""Our passes against separate full passes of stock transformers: chains, trees, windows, hidden states."""

import pytest
import torch

from helpers_hf import KINDS, TREE, VOCAB, WINDOW, WINDOWED, chain, outcome, score, stock, text, tiny
from outrider.targets.hf import layout
from outrider.targets.hf.target import HFTarget
from outrider.types import DraftTree, pack

TOLERANCE = 1e-4  # stock eager attention takes its softmax in float32; logits have a spread of about 1.7


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tiny models gain nothing from a second thread, and wait for it on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float = TOLERANCE) -> bool:
    return torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_equals_a_stock_pass(kind, dtype):
    model, tokens = tiny(kind, dtype), text(24)
    target = HFTarget(model, max_length=64)
    target.prefill([0], [tokens[:9]])
    ours = score(target, [chain(tokens[9:])], [0])
    assert close(ours, stock(model, tokens)[9:])
    model.set_attn_implementation("sdpa")  # keeps float64 throughout
    assert close(ours, stock(model, tokens)[9:], 1e-9 if dtype == torch.float64 else TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("committed", [0, 1, 5, 17])
def test_every_node_of_a_tree_equals_a_stock_pass_over_its_path(kind, committed):
    model, tokens = tiny(kind), text(committed)
    target = HFTarget(model, max_length=64)
    target.prefill([0], [tokens])
    ours = score(target, [TREE], [0])
    for node in range(len(TREE.tokens)):
        path = [TREE.tokens[0], *TREE.path_tokens(node)]
        assert close(ours[node], stock(model, tokens + path)[-1]), f"node {node}"


@pytest.mark.parametrize("kind", WINDOWED)
def test_far_past_the_window_every_step_equals_stock(kind):  # GRE-2
    model, tokens = tiny(kind), text(5 * WINDOW)
    target, reference = HFTarget(model, max_length=64), stock(model, tokens)
    for position, token in enumerate(tokens):
        wrong = DraftTree((token, 1, 2, tokens[(position + 1) % len(tokens)], 3), (-1, 0, 1, 0, 3))
        assert close(score(target, [wrong], [0])[0], reference[position]), position
        target.commit({0: outcome(0)})


@pytest.mark.parametrize("kind", WINDOWED)
def test_a_forgotten_window_would_be_noticed(kind, monkeypatch):
    mask = layout.PathPass.mask
    monkeypatch.setattr(layout.PathPass, "mask", lambda self, window, *rest: mask(self, None, *rest))
    model, tokens = tiny(kind), text(3 * WINDOW)
    target = HFTarget(model, max_length=64)
    assert not close(score(target, [chain(tokens)], [0]), stock(model, tokens))


def test_an_ancestor_left_out_would_be_noticed(monkeypatch):
    way = layout._way_to
    monkeypatch.setattr(layout, "_way_to", lambda node, parents: [0, *way(node, parents)[-1:]] if node else [0])
    model = tiny("llama")
    ours = score(HFTarget(model, exact="near-tie"), [TREE], [0])
    assert not close(ours[6], stock(model, [7, *TREE.path_tokens(6)])[-1])


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
def test_only_the_wanted_nodes_come_back_in_order(kind):
    model, tokens = tiny(kind), text(8)
    target = HFTarget(model, max_length=64)
    every = score(target, [chain(tokens)], [0])
    assert torch.equal(score(target, [chain(tokens)], [0], want=torch.tensor([6, 2])), every[[6, 2]])
    assert score(target, [chain(tokens)], [0], want=torch.tensor([], dtype=torch.long)).shape == (0, VOCAB)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gpt_neox"])
def test_hidden_layers_are_those_of_stock(kind):
    model, tokens = tiny(kind), text(8)
    target = HFTarget(model, max_length=64)
    scored = target.score(pack([chain(tokens)], [0], [0]), hidden_layers=(0, 1))
    with torch.no_grad():
        theirs = model(torch.tensor([tokens]), output_hidden_states=True, use_cache=False).hidden_states
    assert scored.hidden.keys() == {0, 1}
    for layer in (0, 1):
        assert close(scored.hidden[layer], theirs[layer + 1][0])


def test_a_model_in_memory_stays_as_it_is():
    model, tokens = tiny("llama"), text(9)
    before = stock(model, tokens)
    HFTarget(model)
    assert model.config._attn_implementation == "eager"
    assert torch.equal(stock(model, tokens), before)
