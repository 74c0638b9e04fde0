"""A plan on one page: what to do, what it brings, where the time goes, when it stops to pay. Self-contained HTML."""

from collections.abc import Sequence
from html import escape

from outrider.charts.bars import Series, grouped_bars, stacked_bars
from outrider.charts.lines import Line, line_chart
from outrider.charts.page import figure, heading, page, paragraph, table
from outrider.planner.chance import spread
from outrider.planner.predict import BATCHES, Table, break_even
from outrider.planner.profile import Profile
from outrider.planner.replay import PLAIN, Setting
from outrider.planner.run import Planned
from outrider.planner.verify import Verified, pace_note

MAX_SERIES = 5


def report(planned: Planned) -> str:
    """The whole document."""
    found, batch = planned.table, int(planned.settings["batch"])
    best = found.best_of_each(batch)[:MAX_SERIES]
    names = ", ".join(str(setting) for setting in best if setting != PLAIN)
    parts = [
        heading("How to serve this traffic", 1),
        paragraph(
            f"{planned.profile.target}: {len(found.samples)} requests in {len(found.kinds)} kinds, "
            f"{found.rounds(PLAIN).tokens} tokens written; batch size {batch}",
            "quiet",
        ),
        _verdict(planned),
        *_verified(planned.verified),
        heading("Speed-up by kind of prompt"),
        figure(
            _by_kind(found, best, batch), f"Predicted, over plain decoding. Each drafter at its best depth: {names}."
        ),
        heading("Speed-up by batch size"),
        figure(
            _by_batch(found, best),
            "Predicted, over plain decoding at the same batch size. Wide batches make verification dear: choose by "
            "the number of requests that really run at a time.",
        ),
        heading("Acceptance by position"),
        figure(_acceptance(found, best), "Share of rounds in which the 1st, 2nd, ... drafted token was kept."),
        heading("Where the time goes"),
        figure(_phases(found, best, batch), "Milliseconds per written token: drafting, the target's pass, the rest."),
        heading("The break-even line"),
        figure(
            _break_even(found, best, batch),
            "Solid: tokens that a round writes, by depth. Dashed: what it must write to be as fast as plain decoding. "
            "Speculation pays where a drafter's solid line is above its dashed one.",
        ),
        heading("All settings"),
        paragraph(
            f"Tokens a round, milliseconds a round and tokens per second at batch size {batch}; then the speed-up over "
            "plain decoding at that batch size, with the range in which it lies for nine in ten resampled traffics, "
            "and at others.",
            "quiet",
        ),
        _all_settings(found, batch),
    ]
    return page(f"Plan for {planned.profile.target}", [part for part in parts if part])


def _verdict(planned: Planned) -> str:
    about, what = planned.profile.about, recommended(planned.profile)
    speed = about.get("measured_tokens_per_second", about.get("predicted_tokens_per_second", 0.0))
    gain = speed / about["measured_plain"] if about.get("measured_plain") else about.get("predicted_speedup", 1.0)
    how = "measured" if "measured_plain" in about else "predicted"
    figures = f"<p>{speed:.1f} tokens per second, {gain:.2f} times plain decoding ({how})</p>" if speed else ""
    return (
        f"<div class='panel'><p>Recommended</p><p><b class='big'>{escape(what)}</b></p>{figures}"
        f"<p class='quiet'>{escape(about['why'])}</p></div>"
    )


def recommended(profile: Profile) -> str:
    """What the profile does, in a few words."""
    if profile.policy == "auto":
        return "the automatic policy over " + ", ".join(profile.drafters)
    setting = Setting(profile.drafter or "none", profile.max_depth or 0, profile.max_nodes or 0)
    return "plain decoding" if setting.max_depth == 0 else str(setting)


def _verified(verified: Sequence[Verified]) -> list[str]:
    if not verified:
        return [paragraph("Nothing was run for real: all figures are predictions.", "quiet")]
    plain = verified[0]
    rows = [
        [
            one.name,
            f"{one.predicted:.1f}" if one.predicted else "-",
            f"{one.speed:.1f}",
            f"{one.predicted / plain.predicted:.2f}" if one.predicted and plain.predicted else "-",
            f"{one.speed / plain.speed:.2f}" if plain.speed and not one.differs else "-",
            "equal" if not one.differs else f"DIFFERS: {', '.join(one.differs)}",
        ]
        for one in verified
    ]
    head = ["setting", "predicted tok/s", "measured tok/s", "predicted x plain", "measured x plain", "text"]
    note = pace_note(verified)
    return [
        heading("Predicted and measured"),
        table(head, rows),
        paragraph(note[:1].upper() + note[1:] + ".") if note else "",
    ]


def _by_kind(found: Table, best: Sequence[Setting], batch: int) -> str:
    series = [
        Series(setting.drafter, [found.speedup(setting, batch, kind) for kind in found.kinds])
        for setting in best
        if setting != PLAIN
    ]
    return grouped_bars(
        found.kinds, series, label="Speed-up by kind of prompt", y_label="times plain decoding", level=1.0
    )


def _by_batch(found: Table, best: Sequence[Setting]) -> str:
    lines = [
        Line(str(setting), [(float(i), found.speedup(setting, size)) for i, size in enumerate(BATCHES)])
        for setting in best
        if setting != PLAIN
    ]
    return line_chart(
        lines,
        label="Speed-up by batch size",
        x_label="requests at a time",
        y_label="times plain decoding",
        level=1.0,
        x_names=[str(size) for size in BATCHES],
    )


def _acceptance(found: Table, best: Sequence[Setting]) -> str:
    lines: list[Line] = []
    for setting in best:
        deepest = max(
            (s for s in found.found if s.drafter == setting.drafter), key=lambda s: (s.max_depth, -s.max_nodes)
        )
        if points := [(float(i), share) for i, share in enumerate(found.acceptance(deepest), 1)]:
            lines.append(Line(setting.drafter, points))
    return line_chart(lines, label="Acceptance by position", x_label="position in the draft", y_label="share kept")


def _phases(found: Table, best: Sequence[Setting], batch: int) -> str:
    bars: list[tuple[str, list[float]]] = []
    for setting in best:
        one = found.priced(setting, batch)
        per_token = 1000 / (one.tokens_per_round * batch)
        bars.append((str(setting), [one.draft * per_token, one.score * per_token, one.rest * per_token]))
    return stacked_bars(bars, ["drafting", "target's pass", "rest"], label="Time per written token", unit="ms")


def _break_even(found: Table, best: Sequence[Setting], batch: int) -> str:
    lines: list[Line] = []
    for name in [setting.drafter for setting in best if setting != PLAIN][:3]:
        chains = sorted(s for s in _chains(found, name))
        depths = [setting.max_depth for setting in chains]
        yields = [found.priced(setting, batch).tokens_per_round for setting in chains]
        needed = break_even(found.costs, name, depths, batch, found.context)
        lines.append(Line(name, [(float(d), y) for d, y in zip(depths, yields, strict=True)]))
        lines.append(Line(f"{name} needed", [(float(d), n) for d, n in zip(depths, needed, strict=True)], dashed=True))
    return line_chart(lines, label="Break-even", x_label="tokens drafted in a round", y_label="tokens a round")


def _chains(found: Table, name: str) -> list[Setting]:
    return [s for s in found.found if s.drafter == name and s.max_nodes <= s.max_depth]


def _all_settings(found: Table, batch: int) -> str:
    rows: list[list[str]] = []
    names = [setting.drafter for setting in found.best_of_each(batch)]
    for setting in sorted(found.found, key=lambda s: (names.index(s.drafter), s.max_nodes > s.max_depth, s)):
        one = found.priced(setting, batch)
        rows.append(
            [
                str(setting),
                f"{one.tokens_per_round:.2f}",
                f"{1000 * one.round_seconds:.1f}",
                f"{one.speed:.1f}",
                f"{found.speedup(setting, batch):.2f}",
                "" if setting == PLAIN else str(spread(found, setting, batch)),
                *(f"{found.speedup(setting, size):.2f}" for size in BATCHES),
            ]
        )
    head = ["setting", "tokens a round", "ms a round", "tok/s", "x plain", "range", *(f"x at {n}" for n in BATCHES)]
    return table(head, rows)
