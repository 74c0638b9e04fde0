"""Targets that break their contract: shapes, lengths, NaN. A clear error or a right text, never a wrong one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers import World, run
from helpers_drafters import Oracle
from helpers_speed import quick
from outrider import Engine
from outrider.errors import TargetError
from outrider.testing import FunctionTarget

WORLD = World(seed=37)


@pytest.fixture(autouse=True)
def _unchecked() -> Iterator[None]:
    """As in production: the run-time checks of shapes are off, so the engine's own must tell."""
    with quick():
        yield


NAN, INF = float("nan"), float("inf")


class Liar(FunctionTarget):
    """From the third pass on it answers with what `twist` makes of the logits."""

    twist: Callable[[Tensor], Any]

    def score(self, *args: Any, **options: Any) -> Any:
        scored = super().score(*args, **options)
        return replace(scored, logits=self.twist(scored.logits)) if self.num_passes >= 3 else scored


def liar(twist: Callable[[Tensor], Any]) -> Liar:
    target = Liar(WORLD.target_logits, WORLD.vocab_size)
    target.twist = twist
    return target


def filled(place: Any, value: float) -> Callable[[Tensor], Tensor]:
    def twist(logits: Tensor) -> Tensor:
        logits = logits.clone()
        logits[place] = value
        return logits

    return twist


SHAPES = {
    "a row less": lambda logits: logits[:-1],
    "a row more": lambda logits: torch.cat([logits, logits[:1]]),
    "narrow": lambda logits: logits[:, :-1],
    "wide": lambda logits: torch.cat([logits, logits[:, :1]], 1),
    "one axis more": lambda logits: logits[None],
    "flat": lambda logits: logits.flatten(),
    "nothing": lambda logits: logits[:0],
}


@pytest.mark.parametrize("twist", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_of_a_wrong_shape(twist: Callable[[Tensor], Any], temperature: float) -> None:
    engine = Engine(liar(twist), Oracle(WORLD))
    with pytest.raises(TargetError, match=r"shape \(.*expected \(\d+, 8\)"):
        engine.generate([1], max_new_tokens=30, temperature=temperature, seed=1)
    assert engine.num_running == 0


VALUES = {
    "all NaN": filled(..., NAN),
    "a NaN in every row": filled((slice(None), 2), NAN),
    "all -inf": filled(..., -INF),
    "NaN and inf": lambda logits: filled((slice(None), 1), NAN)(filled((slice(None), 2), INF)(logits)),
}


@pytest.mark.parametrize("twist", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("rule", ["identical", "rejection", "block", "typical"])
@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9, "logprobs": 2}])
def test_logits_that_are_no_law(twist: Callable[[Tensor], Any], rule: str, settings: dict[str, Any]) -> None:
    """What was written before stands; the error names the position."""
    found = run(
        Engine(liar(twist), Oracle(WORLD), rule=rule), [[1]], errors=True, max_new_tokens=30, seed=1, **settings
    )
    (completion,) = found
    assert completion.finish_reason == "error"
    assert isinstance(completion.error, TargetError)
    assert "position" in str(completion.error)
    whole = run(Engine(WORLD.target(), Oracle(WORLD), rule=rule), [[1]], max_new_tokens=30, seed=1, **settings)[0]
    assert completion.token_ids == whole.token_ids[: len(completion.token_ids)]


@pytest.mark.parametrize("rule", ["identical", "rejection", "block", "typical"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_infinite_logits_mean_certainty(rule: str, temperature: float) -> None:
    """+inf takes all the mass, -inf is impossible."""
    target = liar(lambda logits: filled((slice(None), 3), -INF)(filled((slice(None), 2), INF)(logits)))
    options = {"max_new_tokens": 20, "temperature": temperature, "seed": 1, "logprobs": 1}
    found = run(Engine(target, Oracle(WORLD), rule=rule, policy=None), [[1]], **options)[0]
    assert set(found.token_ids[-8:]) == {2}
    assert found.logprobs is not None
    assert found.logprobs[-1].logprob == 0.0


@pytest.mark.parametrize("error", [1, -1, 5])
@pytest.mark.parametrize("prompt", [[1], [1, 2, 3, 4, 5, 6]])
def test_a_length_that_is_never_right(error: int, prompt: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed again for every token while that works, else an end: neither a wrong text nor an endless loop."""
    target = WORLD.target()
    length = target.length
    monkeypatch.setattr(target, "length", lambda row: length(row) + error if length(row) else 0)
    engine = Engine(target, prefill_chunk=2 if len(prompt) > 1 else 64)
    handle = engine.submit(prompt, max_new_tokens=50)
    for _ in range(200):
        if not handle.done:
            engine.step()
    plain = Engine(WORLD.target()).generate(prompt, max_new_tokens=50).token_ids
    if len(prompt) == 1:
        assert handle.completion.token_ids == plain
        assert handle.completion.stats.recomputed > 40
    else:
        assert isinstance(handle.completion.error, TargetError)
        assert "tokens where" in str(handle.completion.error)
        assert handle.completion.token_ids == ()
