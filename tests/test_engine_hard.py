"""The engine on hard days: interrupts between two lines, drafters that fail when they should forget, re-entry."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from helpers import World, assert_clean, script, with_text
from outrider import Completion, Engine
from outrider.drafters.lookup import LookupDrafter
from outrider.engine.engine import Handle
from outrider.errors import DrafterError, ProcessorError, TargetError
from outrider.testing import FunctionDrafter, FunctionTarget

WORLD = World(seed=4)
PIECES = [b"a", b"b", b"c", b"d", b"e", b"f", b"\xc3", b"\xa9"]
LONG = [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]
PROMPTS = [LONG, [3, 4], [*LONG, 4]]
OPTIONS: dict[str, Any] = {"max_new_tokens": 4, "temperature": 0.9, "seed": 3, "logprobs": 1, "stop": ["zz"]}


def engine(drafter: Any = None, **options: Any) -> Engine:
    return Engine(with_text(WORLD.target(max_rows=2), PIECES), drafter, reuse_prefixes=True, **options)


def result(completion: Completion) -> tuple[object, ...]:
    return completion.token_ids, completion.text, completion.finish_reason, completion.logprobs


EXPECTED = [result(engine().generate(prompt, **OPTIONS)) for prompt in PROMPTS]


def finish(hard: Engine, handles: list[Handle]) -> None:
    for _ in range(60):
        if not all(handle.done for handle in handles):
            hard.step()
    assert all(handle.done for handle in handles)


def step_until_interrupted(hard: Engine, handles: list[Handle], function: str, at: int) -> bool:
    """Steps; KeyboardInterrupt before the at-th line run in functions of that name. False if there are fewer."""

    def steps() -> None:
        while not all(handle.done for handle in handles):
            hard.step()

    return interrupted(steps, function, at)


def interrupted(action: Callable[[], None], function: str, at: int) -> bool:
    """Runs the action; KeyboardInterrupt before the at-th line run in functions of that name. False: fewer lines."""
    left = at

    def in_function(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return in_function

    def on_call(frame: FrameType, event: str, arg: object) -> Any:
        ours = "outrider" in frame.f_code.co_filename and frame.f_code.co_qualname == function
        return in_function if ours else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize(
    "function",
    [
        "Schedule.admit",
        "Schedule._admit_row",
        "Schedule.prefill",
        "Schedule._prefill_row",
        "Schedule.release",
        "Schedule._leave",
        "Slots.take",
        "Slots._fresh",
        "Leases.claim",
        "Leases.release",
        "Slots.give_back",
        "Rounds._run",
        "Row.apply",
        "Row._apply",
        "Row.finish",
        "Row._all_or_nothing",
        "Tally.add",
        "Drafting._ask_together",
        "Drafting.observe",
        "Drafting.end",
        "LookupDrafter.begin",
        "NgramIndex.extend",
    ],
)
def test_an_interrupt_between_any_two_lines_changes_no_text(function: str) -> None:
    """Every request, running, waiting or later, still equals its plain run, and no row of the target is lost."""
    at, fired = 1, True
    while fired:
        hard = engine(LookupDrafter())
        handles = [hard.submit(prompt, **OPTIONS) for prompt in PROMPTS]
        fired = step_until_interrupted(hard, handles, function, at)
        finish(hard, handles)
        assert [result(handle.completion) for handle in handles] == EXPECTED, at
        for handle in handles:
            events = handle.take_events()
            assert "".join(event.text for event in events) == handle.completion.text, at
            assert handle.completion.stats.delivered == len(handle.completion.token_ids), at
        later = [hard.submit(prompt, **OPTIONS) for prompt in PROMPTS[1:]]
        hard.step()
        assert hard.num_running == 2, at  # both rows of the target are still there
        finish(hard, later)
        assert [result(handle.completion) for handle in later] == EXPECTED[1:], at
        at += 1 if at < 9 else at


@pytest.mark.parametrize("function", ["Row.finish", "Row._all_or_nothing", "Engine.cancel"])
def test_an_interrupted_cancel_loses_no_withheld_text(function: str) -> None:
    """'ab' may begin the stop string, and half a character follows: withheld, and released by the second cancel too."""
    line = {(1,): [2, 2, 0, 1, 6]}
    at, fired = 1, True
    while fired:
        hard = Engine(with_text(FunctionTarget(script(line, 8), 8), PIECES))
        handle = hard.submit([1], max_new_tokens=9, stop=["abz"])
        for _ in range(5):
            hard.step()
        assert handle.row.text == "cc"
        fired = interrupted(handle.cancel, function, at)
        handle.cancel()
        events = handle.take_events()
        assert handle.completion.text == "ccab\ufffd" == "".join(event.text for event in events), at
        assert [event.finish_reason for event in events][-1] == "cancelled", at
        assert hard.num_running == 0, at
        at += 1
    assert at > 3


def always(number: int) -> Callable[[list[int], int], list[int]]:
    return lambda tokens, depth: [number] * depth


class Unforgetful(FunctionDrafter):
    """Raises when it is told that a request is over."""

    def end(self, row: int) -> None:
        raise RuntimeError("cannot forget")


def test_a_drafter_that_raises_at_the_end_harms_nobody() -> None:
    hard = Engine(WORLD.target(), Unforgetful(always(1)))
    found = hard.generate_batch(PROMPTS, max_new_tokens=5)
    plain = Engine(WORLD.target()).generate_batch(PROMPTS, max_new_tokens=5)
    assert [one.token_ids for one in found] == [one.token_ids for one in plain]
    assert hard.num_running == 0
    assert "cannot forget" in found[0].stats.warnings[0]


def test_a_drafter_that_fails_in_a_batch_and_cannot_forget_fails_its_requests_alone() -> None:
    def broken(tokens: list[int], depth: int) -> list[int]:
        raise RuntimeError("no idea")

    hard = Engine(WORLD.target(), Unforgetful(broken))
    found = hard.generate_batch(PROMPTS, max_new_tokens=5)
    assert all(isinstance(one.error, DrafterError) for one in found)
    assert hard.generate([1], max_new_tokens=3, max_depth=0).finish_reason == "length"


def test_a_drafter_that_changes_the_text_it_was_shown_changes_no_text() -> None:
    class Vandal(LookupDrafter):
        def propose_row(self, context: Any) -> Any:
            tree = super().propose_row(context)
            context.tokens[0] = 7
            return tree

    found = Engine(WORLD.target(), Vandal()).generate(LONG, max_new_tokens=12)
    assert found.token_ids == Engine(WORLD.target()).generate(LONG, max_new_tokens=12).token_ids
    assert found.prompt_token_ids == tuple(LONG)


@pytest.mark.parametrize("call", ["step", "generate"])
def test_stepping_from_within_a_step_is_refused(call: str) -> None:
    """A processor that runs the engine that runs it fails its own request; the others do not notice."""
    hard = Engine(WORLD.target())

    def again(token_ids: list[int], logits: Any) -> Any:
        hard.step() if call == "step" else hard.generate([1], max_new_tokens=2)
        return logits

    neighbour = hard.submit([3, 4], max_new_tokens=8)
    with pytest.raises(ProcessorError, match="within a step"):
        hard.generate(LONG, max_new_tokens=8, logits_processors=[again])
    while not neighbour.done:
        hard.step()
    assert neighbour.completion.token_ids == Engine(WORLD.target()).generate([3, 4], max_new_tokens=8).token_ids
    assert_clean(hard)


def test_a_target_that_cannot_copy_a_prefix_fails_the_request_that_wanted_it() -> None:
    hard = engine()
    first = hard.submit(LONG, max_new_tokens=5)
    hard.step()

    def copy(source: int, row: int, length: int) -> None:
        raise TargetError("no copies")

    hard.target.copy = copy  # pyright: ignore[reportAttributeAccessIssue]
    second, third = hard.submit([*LONG, 4], max_new_tokens=5), hard.submit([3, 4], max_new_tokens=5)
    finish(hard, [first, second, third])
    assert isinstance(second.completion.error, TargetError)
    assert [first.completion.finish_reason, third.completion.finish_reason] == ["length", "length"]
