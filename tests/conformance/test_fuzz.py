"""Random days in an engine's life: requests of all kinds come, go and are cancelled; every text is its plain text.

A day is drawn from its number: rule, drafter, policy, rows, chunks, warm prefixes, settings, stops, moments of arrival
and of cancelling. What is expected comes from one plain engine per request, alone and cold.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from helpers import World, assert_figures, with_text
from helpers_drafters import CHARACTERS
from outrider import Completion, Engine, Request, SamplingParams
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.model import ModelDrafter
from outrider.engine.engine import Handle
from outrider.policy.fixed import FixedPolicy

PIECES = [b"a", b"bc", b" ", b"\xc3", b"\xa9", b"\xe2\x82", b"\xac", b"abc"]  # 3 to 6: halves of characters
END = 7
RULES = ("identical", "identical", "rejection", "block", "typical")


@dataclass
class Guest:
    """One request: when it comes, and after how many steps it is cancelled, if at all."""

    request: Request
    arrives: int
    leaves: int | None
    handle: Handle | None = None


class Day:
    """Everything about one random day."""

    def __init__(self, number: int) -> None:
        self.random = Random(number)
        self.world = World(len(PIECES), seed=number % 97, habit=self.random.choice([0.5, 2.0, 4.0]))
        self.rule = self.random.choice(RULES)
        self.base = [self.random.randrange(len(PIECES)) for _ in range(24)]
        self.guests = [self._guest() for _ in range(self.random.randint(2, 7))]

    def _guest(self) -> Guest:
        draw = self.random
        prompt = self.base[: draw.randint(1, 24)] + [draw.randrange(len(PIECES)) for _ in range(draw.randint(0, 3))]
        leaves = draw.randint(1, 6) if draw.random() < 0.25 else None
        return Guest(Request(prompt, SamplingParams(**self._settings())), draw.randint(0, 8), leaves)

    def _settings(self) -> dict[str, Any]:
        draw = self.random
        budget = draw.randint(1, 16)
        choices: dict[str, list[Any]] = {
            "temperature": [0.0, 0.0, 0.7, 1.5],
            "top_k": [None, 3],
            "top_p": [None, 0.8],
            "min_p": [None, 0.1],
            "repetition_penalty": [None, 1.3],
            "presence_penalty": [None, 0.5],
            "frequency_penalty": [None, -0.7, 0.9],
            "logit_bias": [None, None, {2: 2.0, 5: -1.5}],
            "banned_token_ids": [None, None, [0, 6]],
            "min_new_tokens": [None, min(3, budget)],
            "stop_token_ids": [None, None, [3]],
            "stop": [None, "é", ["bc ", "€"], ["abcabc", "c a"]],
            "include_stop": [False, True],
            "ignore_eos": [False, True],
            "logprobs": [None, 0, 2],
            "max_depth": [None, 0, 1, 4],
        }
        drawn = {name: draw.choice(values) for name, values in choices.items()}
        return {"max_new_tokens": budget, "seed": draw.randrange(1 << 64), **drawn}

    def engine(self) -> Engine:
        draw = self.random
        target = with_text(self.world.target((END,), max_rows=draw.randint(1, 4)), PIECES)
        return Engine(
            target,
            self._drafter(),
            rule=self.rule,
            policy=FixedPolicy(self.name, draw.randint(1, 6), draw.randint(1, 14)),
            prefill_chunk=draw.choice([1, 5, 64]),
            reuse_prefixes=draw.random() < 0.5,
        )

    def _drafter(self) -> Any:
        chosen = self.random.choice([*CHARACTERS, "model", "lookup"])
        if chosen == "model":
            drafter = ModelDrafter(with_text(self.world.draft(max_rows=self.random.randint(1, 3)), PIECES))
        else:
            drafter = LookupDrafter() if chosen == "lookup" else CHARACTERS[chosen](self.world, (END,))
        self.name = drafter.name
        return drafter

    def plain(self, request: Request) -> Completion:
        return Engine(with_text(self.world.target((END,)), PIECES)).generate(request)


def live(day: Day) -> Engine:
    """The day, step by step; guests arrive in time and leave when they have had enough."""
    engine, step = day.engine(), 0
    while step < 9 or engine.num_running or engine.num_waiting:
        for guest in day.guests:
            if guest.arrives == step:
                guest.handle = engine.submit(guest.request)
            if guest.handle and guest.leaves is not None and step == guest.arrives + guest.leaves:
                guest.handle.cancel()
        engine.step()
        step += 1
        assert step < 1000
    return engine


def check(day: Day) -> None:
    engine = live(day)
    for guest in day.guests:
        assert guest.handle is not None
        found, expected = guest.handle.completion, day.plain(guest.request)
        assert_figures(found)
        events = guest.handle.take_events()
        assert "".join(event.text for event in events) == found.text
        assert tuple(token for event in events for token in event.token_ids) == found.token_ids
        if day.rule == "identical" or guest.request.params.greedy:
            _equal(found, expected)
    engine._schedule.slots.drop_warm()
    assert not any(engine.target.length(row) for row in range(engine.target.info.max_rows))
    assert not any(drafter for drafter in vars(engine._drafting.drafters[day.name]).get("_slots", {}))


def _equal(found: Completion, expected: Completion) -> None:
    if found.finish_reason != "cancelled":
        assert _result(found) == _result(expected)
        return
    count = len(found.token_ids)
    assert found.token_ids == expected.token_ids[:count]
    assert found.logprobs == (None if expected.logprobs is None else expected.logprobs[:count])


def _result(completion: Completion) -> tuple[object, ...]:
    return (
        completion.token_ids,
        completion.text,
        completion.finish_reason,
        completion.stop_match,
        completion.logprobs,
        completion.effective_params,
    )


@pytest.mark.parametrize("number", range(60))
def test_a_random_day(number: int) -> None:
    check(Day(number))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 3100, 100))
def test_many_random_days(first: int) -> None:
    for number in range(first, first + 100):
        check(Day(number))
