"""Which setting a plan recommends, and why: a fixed one only if it is better beyond its error, else the policy `auto`.

`auto` decides as it goes and is never far from the best, so it needs no proof; a fixed setting does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.planner.chance import enough, gain, spread
from outrider.planner.predict import Table
from outrider.planner.replay import PLAIN, Setting
from outrider.planner.verify import Verified

AUTO = "auto"


@dataclass(frozen=True)
class Advice:
    """setting: None for the policy `auto`."""

    setting: Setting | None
    why: str


def advise(table: Table, verified: Sequence[Verified], batch: int) -> Advice:
    """By real runs where there are any, else by prediction. Runs that wrote another text count for nothing."""
    sound = {one.name: one for one in verified if not one.differs}
    return _by_runs(table, sound) if AUTO in sound and str(PLAIN) in sound else _by_prediction(table, batch)


def _by_runs(table: Table, sound: dict[str, Verified]) -> Advice:
    plain, auto = sound[str(PLAIN)], sound[AUTO]
    without = gain(plain.speeds, auto.speeds)
    base = plain if without.sure else auto
    settings = {str(setting): setting for setting in table.found}
    fixed = [one for one in sound.values() if one.name in settings and one is not plain]
    best = max(fixed, key=lambda one: one.speed, default=None)
    found = gain(best.speeds, base.speeds) if best else None
    if best and found and found.sure:
        return Advice(settings[best.name], f"in real runs {found} times as fast as {base.name}")
    beside = f"; the best fixed one, {best.name}, is {found} times as fast" if best else ""
    if base is plain:
        return Advice(
            PLAIN, f"in real runs nothing is faster: plain decoding is {without} times as fast as auto{beside}"
        )
    return Advice(None, f"no fixed setting is faster than auto beyond its error in real runs{beside}")


def _by_prediction(table: Table, batch: int) -> Advice:
    best = next(setting for setting in table.ranked(batch) if setting != PLAIN)
    told = (
        f"{best} is predicted at {table.speedup(best, batch):.2f} times plain decoding ({spread(table, best, batch)})"
    )
    if not enough(table):
        count, tokens = len(table.samples), table.rounds(PLAIN).tokens
        return Advice(None, f"{count} samples with {tokens} tokens are too little text to fix a setting; {told}")
    if spread(table, best, batch).low > 1:
        return Advice(best, told)
    if all(spread(table, setting, batch).high < 1 for setting in table.found if setting != PLAIN):
        return Advice(PLAIN, f"nothing pays: even the best, {told}")
    return Advice(None, f"no fixed setting is faster than plain decoding beyond its error: {told}")
