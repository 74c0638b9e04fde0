"""Several engines on one target, and several threads on one engine: nobody gets another's rows, tokens or events."""

import gc
import threading
import time
from typing import Any

import pytest

from helpers import World, run, tokens_of, with_text
from outrider import Completion, Engine
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.model import ModelDrafter
from outrider.engine.engine import Handle
from outrider.engine.turn import Turn
from outrider.errors import CapacityError, PairingError
from outrider.targets.base import Target

WORLD = World(seed=29)
LONG = [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]


def plain(prompt: list[int], budget: int) -> tuple[int, ...]:
    return Engine(WORLD.target()).generate(prompt, max_new_tokens=budget).token_ids


@pytest.mark.parametrize("prompts", [([1, 2], [4, 4]), ([1], [4]), (LONG, [*LONG[:-1], 2])])
@pytest.mark.parametrize("reuse", [False, True])
def test_two_engines_in_turns_on_one_target(prompts: tuple[list[int], list[int]], reuse: bool) -> None:
    """Prompts of equal length, so that lengths alone could not tell the rows apart; nothing is computed twice."""
    target = WORLD.target(max_rows=4)
    engines = [Engine(target, LookupDrafter(), reuse_prefixes=reuse, prefill_chunk=3) for _ in range(2)]
    for _ in range(2):
        handles = [engine.submit(prompt, max_new_tokens=12) for engine, prompt in zip(engines, prompts, strict=True)]
        while not all(handle.done for handle in handles):
            for engine, handle in zip(engines, handles, strict=True):
                if not handle.done:
                    engine.step()
        assert [handle.completion.token_ids for handle in handles] == [plain(prompt, 12) for prompt in prompts]
        assert [handle.completion.stats.recomputed for handle in handles] == [0, 0]


def test_engines_on_one_target_stepped_by_a_thread_each() -> None:
    """Every request gets plain decoding's text, nothing is computed twice, and no engine starves another."""
    target = WORLD.target(max_rows=6)
    engines = [Engine(target, LookupDrafter(), prefill_chunk=3) for _ in range(3)]
    prompts, found = [[1, 2], [4, 4], LONG], dict[int, list[Completion]]()
    done: list[int] = []

    def work(place: int) -> None:
        for _ in range(20):
            found.setdefault(place, []).append(engines[place].generate(prompts[place], max_new_tokens=12))
            done.append(place)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for place, prompt in enumerate(prompts):
        assert [one.token_ids for one in found[place]] == [plain(prompt, 12)] * 20
        assert not any(one.stats.recomputed for one in found[place])
    assert set(done[:20]) == {0, 1, 2}


def test_a_turn_is_fair_and_may_be_taken_again_within() -> None:
    turn, order = Turn(), list[int]()

    def work(place: int) -> None:
        for _ in range(3):
            with turn, turn:
                order.append(place)
                time.sleep(0.01)

    with turn:
        threads = [threading.Thread(target=work, args=(place,)) for place in range(3)]
        for thread in threads:
            thread.start()
            time.sleep(0.05)
    for thread in threads:
        thread.join(10)
    assert order == [0, 1, 2] * 3


def test_an_engine_without_a_row_says_who_has_them() -> None:
    target = WORLD.target(max_rows=1)
    first, second = Engine(target), Engine(target)
    held = first.submit([1], max_new_tokens=5)
    first.step()
    with pytest.raises(CapacityError, match="all 1 cache rows of toy are held by other engines"):
        second.generate([2], max_new_tokens=5)
    held.cancel()
    assert second.generate([2], max_new_tokens=5).token_ids == plain([2], 5)


def test_an_engine_that_is_gone_holds_nothing() -> None:
    target = WORLD.target(max_rows=1)
    gone = Engine(target, reuse_prefixes=True)
    gone.submit(LONG, max_new_tokens=9)
    gone.step()
    assert target.length(0) > 0
    del gone
    gc.collect()
    assert Engine(target).generate([2], max_new_tokens=5).token_ids == plain([2], 5)


def test_a_target_cannot_be_its_own_draft_model() -> None:
    target = WORLD.target()
    with pytest.raises(PairingError, match="load it a second time"):
        Engine(target, ModelDrafter(target))


class Slow:
    """A target that lets other threads run in the middle of a pass."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.in_pass = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def score(self, *args: Any) -> Any:
        self.in_pass.set()
        threading.Event().wait(0.001)
        return self._target.score(*args)


@pytest.mark.parametrize("reuse", [False, True])
def test_cancels_from_other_threads(reuse: bool) -> None:
    """In the middle of passes: each ends at a committed token, its neighbour is untouched, no row is lost."""
    target = Slow(with_text(WORLD.target(max_rows=3), [b"a", b"bc", b"\xc3", b"\xa9", b"d", b"e", b"f", b"g"]))
    engine = Engine(target, ModelDrafter(WORLD.draft()), reuse_prefixes=reuse)  # pyright: ignore[reportArgumentType]
    for turn in range(6):
        stays, goes = engine.submit([1, 2], max_new_tokens=12), engine.submit([4], max_new_tokens=1000)
        canceller = threading.Thread(target=_cancel_in_a_pass, args=(target, goes, turn))
        canceller.start()
        while not (stays.done and goes.done):
            engine.step()
        canceller.join()
        events = goes.take_events()
        assert goes.completion.finish_reason == "cancelled"
        assert [event.finish_reason for event in events].count("cancelled") == 1
        assert events[-1].finish_reason == "cancelled"
        assert tuple(token for event in events for token in event.token_ids) == goes.completion.token_ids
        assert "".join(event.text for event in events) == goes.completion.text
        count = len(goes.completion.token_ids)
        assert goes.completion.token_ids == plain([4], count + 1)[:count]
        assert stays.completion.token_ids == plain([1, 2], 12)
    assert engine.num_running == engine.num_waiting == 0
    assert reuse or not any(target.length(row) for row in range(3))


def _cancel_in_a_pass(target: Slow, handle: Handle, passes: int) -> None:
    for _ in range(passes + 1):
        target.in_pass.clear()
        target.in_pass.wait(5)
    handle.cancel()


def test_requests_from_other_threads() -> None:
    engine = Engine(Slow(WORLD.target(max_rows=3)), LookupDrafter())  # pyright: ignore[reportArgumentType]
    handles: list[Handle] = []
    threads = [
        threading.Thread(target=lambda first=first: handles.append(engine.submit([first, 2], max_new_tokens=8)))
        for first in range(6)
    ]
    for thread in threads:
        thread.start()
        engine.step()
    for thread in threads:
        thread.join()
    while not all(handle.done for handle in handles):
        engine.step()
    assert len({handle.id for handle in handles}) == 6
    for handle in handles:
        completion = handle.completion
        assert completion.token_ids == plain(list(completion.prompt_token_ids), 8)


def test_a_batch_with_a_bad_prompt_leaves_nothing_in_the_queue() -> None:
    engine = Engine(WORLD.target())
    with pytest.raises(ValueError, match="empty"):
        engine.generate_batch([[1], [2, 3], []], max_new_tokens=3)
    assert engine.num_waiting == 0
    assert tokens_of(run(engine, [[1]], max_new_tokens=3)) == [(plain([1], 3), "length")]
