"""`self`: parts of a target run on its weights and its cache, and leave no trace there."""

from contextlib import nullcontext
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from helpers import World, run, tokens_of
from helpers_hf import KINDS, TREE, chain, outcome, score, stock, text, tiny
from helpers_reference import decode
from outrider import Engine
from outrider.drafters.base import TargetView
from outrider.drafters.self import SelfDrafter, parse_layers
from outrider.errors import OptionError, PairingError, TargetError
from outrider.policy.fixed import FixedPolicy
from outrider.targets.base import Layered, Target
from outrider.targets.hf.target import HFTarget
from outrider.testing import FunctionTarget
from outrider.types import DraftTree

WORLD = World(seed=31)


def cut_down(model: Any, layers: list[int]) -> Any:
    """The stock model itself, with the other layers taken out."""
    base = model.base_model
    name = next(name for name, module in base.named_children() if isinstance(module, nn.ModuleList))
    setattr(base, name, nn.ModuleList(getattr(base, name)[layer] for layer in layers))
    if kinds := getattr(model.config, "layer_types", None):
        model.config.layer_types = [kinds[layer] for layer in layers]
    model.config.num_hidden_layers = len(layers)
    return model


@pytest.mark.parametrize("layers", [[0, 1], [0, 2], [1]])
@pytest.mark.parametrize("kind", KINDS)
def test_a_part_is_the_stock_model_without_the_other_layers(kind: str, layers: list[int]) -> None:
    target, tokens = HFTarget(tiny(kind)), text(14)
    got = score(target.part(layers), [chain(tokens)], [0])
    torch.testing.assert_close(got, stock(cut_down(tiny(kind), layers), tokens), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_an_early_exit_goes_on_from_what_the_whole_target_committed(kind: str) -> None:
    """Its layers' keys and values of the committed tokens are the target's own, so nothing is fed twice."""
    target, tokens = HFTarget(tiny(kind)), text(14)
    target.prefill([0], [tokens[:-1]])
    got = score(target.part([0, 1]), [DraftTree.root(tokens[-1])], [0])
    torch.testing.assert_close(got[0], stock(cut_down(tiny(kind), [0, 1]), tokens)[-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layers", [[0, 1], [0, 2]])
def test_drafting_leaves_no_trace(layers: list[int], dtype: torch.dtype) -> None:
    target, tokens = HFTarget(tiny("gemma3", dtype)), text(20)
    target.prefill([0], [tokens[:-1]])
    before = target._cache._rows[0].buffer.clone()
    expected = score(target, [TREE], [0])
    part = target.part(layers)
    for token in (tokens[-1], 3, 4):
        score(part, [DraftTree.root(token)], [0])
        part.commit({0: outcome(0)})
    assert target.length(0) == len(tokens) + 2
    part.truncate(0, len(tokens) - 1)
    assert torch.equal(target._cache._rows[0].buffer, before)
    assert torch.equal(score(target, [TREE], [0]), expected)


def test_nothing_is_copied() -> None:
    target = HFTarget(tiny("llama"))
    part = target.part([0, 2])
    assert {id(p) for p in part._model.parameters()} <= {id(p) for p in target._model.parameters()}
    assert part._cache is target._cache
    assert [id(block) for block in part._blocks] == [id(target._blocks[0]), id(target._blocks[2])]
    assert target.num_layers == len(target._blocks) == 3  # the whole is as it was
    score(target, [chain(text(4))], [0])


@pytest.mark.parametrize("layers", [[], [1, 0], [0, 0], [3], [-1]])
def test_parts_that_do_not_exist_are_refused(layers: list[int]) -> None:
    with pytest.raises(TargetError, match="0 to 2"):
        HFTarget(tiny("llama")).part(layers)


@cache
def small() -> HFTarget:
    return HFTarget(tiny("qwen2", torch.float32), max_rows=3)


@pytest.mark.parametrize("options", [{"layers": 1}, {"layers": 2}, {"skip": "1"}, {"skip": [0, 2]}])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_drafts_for_itself_writes_its_own_text(options: dict[str, Any], temperature: float) -> None:
    target = small()
    drafter = SelfDrafter(**options, min_confidence=0.0)
    engine = Engine(target, drafter, policy=FixedPolicy("self", 4))
    prompts = [text(n, seed=n) for n in (1, 5, 9, 4)]
    settings = {"max_new_tokens": 16, "temperature": temperature, "seed": 5, "logprobs": 1}
    plain = run(Engine(target), prompts, **settings)
    found = run(engine, prompts, **settings)
    assert [(c.token_ids, c.logprobs) for c in found] == [(c.token_ids, c.logprobs) for c in plain]
    assert all(c.stats.recomputed == 0 for c in found)
    assert sum(c.stats.accepted for c in found) > 0


def test_a_part_that_is_nearly_everything_agrees() -> None:
    """The last layer of a random model moves little after many others: a check that drafts are drafts of this text."""
    world = World(seed=3, draft_error=0.0)
    stats = run(Engine(world.target(), SelfDrafter(), policy=FixedPolicy("self", 3)), [[3]], max_new_tokens=40)[0].stats
    assert stats.acceptance == 1.0


class Interrupt(BaseException):
    """As Ctrl-C, which nothing catches."""


@pytest.mark.parametrize("kind", [RuntimeError, Interrupt])
def test_a_draft_that_breaks_off_leaves_the_rows_as_they_were(kind: type[BaseException]) -> None:
    """The engine asks again, row by row, or the user goes on after Ctrl-C; no cache has to be computed again."""
    asked: list[int] = []

    def logits(tokens: list[int]) -> torch.Tensor:
        asked.append(len(tokens))
        if len(asked) == 7:
            raise kind("in the middle of a draft")
        return WORLD.draft_logits(tokens)

    drafter = SelfDrafter(min_confidence=0.0)
    engine = Engine(WORLD.target(part_logits=lambda layers: logits), drafter, policy=FixedPolicy("self", 4))
    handles = [engine.submit(prompt, max_new_tokens=20) for prompt in ([1, 2], [3])]
    with pytest.raises(Interrupt) if kind is Interrupt else nullcontext():
        for _ in range(20):
            engine.step()
    lengths = [engine.target.length(handle.row.cache_row) for handle in handles if not handle.done]
    assert lengths == [len(handle.row.tokens) - 1 for handle in handles if not handle.done]
    while not all(handle.done for handle in handles):
        engine.step()
    assert len(asked) > 7
    assert [handle.completion.stats.recomputed for handle in handles] == [0, 0]
    plain = [decode(WORLD.target_logits, prompt, max_new_tokens=20) for prompt in ([1, 2], [3])]
    assert tokens_of([handle.completion for handle in handles]) == plain


def test_forgetting_to_truncate_is_seen() -> None:
    """Negative control: a part whose rows stay as it left them makes the engine compute the cache again."""

    class Careless(SelfDrafter):
        def bind(self, target: TargetView) -> None:
            super().bind(target)
            assert self._part is not None
            self._part.truncate = lambda row, length: None  # pyright: ignore[reportAttributeAccessIssue]

    engine = Engine(WORLD.target(), Careless(), policy=FixedPolicy("self", 3))
    assert engine.generate([1, 2], max_new_tokens=12).stats.recomputed > 0


def test_targets_without_layers_are_refused() -> None:
    bare = FunctionTarget(WORLD.target_logits, 8)
    with pytest.raises(PairingError, match="'toy' cannot run with a part"):
        Engine(bare, SelfDrafter())
    with pytest.raises(TargetError, match="no parts"):
        bare.part([0])

    class Foreign:
        """A target of another make, which has no such method."""

    assert isinstance(bare, Layered)
    assert not isinstance(Foreign(), Layered)
    view = TargetView(bare.info)
    with pytest.raises(PairingError, match="cannot run"):
        SelfDrafter().bind(view)


def test_which_layers_run() -> None:
    assert SelfDrafter(layers=2).chosen(4) == [0, 1]
    assert SelfDrafter(skip="1-2+5").chosen(7) == [0, 3, 4, 6]
    assert SelfDrafter(skip=[0]).chosen(2) == [1]
    assert len(SelfDrafter().chosen(30)) < 30
    assert SelfDrafter().chosen(2) == [1]
    assert parse_layers("10-12+20") == (10, 11, 12, 20)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: SelfDrafter(layers=2, skip="1"), "not both"),
        (lambda: SelfDrafter(layers=4).chosen(4), "1 to 3"),
        (lambda: SelfDrafter(layers=0).chosen(4), "1 to 3"),
        (lambda: SelfDrafter(skip="7").chosen(4), "layers 0 to 3"),
        (lambda: SelfDrafter(skip="0-3").chosen(4), "not all"),
        (lambda: SelfDrafter(skip=[]).chosen(4), "leave out some"),
        (lambda: SelfDrafter(skip="a"), "10-15"),
        (lambda: SelfDrafter(skip="1-"), "10-15"),
        (lambda: SelfDrafter(min_confidence=2), "min_confidence"),
    ],
)
def test_bad_options_are_refused(make: Any, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        make()


def test_targets_offer_the_capability() -> None:
    assert isinstance(HFTarget(tiny("llama")), Layered)
    checked: Target = WORLD.target().part([0])
    assert checked.info.vocab_size == 8
