"""LOG: log-probabilities and result fields."""

import math

import pytest
import torch

from helpers import World, run, tokens_of
from helpers_drafters import Oracle
from outrider import Engine
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.model import ModelDrafter
from outrider.errors import OptionError
from outrider.testing import FunctionDrafter, FunctionTarget

LAW = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
WORLD = World(seed=121)


@pytest.mark.parametrize("rule", ["identical", "rejection", "block"])
@pytest.mark.parametrize("draft", [[0, 0], [1, 2], [2, 1, 0, 0], []])
def test_log_1_every_token_has_its_own_logprob(rule: str, draft: list[int]) -> None:
    """Accepted, recovered, bonus and plain tokens alike."""
    target = FunctionTarget(lambda tokens: LAW.log(), 3)
    engine = Engine(target, FunctionDrafter(lambda tokens, depth: draft), rule=rule)
    origins = set()
    for seed in range(6):
        events = list(engine.stream([1], temperature=1.0, seed=seed, max_new_tokens=12, logprobs=3))
        for event in events:
            if event.token_ids:
                assert event.logprobs is not None
                assert event.logprobs.token_id == event.token_ids[0]
                assert event.logprobs.logprob == pytest.approx(math.log(LAW[event.token_ids[0]]), abs=1e-9)
                assert event.logprobs.raw_logprob == pytest.approx(event.logprobs.logprob, abs=1e-9)
                assert event.logprobs.rank == event.token_ids[0] + 1
                assert [token for token, _ in event.logprobs.top] == [0, 1, 2]
                origins.add(event.origin)
    assert origins - {"bonus"} == ({"accepted", "recovered", "plain"} if draft else {"plain"})
    assert "bonus" in origins or len(draft) != 2  # the longer draft is hardly ever kept whole


def test_log_1_reports_equal_those_of_the_plain_run() -> None:
    options = {
        "temperature": 0.8,
        "top_p": 0.9,
        "repetition_penalty": 1.3,
        "seed": 2,
        "max_new_tokens": 25,
        "logprobs": 4,
    }
    plain = run(Engine(WORLD.target()), [[1]], **options)[0]
    assert plain.logprobs is not None
    assert any(report.logprob != pytest.approx(report.raw_logprob) for report in plain.logprobs)
    for drafter in (LookupDrafter(), ModelDrafter(WORLD.draft()), Oracle(WORLD)):
        assert run(Engine(WORLD.target(), drafter), [[1]], **options)[0].logprobs == plain.logprobs


def test_log_2_asking_for_logprobs_does_not_stop_speculation() -> None:
    asked = run(Engine(WORLD.target(), Oracle(WORLD)), [[1]], max_new_tokens=24, logprobs=1)[0]
    silent = run(Engine(WORLD.target(), Oracle(WORLD)), [[1]], max_new_tokens=24)[0]
    assert tokens_of([asked]) == tokens_of([silent])
    assert (asked.stats.rounds, asked.stats.accepted) == (silent.stats.rounds, silent.stats.accepted)
    assert asked.stats.accepted > 0


def test_log_3_prompt_logprobs_are_refused_by_name() -> None:
    """They are not offered; asking is an error, never silence."""
    with pytest.raises(OptionError, match="prompt_logprobs"):
        Engine(WORLD.target()).generate([1, 2, 3, 4], prompt_logprobs=True)
