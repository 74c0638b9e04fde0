"""Calibration: what is measured, kept, found again, and compared with real rounds; on toys, whose clock is real."""

import json

import pytest

from helpers import World
from helpers_cli import outrider
from helpers_models import llama, save_model
from helpers_speed import quick
from outrider import Engine
from outrider.calibrate.check import Checked, check, mean_error
from outrider.calibrate.passes import PassTimer
from outrider.calibrate.run import calibrated
from outrider.calibrate.store import describe, find, folder, key_of
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.model import ModelDrafter
from outrider.errors import OptionError
from outrider.policy.auto import AutoPolicy
from outrider.policy.cost_model import CostModel, DraftCost
from outrider.policy.records import DrafterShape


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    with quick():
        yield


class Slow:
    """A target whose pass takes a told number of seconds: the clock is replaced, so nothing is waited for."""

    def __init__(self, monkeypatch, seconds):
        self.inner, self.now = World().target(), 0.0
        self.info, self.tokenizer = self.inner.info, None
        for name in ("prefill", "truncate", "copy", "length", "free", "commit"):
            setattr(self, name, getattr(self.inner, name))
        self.seconds = seconds
        monkeypatch.setattr("time.perf_counter", lambda: self.now)

    def score(self, packed, want=None, hidden_layers=()):
        rows = len(packed.row_ids)
        context = int(packed.positions[0])
        self.now += self.seconds(packed.num_nodes, rows, context)
        return self.inner.score(packed, want)


def test_passes_are_measured_by_width_rows_and_context(monkeypatch):
    slow = Slow(
        monkeypatch, lambda n, rows, t: 1 + 0.1 * n + (n > 8) + 0.05 * (rows - 1) + (0.001 * rows + 0.0002 * n) * t
    )
    passes = PassTimer(slow, list(range(8)), 10_000.0, max_context=100).run()
    costs = CostModel(tuple(passes.table.items()), passes.context, passes.row, passes.row_token, passes.node_token)
    assert passes.context == 100
    assert (passes.row_token, passes.node_token) == pytest.approx((0.001, 0.0002))
    assert passes.row == pytest.approx(0.05 + 100 * 0.001)  # and reading what the row holds
    for nodes, rows, context in [(1, 1, 100), (8, 1, 100), (9, 1, 200), (4, 3, 300), (2, 2, 10)]:
        told = costs.pass_seconds(nodes, rows, context)
        assert told == pytest.approx(slow.seconds(nodes, rows, context), rel=1e-6), (nodes, rows, context)


def test_little_time_measures_few_widths_but_two_at_least(monkeypatch):
    slow = Slow(monkeypatch, lambda n, rows, t: 5.0)
    passes = PassTimer(slow, list(range(8)), 1.0, max_context=64).run()
    assert 2 <= len(passes.table) <= 3
    assert not any(slow.length(row) for row in range(slow.info.max_rows))


def test_what_was_measured_is_kept_and_found_again():
    target, drafter = World().target(max_rows=4), LookupDrafter()
    drafters = {"lookup": drafter}
    steps = []
    first = calibrated(target, drafters, seconds=0.3, on_step=steps.append)
    assert steps
    assert len(list(folder().iterdir())) == 1
    again = calibrated(target, drafters, seconds=0.3, on_step=lambda words: pytest.fail(words))
    assert again.costs == first.costs
    assert first.costs.drafters[describe(drafter)].ask > 0
    assert find(World().target(max_length=99)) is None


def test_a_new_drafter_joins_without_timing_the_target_again():
    world = World()
    target = world.target(max_rows=4)
    first = calibrated(target, {"lookup": LookupDrafter()}, seconds=0.3)
    model = ModelDrafter(world.draft(max_rows=4))
    second = calibrated(target, {"lookup": LookupDrafter(), "model": model}, seconds=0.3)
    assert second.costs.table == first.costs.table
    cost = second.for_drafters({"model": model}).drafters["model"]
    assert not cost.free
    assert cost.level > 0
    assert cost.level_row >= 0
    assert cost.seconds(4, 3) == pytest.approx(4 * (cost.level + 2 * cost.level_row))


def test_a_draft_model_by_name_is_read_once_however_often_it_is_bound(monkeypatch):
    world, loads = World(), []
    monkeypatch.setattr(
        "outrider.drafters.model.load_target",
        lambda name, max_rows, **_: loads.append(name) or world.draft(max_rows=max_rows),
    )
    drafter = ModelDrafter("some/model")
    for _ in range(2):
        calibrated(world.target(max_rows=4), {"model": drafter}, seconds=0.1, fresh=True)
    assert loads == ["some/model"]
    Engine(world.target(max_rows=8), drafter)
    assert len(loads) == 2, "more rows than it has"


def test_a_file_that_cannot_be_read_counts_as_none():
    target = World().target()
    found = calibrated(target, {}, seconds=0.2)
    (path,) = folder().iterdir()
    for content in ("", "{}", "[1]", json.dumps({"key": 1, "date": "", "costs": {"table": [[1, 0]], "context": 1}})):
        path.write_text(content)
        assert find(target) is None
    assert found.key == key_of(target)


def test_the_policy_begins_with_what_was_measured():
    costs = CostModel(((1, 0.1), (8, 0.4)), 100, drafters={"d": DraftCost(False, level=0.09, read=0.01)})
    policy = AutoPolicy({"d": DrafterShape()}, costs)
    assert policy._pass.of(8) == pytest.approx(0.4, rel=0.05)
    assert policy._records["d"].level.value == pytest.approx(0.09)


def test_the_check_compares_settings():
    target, drafters = World().target(max_rows=4), {"lookup": LookupDrafter()}
    costs = calibrated(target, drafters, seconds=0.3).for_drafters(drafters)
    checked = check(target, drafters, costs, seconds=0.5)
    assert {one.setting for one in checked} == {"plain", *(f"lookup, depth {depth}" for depth in (2, 5, 8))}
    assert {one.num_rows for one in checked} == {1, 2, 3}
    assert len({round(one.context, -1) for one in checked}) > 3
    assert all(one.measured > 0 and one.predicted > 0 for one in checked)
    assert mean_error([Checked("", 1, 9, 1, 1.1, 1.0), Checked("", 1, 9, 1, 0.8, 1.0)]) == pytest.approx(0.15)


@pytest.mark.parametrize("table", [(), ((1, 0.1),), ((2, 0.1), (1, 0.2)), ((1, 0.0), (2, 0.1))])
def test_a_table_that_is_none_is_refused(table):
    with pytest.raises(OptionError, match="cost table"):
        CostModel(table, 100)


def test_a_cost_model_survives_json():
    costs = CostModel(((1, 0.1), (8, 0.4)), 100, 0.1, 0.2, 0.3, 0.4, 0.5, {"d": DraftCost(True, ask=0.01)})
    assert CostModel.from_dict(json.loads(json.dumps(costs.to_dict()))) == costs


def test_the_command(tmp_path):
    folder = save_model(tmp_path / "model", llama())
    words = ["calibrate", "--target", folder, "--drafter", "lookup", "--seconds", "0.2"]
    seen = outrider(*words, "--check")
    assert seen.code == 0, seen.err
    assert "pass by width" in seen.out
    assert "mean absolute error" in seen.out
    told = json.loads(outrider(*words, "--json").out)
    assert told["costs"]["table"]
    assert "seconds is -1.0" in outrider("calibrate", "--seconds", "-1").error
