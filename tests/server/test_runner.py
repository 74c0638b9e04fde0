"""The engine's thread without any web: same answers, fair order, clean ends, faults that stay with their owner."""

import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from live import until
from worlds import END, draft, logits, make_engine, target

from outrider import Request, SamplingParams
from outrider.errors import CapacityError, DrafterError, EngineError, TargetError
from outrider.server.job import Job, Update
from outrider.server.queue import FairQueue
from outrider.server.runner import DeadlineExceeded, EngineThread, ShuttingDown
from outrider.testing import FunctionDrafter


class Inbox:
    """Collects the updates of jobs."""

    def __init__(self) -> None:
        self.updates: queue.Queue[Update] = queue.Queue()

    def job(self, prompt: Sequence[int] = (1, 2, 3), *, index: int = 0, client: str = "", **options: Any) -> Job:
        own = {name: options.pop(name) for name in ("drafter", "rule") if name in options}
        deadline = options.pop("deadline", None)
        request = Request(list(prompt), SamplingParams(**options), **own)
        return Job(request, self.updates.put, index, client, deadline=deadline)

    def last(self) -> Update:
        while not (update := self.updates.get(timeout=30)).last:
            pass
        return update


@pytest.fixture
def runner() -> Any:
    made = EngineThread(make_engine(), max_waiting=8)
    made.start()
    yield made
    made.stop()
    assert not made.alive


def test_fair_queue_serves_clients_in_turn() -> None:
    line: FairQueue[str] = FairQueue()
    for client, item in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")]:
        line.push(client, item)
    assert len(line) == 5
    assert line.remove("a3")
    assert not line.remove("a3")
    assert [line.pop() for _ in range(len(line))] == ["a1", "b1", "c1", "a2"]
    with pytest.raises(IndexError):
        line.pop()


def test_same_tokens_as_generate_alone_and_among_32(runner: EngineThread) -> None:
    names = ("function", "lookup")
    settings: list[dict[str, Any]] = [
        {"temperature": 0.8, "seed": i, "max_new_tokens": 6 + i % 9, "drafter": names[i % 2]} for i in range(32)
    ]
    plain = make_engine()
    expected = []
    for i, one in enumerate(settings):
        options = {name: value for name, value in one.items() if name != "drafter"}
        expected.append(plain.generate([i, 7, 9], max_depth=0, **options).token_ids)
    inboxes = [Inbox() for _ in settings]
    jobs = [inbox.job([i, 7, 9], **one) for i, (inbox, one) in enumerate(zip(inboxes, settings, strict=True))]
    for start in range(0, 32, 8):  # the queue holds 8
        runner.submit(jobs[start : start + 8])
        until(lambda: runner.num_waiting == 0)
    answers = [inbox.last().completion for inbox in inboxes]
    assert [answer.token_ids for answer in answers if answer] == expected
    assert {answer.stats.method for answer in answers if answer} >= {"function"}


def test_events_join_up_to_the_completion(runner: EngineThread) -> None:
    inbox, updates = Inbox(), []
    runner.submit([inbox.job(max_new_tokens=40)])
    while not updates or not updates[-1].last:
        updates.append(inbox.updates.get(timeout=30))
    events = [event for update in updates for event in update.events]
    completion = updates[-1].completion
    assert completion is not None
    assert tuple(token for event in events for token in event.token_ids) == completion.token_ids
    assert "".join(event.text for event in events) == completion.text


def test_full_queue_refuses_and_keeps_the_rest(runner: EngineThread) -> None:
    gate = threading.Event()
    blocker = Inbox()
    runner.submit([blocker.job(logits_processors=[lambda tokens, row: (gate.wait(30), row)[1]], max_new_tokens=2)])
    until(lambda: runner.num_running == 1)
    inbox = Inbox()
    runner.submit([inbox.job(index=i, max_new_tokens=2) for i in range(11)])  # 3 rows and 8 places
    with pytest.raises(CapacityError, match="limit is 8"):
        runner.submit([inbox.job(max_new_tokens=2)])
    gate.set()
    assert {inbox.last().index for _ in range(11)} == set(range(11))


def test_cancel_ends_within_a_round_running_or_waiting(runner: EngineThread) -> None:
    gate = threading.Event()

    def wait_once(tokens: list[int], row: torch.Tensor) -> torch.Tensor:
        gate.wait(30)
        return row

    running, waiting = Inbox(), Inbox()
    jobs = [running.job(logits_processors=[wait_once], max_new_tokens=100, ignore_eos=True) for _ in range(4)]
    late = waiting.job(max_new_tokens=100)
    runner.submit(jobs)
    until(lambda: runner.num_running == 4)
    runner.submit([late])
    runner.cancel(jobs[0])
    runner.cancel(late)
    gate.set()
    ends = [running.last() for _ in range(1)]
    assert ends[0].completion is not None
    assert ends[0].completion.finish_reason == "cancelled"
    assert len(ends[0].completion.token_ids) <= 1 + 5
    assert isinstance(waiting.last().error, EngineError)
    for job in jobs:
        runner.cancel(job)
    until(lambda: runner.num_running == 0)
    assert runner.engine.num_running == 0


def test_deadline_running_and_waiting(runner: EngineThread) -> None:
    inbox = Inbox()
    slow = [lambda tokens, row: (time.sleep(0.02), row)[1]]
    soon = time.monotonic() + 0.3
    jobs = [
        inbox.job(index=i, logits_processors=slow, max_new_tokens=200, ignore_eos=True, deadline=soon) for i in range(6)
    ]
    runner.submit(jobs)
    ends = [inbox.last() for _ in jobs]
    assert all(isinstance(end.error, DeadlineExceeded) for end in ends)
    assert "tokens written" in str(ends[0].error)


def test_a_drafter_that_throws_harms_its_own_request_only() -> None:
    def broken(tokens: list[int], depth: int) -> list[int]:
        raise RuntimeError("no ideas left")

    runner = EngineThread(make_engine(broken=FunctionDrafter(broken)))
    runner.start()
    good, bad = Inbox(), Inbox()
    runner.submit([good.job(drafter="function", max_new_tokens=30)])
    runner.submit([bad.job(drafter="broken", max_new_tokens=30)])
    error = bad.last().error
    assert isinstance(error, DrafterError)
    assert "no ideas left" in str(error)
    answer = good.last().completion
    assert answer is not None
    assert answer.token_ids == make_engine().generate([1, 2, 3], max_new_tokens=30, max_depth=0).token_ids
    runner.stop()


def test_nan_logits_harm_their_own_request_only() -> None:
    def sick(tokens: list[int]) -> torch.Tensor:
        return torch.full((257,), torch.nan, dtype=torch.float64) if tokens[0] == 66 else logits(tokens)

    runner = EngineThread(make_engine(model=target(sick)))
    runner.start()
    good, bad = Inbox(), Inbox()
    runner.submit([good.job(max_new_tokens=30), bad.job([66, 1], max_new_tokens=30)])
    assert isinstance(bad.last().error, TargetError)
    assert good.last().completion is not None
    runner.stop()


def test_a_target_that_fails_ends_what_runs_and_recovers() -> None:
    ill = threading.Event()

    def moody(tokens: list[int]) -> torch.Tensor:
        if ill.is_set():
            raise RuntimeError("out of memory")
        return logits(tokens)

    runner = EngineThread(make_engine(model=target(moody)))
    runner.start()
    ill.set()
    inbox = Inbox()
    for _ in range(3):
        runner.submit([inbox.job(max_new_tokens=5)])
        assert "out of memory" in str(inbox.last().error)
    assert not runner.alive
    ill.clear()
    runner.submit([inbox.job(max_new_tokens=5)])
    assert inbox.last().completion is not None
    assert runner.alive
    runner.stop()


def test_a_target_that_fails_over_one_row_ends_that_request_only() -> None:
    """The pass of all rows raises, again and again, because of one of them."""

    def picky(tokens: list[int]) -> torch.Tensor:
        if tokens[0] == 66 and len(tokens) > 5:
            raise RuntimeError("cannot go on from here")
        return logits(tokens)

    runner = EngineThread(make_engine(model=target(picky)))
    runner.start()
    good, bad = Inbox(), Inbox()
    runner.submit([good.job(max_new_tokens=30), bad.job([66, 1, 2], max_new_tokens=30, ignore_eos=True)])
    assert "cannot go on from here" in str(bad.last().error)
    answer = good.last().completion
    assert answer is not None
    assert answer.token_ids == make_engine().generate([1, 2, 3], max_new_tokens=30, max_depth=0).token_ids
    assert runner.alive
    runner.stop()


def test_drain_and_stop_end_every_job_clearly() -> None:
    runner = EngineThread(make_engine(), max_waiting=8)
    runner.start()
    inbox = Inbox()
    slow = [lambda tokens, row: (time.sleep(0.02), row)[1]]
    jobs = [inbox.job(index=i, logits_processors=slow, max_new_tokens=200, ignore_eos=True) for i in range(6)]
    runner.submit(jobs)
    runner.drain()
    with pytest.raises(ShuttingDown):
        runner.submit([inbox.job()])
    assert not runner.wait_idle(0.1)
    runner.stop()
    assert {type(inbox.last().error) for _ in jobs} == {ShuttingDown}
    assert runner.engine.num_running == 0


def test_draft_is_good_enough_to_test_with() -> None:
    assert draft([1, 2, 3], 4) != [END] * 4
    stats = make_engine().generate([1, 2, 3], max_new_tokens=60, ignore_eos=True).stats
    assert 0.1 < (stats.acceptance or 0) < 1.0
