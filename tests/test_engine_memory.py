"""Memory runs short: warm texts go first, then the drafter that is missed least; texts and other requests stay."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import World
from helpers_models import llama, save_model
from outrider import Engine, load
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.mix import MixDrafter
from outrider.drafters.model import ModelDrafter
from outrider.engine import memory
from outrider.engine.memory import MemoryWatch, available_memory
from outrider.engine.request import Request
from outrider.errors import OptionError, OutriderWarning
from outrider.policy.auto import AutoPolicy
from outrider.policy.records import DrafterShape
from outrider.types import PhaseSeconds, RoundStats, RowRound

WORLD = World(seed=31)
LONG = [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]
LOW = 100 << 20


class Held(ModelDrafter):
    """A draft model that counts as loaded here."""

    released = False

    @property
    def held_bytes(self) -> int:
        return 1000

    def release(self) -> None:
        super().release()
        self.released = True


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What is free, to be changed by the test; every step looks."""
    left = {"bytes": 1 << 40}
    monkeypatch.setattr(memory, "available_memory", lambda device: left["bytes"])
    monkeypatch.setattr(memory, "EVERY", 0.0)
    return left


def plain(prompt: list[int], **options: Any) -> tuple[int, ...]:
    return Engine(WORLD.target()).generate(prompt, **options).token_ids


@pytest.mark.parametrize("policy", ["fixed", "auto"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_drafter_is_given_up_amidst_its_requests(free: dict[str, int], policy: str, temperature: float) -> None:
    """The text goes on as if nothing had happened; who asked for that drafter learns why there are no drafts."""
    held = Held(WORLD.draft())
    engine = Engine(WORLD.target(max_rows=3), {"model": held, "lookup": LookupDrafter()}, policy=policy)
    options: dict[str, Any] = {"max_new_tokens": 24, "temperature": temperature, "seed": 5}
    handles = [engine.submit(prompt, **options) for prompt in ([1, 2], LONG)]
    for _ in range(3):
        engine.step()
    free["bytes"] = LOW
    with pytest.warns(OutriderWarning, match="'model' was given up: 100 MiB of memory are free, fewer than 256"):
        engine.step()
    assert held.released
    free["bytes"] = 1 << 40
    while not all(handle.done for handle in handles):
        engine.step()
    assert [handle.completion.token_ids for handle in handles] == [plain([1, 2], **options), plain(LONG, **options)]
    later = engine.generate(LONG, max_depth=3, **options)
    assert later.token_ids == plain(LONG, **options)
    assert later.stats.proposed == 0 or policy == "auto"


def test_who_names_a_drafter_that_is_gone_is_told(free: dict[str, int]) -> None:
    engine = Engine(WORLD.target(), {"lookup": LookupDrafter(), "model": Held(WORLD.draft())}, policy="fixed")
    free["bytes"] = LOW
    engine.submit([1], max_new_tokens=2)
    with pytest.warns(OutriderWarning, match="given up"):
        engine.step()
    asked = engine.generate(Request([1, 2], drafter="model"), max_new_tokens=6)
    assert asked.token_ids == plain([1, 2], max_new_tokens=6)
    assert any("'model' was given up" in warning for warning in asked.stats.warnings)


def test_requests_say_why_they_have_no_drafts(free: dict[str, int]) -> None:
    """Under the automatic policy too, where nobody asks a drafter that is gone; but not if another could draft."""
    for others in ({}, {"lookup": LookupDrafter()}):
        engine = Engine(WORLD.target(), {"model": Held(WORLD.draft()), **others}, policy="auto")
        free["bytes"] = LOW
        engine.submit([1], max_new_tokens=9)
        with pytest.warns(OutriderWarning, match="given up"):
            engine.step()
        free["bytes"] = 1 << 40
        told = engine.generate([1, 2], max_new_tokens=6).stats.off_reason or ""
        assert ("'model' was given up" in told) == (not others)
        named = engine.generate(Request([1, 2], drafter="model"), max_new_tokens=6).stats.off_reason
        assert "'model' was given up" in (named or "")


def test_warm_texts_go_first(free: dict[str, int]) -> None:
    held = Held(WORLD.draft())
    engine = Engine(WORLD.target(max_rows=2), held, reuse_prefixes=True)
    engine.generate(LONG, max_new_tokens=4)
    free["bytes"] = LOW
    again = engine.submit([*LONG, 4, 4], max_new_tokens=20)
    engine.step()
    assert not held.released
    assert again.row.tally.reused == 0
    with pytest.warns(OutriderWarning, match="given up"):
        engine.step()
    assert held.released


def test_without_a_floor_or_with_nothing_to_give_all_stays(free: dict[str, int]) -> None:
    free["bytes"] = 0
    held = Held(WORLD.draft())
    assert Engine(WORLD.target(), held, memory_floor=0).generate([1], max_new_tokens=8).stats.proposed > 0
    assert not held.released
    assert Engine(WORLD.target(), LookupDrafter()).generate(LONG, max_new_tokens=8).token_ids == plain(
        LONG, max_new_tokens=8
    )


def test_the_policy_names_the_drafter_that_is_missed_least() -> None:
    """'big' keeps more tokens than 'small', but not as many more as it is larger."""
    policy = AutoPolicy({name: DrafterShape() for name in ("big", "small")})
    for name, kept in (("big", 4), ("small", 2)):
        policy._records[name].hope.learn(5.0, kept)
    assert policy.shed({"big": 300, "small": 100}) == "big"
    assert policy.shed({"small": 100}) == "small"
    policy.observe(RoundStats((RowRound(0, "small", 1, 1, 2, 1, 9),), PhaseSeconds(score=1.0), 2))


def test_the_weights_are_really_gone(tmp_path: Path, free: dict[str, int]) -> None:
    """A draft model that was loaded by name: nothing holds its weights any more, alone or within a mix."""
    save_model(tmp_path, llama())
    for drafter in (ModelDrafter(str(tmp_path)), MixDrafter(["lookup", f"model:{tmp_path}"])):
        free["bytes"] = 1 << 40
        engine = load(str(tmp_path), drafter, policy="fixed")
        engine.generate([1, 2, 3], max_new_tokens=4)
        model = drafter if isinstance(drafter, ModelDrafter) else drafter.parts[1]
        assert isinstance(model, ModelDrafter)
        assert model._loaded is not None
        assert drafter.held_bytes >= 1000
        weights = weakref.ref(model._loaded)
        free["bytes"] = LOW
        engine.submit([1, 2, 3], max_new_tokens=2)
        with pytest.warns(OutriderWarning, match="given up"):
            engine.step()
        gc.collect()
        assert weights() is None


def test_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = available_memory(torch.device("cpu"))
    assert 0 < machine < 1 << 50
    for name, text in (("max", "5000000\n"), ("current", "3000000\n"), ("stat", "anon 1\ninactive_file 500000\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert available_memory() == 2500000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory() > 2500000


def test_it_is_looked_at_once_a_second() -> None:
    now, looks = [0.0], list[int]()
    watch = MemoryWatch(1 << 62, torch.device("cpu"), clock=lambda: now[0])
    for second in (0.0, 0.3, 0.9, 1.1, 1.5, 2.2):
        now[0] = second
        looks.append(bool(watch.shortage()))
    assert looks == [1, 0, 0, 1, 0, 1]
    with pytest.raises(OptionError, match="memory_floor must be an integer from 0, not -1"):
        Engine(WORLD.target(), memory_floor=-1)
