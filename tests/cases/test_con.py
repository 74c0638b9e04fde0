"""CON: batches, concurrency, lifetime, leaks."""

import gc
from typing import Any

import pytest
import torch

from helpers import World, assert_clean, run, tokens_of
from helpers_models import VOCAB, llama, near_copy, target
from helpers_reference import decode
from outrider import Engine
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.model import ModelDrafter
from outrider.errors import ProcessorError

WORLD = World(seed=151)


def model_engine(rows: int = 8) -> Engine:
    return Engine(target(llama(), max_rows=rows), ModelDrafter(target(near_copy(llama()), max_rows=rows)))


@pytest.mark.parametrize("size", range(2, 9))
def test_con_1_con_5_every_row_of_a_batch_equals_its_solo_run(size: int) -> None:
    """Prompts of 1 to 8 tokens; rows accept another number of tokens in every round."""
    prompts = World(VOCAB, seed=3).prompts(size, 8)
    together = run(model_engine(), prompts, max_new_tokens=16)
    assert tokens_of(together) == [tokens_of(run(model_engine(), [prompt], max_new_tokens=16))[0] for prompt in prompts]
    assert len({c.stats.rounds for c in together}) > 1 or size < 4


def test_con_2_two_streams_step_in_turn() -> None:
    engine = Engine(WORLD.target(), ModelDrafter(WORLD.draft()))
    settings: list[dict[str, Any]] = [
        {"max_new_tokens": 30, "temperature": 1.0, "seed": 1},
        {"max_new_tokens": 22, "frequency_penalty": 1.0},
    ]
    prompts = [[1, 2, 3], [5]]
    streams = [engine.stream(prompt, **options) for prompt, options in zip(prompts, settings, strict=True)]
    written: list[list[int]] = [[], []]
    running = {0, 1}
    while running:
        for index in sorted(running):
            event = next(streams[index], None)
            if event is None:
                running.discard(index)
            else:
                written[index] += event.token_ids
    for index in (0, 1):
        assert tuple(written[index]) == decode(WORLD.target_logits, prompts[index], **settings[index])[0]
    assert_clean(engine)


def kept_objects(engine: Engine) -> int:
    gc.collect()
    return len(gc.get_objects())


def test_con_3_nothing_grows_while_speculation_is_off() -> None:
    """1000 short requests, plain by request, on an engine with drafters that keep state per row."""
    engine = Engine(WORLD.target(), {"model": ModelDrafter(WORLD.draft()), "lookup": LookupDrafter()})
    sizes = []
    for _ in range(4):
        run(engine, [[1, 2]] * 250, max_new_tokens=2, max_depth=0)
        sizes.append(kept_objects(engine))
    assert sizes[-1] - sizes[1] < 100


def test_con_3_nothing_grows_while_speculating() -> None:
    engine = Engine(WORLD.target(), ModelDrafter(WORLD.draft()))
    sizes = []
    for _ in range(4):
        run(engine, [[1, 2], [3]] * 10, max_new_tokens=6)
        sizes.append(kept_objects(engine))
    assert sizes[-1] - sizes[1] < 100


class Raises:
    """A processor that raises at its n-th call."""

    def __init__(self, when: int, error: type[BaseException]) -> None:
        self.left, self.error = when, error

    def __call__(self, tokens: list[int], logits: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        if self.left == 0:
            raise self.error("in mid-round")
        return logits


@pytest.mark.parametrize("call", [1, 3, 5, 8])
def test_con_4_a_raising_processor_leaves_a_sound_engine(call: int) -> None:
    engine = model_engine()
    neighbour = engine.submit([4, 4], max_new_tokens=14)
    handle = engine.submit([1, 2], max_new_tokens=14, logits_processors=[Raises(call, ValueError)])
    while not (handle.done and neighbour.done):
        engine.step()
    expected = run(model_engine(), [[4, 4], [1, 2]], max_new_tokens=14)
    assert isinstance(handle.completion.error, ProcessorError)
    assert handle.completion.finish_reason == "error"
    assert handle.completion.token_ids == expected[1].token_ids[: len(handle.completion.token_ids)]
    assert neighbour.completion.token_ids == expected[0].token_ids
    assert tokens_of(run(engine, [[1, 2]], max_new_tokens=14)) == tokens_of(expected)[1:]


@pytest.mark.parametrize("call", [1, 4, 7])
def test_con_4_an_interrupt_in_mid_round_can_be_followed_by_more_rounds(call: int) -> None:
    """KeyboardInterrupt while laws are made: every row is at its last committed token, and goes on rightly."""
    engine = model_engine()
    handles = [
        engine.submit([1, 2], max_new_tokens=14, logits_processors=[Raises(call, KeyboardInterrupt)]),
        engine.submit([4, 4], max_new_tokens=14),
    ]
    interrupts = 0
    while not all(handle.done for handle in handles):
        try:
            engine.step()
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts == 1
    expected = run(model_engine(), [[1, 2], [4, 4]], max_new_tokens=14)
    assert tokens_of([handle.completion for handle in handles]) == tokens_of(expected)
    assert_clean(engine)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_con_4_closing_a_stream_in_mid_text_frees_everything(after: int) -> None:
    engine = model_engine()
    stream = engine.stream([1, 2], max_new_tokens=14)
    for _ in range(after):
        next(stream)
    stream.close()
    assert_clean(engine)
    assert tokens_of(run(engine, [[1, 2]], max_new_tokens=14)) == tokens_of(
        run(model_engine(), [[1, 2]], max_new_tokens=14)
    )


@pytest.mark.real
def test_con_1_real_batch_equals_solo(smollm2: Any) -> None:
    prompts = ["Once", "The cat sat on the mat. The cat", "def f(x):\n    return x\n\ndef g(x):"]
    together = run(smollm2("lookup"), prompts, max_new_tokens=10)
    assert [c.token_ids for c in together] == [
        run(smollm2(None), [prompt], max_new_tokens=10)[0].token_ids for prompt in prompts
    ]
