"""KVR: rolling back caches, windows, positions, and the draft model's own cache."""

from typing import Any

import pytest
from test_gre import stock_greedy
from transformers import MambaConfig, RwkvConfig, T5Config

from helpers import World, run
from helpers_drafters import Oracle
from helpers_models import llama, near_copy, sliding, target
from outrider import Engine
from outrider.drafters.base import DraftContext, TargetView
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.model import ModelDrafter
from outrider.errors import OutriderError, UnsupportedError
from outrider.sampling.noise import Noise
from outrider.targets.hf.facts import refuse_unsupported
from outrider.targets.toy import FunctionTarget
from outrider.testing import FunctionDrafter
from outrider.types import DraftTree

WORLD = World(seed=81)


@pytest.mark.parametrize("depth", range(1, 9))
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_kvr_1_kvr_5_self_drafts_are_always_kept(depth: int, temperature: float) -> None:
    """Prompts of 1 to 4 tokens; any slip in the draft's cache, or by one in a truncation, would cost a token."""
    engine = Engine(WORLD.target(), ModelDrafter(WORLD.target()))
    options = {"max_new_tokens": 40, "max_depth": depth, "temperature": temperature, "seed": 2}
    for completion in run(engine, [[1], [1, 2], [1, 2, 3], [4, 3, 2, 1]], **options):
        assert completion.stats.accepted == completion.stats.proposed == 40 - completion.stats.rounds


def test_kvr_1_self_drafts_of_a_transformer_are_always_kept() -> None:
    for depth in (1, 3, 8):
        engine = Engine(target(llama()), ModelDrafter(target(llama())))
        for completion in run(engine, [[1], [1, 2, 3]], max_new_tokens=60, max_depth=depth):
            assert completion.stats.accepted == completion.stats.proposed > 0


class Compared(ModelDrafter):
    """Proposes, and compares each proposal with that of a fresh drafter that is given the whole text at once."""

    compared = 0

    def propose(self, contexts: Any) -> list[DraftTree]:
        trees = super().propose(contexts)
        for context, tree in zip(contexts, trees, strict=True):
            fresh = ModelDrafter(WORLD.draft())
            fresh.bind(TargetView(WORLD.target().info))
            again = fresh.propose([_alone(context)])[0]
            assert (again.tokens, again.parents) == (tree.tokens, tree.parents)
            self.compared += 1
        return trees


def _alone(context: DraftContext) -> DraftContext:
    return DraftContext(
        row=0,
        tokens=list(context.tokens),
        num_prompt=context.num_prompt,
        params=context.params,
        noise=Noise(context.noise.seed, context.noise.round),
        stream=context.stream,
        plan=context.plan,
        want_probs=context.want_probs,
    )


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_kvr_1_proposals_equal_those_of_a_fresh_drafter(temperature: float) -> None:
    drafter = Compared(WORLD.draft())
    found = run(Engine(WORLD.target(), drafter), [[1], [5, 5]], max_new_tokens=40, temperature=temperature, seed=1)
    assert drafter.compared > 20
    assert all(0 < c.stats.accepted < c.stats.proposed for c in found)


def test_kvr_2_windows_in_target_and_draft() -> None:
    """Window 8, depth 5, prompt 6, 40 tokens; the target rolls back, and so does a draft model with a window."""
    drafter = ModelDrafter(target(near_copy(sliding())))
    completion = run(Engine(target(sliding()), drafter), [[5, 1, 8, 3, 3, 2]], max_new_tokens=40, max_depth=5)[0]
    assert completion.token_ids == stock_greedy(sliding(), [5, 1, 8, 3, 3, 2], 40)
    assert 0 < completion.stats.accepted < completion.stats.proposed


class Sticky(FunctionTarget):
    """Of the passes from the 20th on, the commit of every seventh keeps one token too many, or one too few."""

    extra = 1

    def commit(self, outcomes: Any) -> None:
        super().commit(outcomes)
        if self.num_passes % 7 == 0 and self.num_passes >= 20:
            for row in outcomes:
                self._rows[row] = self._rows[row] + [0] if self.extra > 0 else self._rows[row][:-1]


@pytest.mark.parametrize("extra", [1, -1])
def test_kvr_3_a_roll_back_that_failed_is_noticed(extra: int) -> None:
    one = Sticky(WORLD.target_logits, 8)
    one.extra = extra
    completion = run(Engine(one, Oracle(WORLD, wrong=lambda depth: depth == 2)), [[3]], max_new_tokens=80)[0]
    assert completion.token_ids == run(Engine(WORLD.target()), [[3]], max_new_tokens=80)[0].token_ids
    assert completion.stats.recomputed > 0


@pytest.mark.parametrize("config", [MambaConfig, RwkvConfig, T5Config])
def test_kvr_4_models_that_cannot_roll_back_are_refused_by_name(config: Any) -> None:
    """Before any weight is read or token written, with the missing ability named."""
    from transformers import AutoModelForCausalLM

    one = config()
    with pytest.raises(UnsupportedError, match=one.model_type):
        refuse_unsupported(one, AutoModelForCausalLM._model_mapping.get(type(one), None))


def test_kvr_7_a_warm_prefix_gives_the_cold_text() -> None:
    """Two turns that share a beginning, through one engine that keeps finished rows warm, and through a cold one."""
    for drafter in (None, LookupDrafter(), ModelDrafter(target(near_copy(llama())))):
        warm = Engine(target(llama()), drafter, reuse_prefixes=True)
        first = [4, 3, 9, 9, 1, 2, 5, 6, 7, 8]
        said = warm.generate(first, max_new_tokens=12)
        for second in ([*first, *said.token_ids, 3, 3], [*first[:9], 2], first, first[:4]):
            cold = Engine(target(llama())).generate(second, max_new_tokens=12)
            assert warm.generate(second, max_new_tokens=12).token_ids == cold.token_ids
        assert warm.generate([*first, *said.token_ids, 3, 3], max_new_tokens=2).stats.reused > 8


def test_kvr_7_a_block_that_was_cut_leaves_as_much_as_was_delivered() -> None:
    """The end token lies inside a block of right drafts; the next turn finds the whole text but its last token."""
    first = [4, 3, 1, 1, 2, 5, 6, 7, 7, 6]
    end = run(Engine(WORLD.target()), [first], max_new_tokens=5)[0].token_ids[-1]
    warm = Engine(WORLD.target(), Oracle(WORLD), reuse_prefixes=True)
    said = warm.generate(first, stop_token_ids=[end], max_depth=8)
    assert said.finish_reason == "stop"
    assert said.stats.rounds == 1
    second = [*first, *said.token_ids, 2, 2]
    again = warm.generate(second, max_new_tokens=12)
    assert again.stats.reused == len(second) - 3
    assert again.token_ids == run(Engine(WORLD.target()), [second], max_new_tokens=12)[0].token_ids


def test_kvr_7_exceptions_of_a_drafter_leave_the_cache_right() -> None:
    engine = Engine(target(llama()), FunctionDrafter(lambda tokens, depth: 1 / 0))
    with pytest.raises(OutriderError):
        engine.generate([4, 3, 9], max_new_tokens=9)
    expected = Engine(target(llama())).generate([4, 3, 9], max_new_tokens=9)
    assert engine.generate([4, 3, 9], max_new_tokens=9, max_depth=0).token_ids == expected.token_ids
