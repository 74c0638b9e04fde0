"""The planner on toys: replays equal real runs, prices follow costs, profiles and reports hold what they say."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import World
from helpers_cli import outrider
from helpers_models import llama, save_model
from helpers_speed import quick
from outrider import Engine
from outrider.api import drafters_by_name
from outrider.calibrate.rounds import TIMED
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.mix import MixDrafter
from outrider.drafters.model import ModelDrafter
from outrider.drafters.recycle import RecycleDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.errors import OptionError, PromptError
from outrider.files import check_writable
from outrider.planner.chance import gain, spread
from outrider.planner.forced import check_replayable, forced
from outrider.planner.predict import BATCHES, Table
from outrider.planner.profile import Profile, load_profile
from outrider.planner.recommend import advise
from outrider.planner.replay import PLAIN, Rounds, Setting, TextLogits, replay_chain, replay_run
from outrider.planner.report import report
from outrider.planner.run import run_plan
from outrider.planner.traffic import Sample, read_traffic
from outrider.planner.verify import Verified, groups_of, pace_note
from outrider.planner.ways import one_answer_tells, replay, settings_of, without_passes
from outrider.planner.work import Work
from outrider.policy.base import PlanView
from outrider.policy.cost_model import CostModel, DraftCost
from outrider.policy.fixed import FixedPolicy

LENGTH = 48
WORLD = World()


@pytest.fixture(autouse=True)
def _quick():
    with quick():
        yield


def samples(count=3):
    target = WORLD.target()
    engine = Engine(target)
    written = [engine.generate(p, **TIMED, max_new_tokens=LENGTH).token_ids for p in WORLD.prompts(count)]
    return [
        Sample(f"s{i}", "even" if i % 2 == 0 else "odd", tuple(p), tuple(a))
        for i, (p, a) in enumerate(zip(WORLD.prompts(count), written, strict=True))
    ]


def real(drafter, sample, depth, nodes):
    engine = Engine(WORLD.target(), drafter, policy=FixedPolicy(drafter.name, depth, nodes))
    done = engine.generate(list(sample.prompt), **TIMED, max_new_tokens=LENGTH)
    assert done.token_ids == sample.answer
    return done.stats


@pytest.mark.parametrize("make", [LookupDrafter, SuffixDrafter])
@pytest.mark.parametrize("depth", [1, 4, 9])
def test_a_replay_counts_what_a_real_run_does(make, depth):
    for sample in samples():
        told = replay_run(make(), sample, Setting(make.name, depth, depth), WORLD.target(), None)
        stats = real(make(), sample, depth, depth)
        assert (told.tokens, told.rounds, told.nodes) == (stats.delivered, stats.rounds, stats.proposed)
        assert sum(told.kept) == stats.accepted


def test_a_replay_of_a_drafter_that_watches_logits_is_close():
    """It does not learn the same as a real run: of nodes off the kept path the target's opinion is not known."""
    target = WORLD.target()
    for sample in samples():
        setting = Setting("recycle", 4, 8)
        told = replay_run(RecycleDrafter(), sample, setting, target, TextLogits(target, sample))
        stats = real(RecycleDrafter(), sample, 4, 8)
        assert told.tokens == stats.delivered
        assert 0.9 * stats.rounds <= told.rounds <= 1.3 * stats.rounds


@pytest.mark.parametrize("depth", [1, 3, 6])
def test_a_draft_model_is_asked_at_every_place_and_counts_what_a_real_run_does(depth):
    target = WORLD.target()
    for sample in samples():
        drafter = ModelDrafter(WORLD.draft())
        Engine(target, drafter)
        right = forced("model", drafter, sample, target)
        text = [*sample.prompt, *sample.answer]
        choices = [int(WORLD.draft_logits(text[:end]).argmax()) for end in range(len(sample.prompt), len(text))]
        assert right == [choice == token for choice, token in zip(choices, sample.answer, strict=True)]
        told = replay_chain(right, depth)
        stats = real(ModelDrafter(WORLD.draft()), sample, depth, depth)
        assert (told.tokens, told.rounds, told.nodes) == (stats.delivered, stats.rounds, stats.proposed)
        assert sum(told.kept) == stats.accepted


COSTS = CostModel(
    ((1, 0.1), (2, 0.11), (8, 0.2), (64, 1.0)),
    100,
    drafters={"lookup": DraftCost(True, ask=0.001), "model": DraftCost(False, level=0.03)},
)


def test_prices_follow_the_costs():
    found = {
        PLAIN: {"a": Rounds(100, 100, 0, 0)},
        Setting("model", 4, 4): {"a": Rounds(100, 25, 100, 100, (25, 20, 18, 12), 25)},
        Setting("lookup", 4, 4): {"a": Rounds(100, 80, 40, 40, (8, 6, 4, 2), 80)},
    }
    table = Table([Sample("a", "x", (1,) * 60, (1,) * 80)], found, COSTS)
    one = table.priced(Setting("model", 4, 4))
    assert one.tokens_per_round == 4
    assert one.draft == pytest.approx(4 * 0.03)
    assert one.score == pytest.approx(COSTS.pass_seconds(5))
    assert table.speedup(Setting("model", 4, 4)) == pytest.approx(4 / (one.draft + one.score) * 0.1)
    assert table.ranked()[0] == Setting("model", 4, 4)
    assert table.best_of_each(16)[0].drafter in ("lookup", "none")
    assert table.acceptance(Setting("lookup", 4, 4)) == [0.1, 0.075, 0.05, 0.025]


def planned(tmp_path=None, **options):
    target = WORLD.target(max_rows=4)
    drafters = {"lookup": LookupDrafter(), "suffix": SuffixDrafter()}
    Engine(target, drafters)
    work = Work(tmp_path and tmp_path / "x.work.json", {"a": 1})
    bare = [Sample(s.id, s.kind, s.prompt) for s in samples()]
    return run_plan(
        target, drafters, ["lookup", "suffix"], bare, COSTS, work, max_new_tokens=LENGTH, num_verified=2, **options
    )


def test_a_plan_from_beginning_to_end():
    done = planned()
    assert done.sound
    assert {one.name for one in done.verified} >= {"plain", "auto"}
    assert done.profile.about["why"]
    assert len(done.verified) == 5
    assert all(one.tokens == 2 * LENGTH for one in done.verified)
    assert done.profile.policy in ("auto", "fixed")
    page = report(done)
    for words in ("Speed-up by kind", "Speed-up by batch size", "Acceptance by position", "Where the time goes"):
        assert words in page
    assert page.count("<svg") >= 5
    assert not re.search(r"(src|href)=|@import|url\(", page)
    assert all(f"x at {size}" in page for size in BATCHES)
    assert all(f"<td>{setting}</td>" in page for setting in done.table.found)


def test_an_interrupt_keeps_the_work(tmp_path):
    seen = []

    def stop(words):
        seen.append(words)
        if words.startswith("replaying suffix: 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        planned(tmp_path, on_step=stop)
    calls = []
    work = Work(tmp_path / "x.work.json", {"a": 1})
    assert work.resumed >= 3 + 3 + 1  # answers, lookup, one of suffix
    assert work.once("replay suffix s0", lambda: calls.append(1)) is not None
    assert not calls
    assert Work(tmp_path / "x.work.json", {"a": 2}).resumed == 0
    assert planned(tmp_path).sound


def test_traffic_is_read_with_answers_in_every_form(tmp_path):
    file = tmp_path / "log.jsonl"
    lines = [
        {"token_ids": [1, 2], "answer_token_ids": [3, 4, 5], "kind": "a"},
        {"token_ids": [1, 2, 3]},
        {"token_ids": [1] * 5000},
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    read = read_traffic(str(file), WORLD.target(), limit=None, max_new_tokens=2)
    assert [(s.prompt, s.answer, s.recorded) for s in read] == [((1, 2), (3, 4), True), ((1, 2, 3), (), False)]
    with pytest.raises(PromptError, match="leaves room"):
        read_traffic(str(file), WORLD.target(max_length=3), limit=None, max_new_tokens=2)


@pytest.mark.parametrize("make", [lambda: MixDrafter("suffix+lookup"), lambda: MixDrafter("suffix+recycle")])
def test_a_mix_is_replayed_for_real_and_scores_only_what_it_drafts(make):
    """Not as a model whose chains are always full, which made every mix look dear."""
    target, mix = WORLD.target(), make()
    assert without_passes(mix)
    assert not one_answer_tells(mix)
    Engine(target, mix)
    settings = settings_of("mix", mix)
    assert {s.max_nodes > s.max_depth for s in settings} == {False, True}
    for sample in samples():
        for setting, told in zip(settings, replay(mix, sample, settings, target), strict=True):
            assert told.tokens == len(sample.answer)
            assert told.nodes < told.rounds * setting.max_nodes
        setting = Setting("mix", 4, 12)
        told, stats = replay(mix, sample, [setting], target)[0], real(make(), sample, 4, 12)
        assert told.rounds == pytest.approx(stats.rounds, rel=0.35)  # less is known of nodes off the kept path
    with_model = MixDrafter([SuffixDrafter(), ModelDrafter(WORLD.draft())])
    assert not without_passes(with_model)
    assert len(settings_of("mix", with_model)) < len(settings)


def test_a_draft_models_level_costs_more_for_more_rows():
    costs = replace(COSTS, drafters={"model": DraftCost(False, level=0.03, level_row=0.01)}, overhead_row=0.002)
    table = table_of({"a": Rounds(100, 25, 100, 100, (25,), 25)}, costs)
    one, four = (table.priced(Setting("model", 4, 4), batch) for batch in (1, 4))
    assert one.draft == pytest.approx(4 * 0.03)
    assert four.draft == pytest.approx(4 * 0.06)
    assert four.rest == pytest.approx(one.rest + 3 * 0.002)


def table_of(found, costs=COSTS):
    plain = {name: Rounds(one.tokens, one.tokens, 0, 0) for name, one in found.items()}
    few = [Sample(name, "x", (1,) * 60, (1,) * 80) for name in found]
    return Table(few, {PLAIN: plain, Setting("model", 4, 4): found}, costs)


SURE = {f"s{i}": Rounds(100, 25 + i % 3, 100, 100, (25,), 25) for i in range(8)}  # about four tokens a round
MIXED = {f"s{i}": Rounds(100, n, 4 * n, 4 * n, (20,), n) for i, n in enumerate((25, 45) * 4)}  # every other one gains
LOSS = {f"s{i}": Rounds(100, 95, 380, 380, (5,), 95) for i in range(8)}


def test_a_prediction_is_recommended_only_if_it_holds_in_resampled_traffic():
    model = Setting("model", 4, 4)
    seen = spread(table_of(SURE), model)
    assert 1 < seen.low < table_of(SURE).speedup(model) < seen.high
    assert advise(table_of(SURE), [], 1).setting == model
    assert spread(table_of(MIXED), model).high - spread(table_of(MIXED), model).low > seen.high - seen.low
    assert advise(table_of(MIXED), [], 1).setting is None
    assert "beyond its error" in advise(table_of(MIXED), [], 1).why
    assert advise(table_of(LOSS), [], 1).setting == PLAIN
    few = {name: SURE[name] for name in ("s0", "s1")}
    assert "too little text" in advise(table_of(few), [], 1).why
    assert str(spread(table_of({"s0": SURE["s0"]}), model)) == "unknown"


def ran(name, *speeds, differs=()):
    return Verified(
        name, 100, 50, 100 / speeds[0], differs=list(differs), speeds=dict(zip("abcdef", speeds, strict=False))
    )


def test_real_runs_decide_only_beyond_their_error():
    model, table = Setting("model", 4, 4), table_of(SURE)
    plain, auto = ran("plain", 10, 11, 9, 10), ran("auto", 15, 16.4, 13.6, 15)
    clear, noise = ran(str(model), 20, 21, 19, 20), ran(str(model), 16, 12, 20, 14)
    assert advise(table, [plain, auto, clear], 1).setting == model
    told = advise(table, [plain, auto, noise], 1)
    assert told.setting is None
    assert "beyond its error" in told.why
    assert advise(table, [plain, auto, replace(clear, differs=["s0"])], 1).setting is None
    assert advise(table, [ran("plain", 10), ran("auto", 15), ran(str(model), 20)], 1).setting is None  # one run
    slow = ran("auto", 8, 8.8, 7.2, 8.1)
    assert advise(table, [plain, slow, ran(str(model), 9, 9.9, 8.1, 9)], 1).setting == PLAIN


def test_gains_are_compared_pair_by_pair():
    found = gain({"a": 20.0, "b": 2.1, "c": 9.0}, {"a": 10.0, "b": 1.0, "d": 1.0})
    assert (found.pairs, found.sure) == (2, True)
    assert found.ratio == pytest.approx((2.0 * 2.1) ** 0.5)
    assert not gain({"a": 20.0}, {"a": 10.0}).sure
    assert not gain({}, {"a": 10.0}).sure


@pytest.mark.parametrize(("count", "size", "groups"), [(4, 1, [1] * 4), (4, 2, [2, 2]), (3, 2, [2]), (2, 8, [5])])
def test_real_runs_are_as_wide_as_the_plan(count, size, groups):
    few = [Sample(f"s{i}", "x", (1,), (1,)) for i in range(5)]
    assert [len(group) for group in groups_of(few, count, size)] == groups


def test_a_plan_for_several_requests_runs_them_together():
    done = planned(batch=2)
    assert done.sound
    assert all(one.tokens == 2 * LENGTH for one in done.verified)
    assert all(list(one.speeds) == ["s0+s1"] for one in done.verified)


PROFILE = Profile("t", ("lookup:max_ngram=4",), "fixed", "lookup", 6, 6)


def test_a_profile_survives_its_file(tmp_path):
    PROFILE.save(tmp_path / "p.json")
    assert load_profile(tmp_path / "p.json") == PROFILE
    assert PROFILE.make_policy() == FixedPolicy("lookup", 6, 6)
    assert PROFILE.make_drafters()["lookup"].max_ngram == 4


def test_a_request_to_a_fixed_profile_gets_another_drafter_as_deep_as_that_prefers():
    both = replace(PROFILE, drafters=("lookup", "suffix"))
    policy = both.make_policy()
    plans = policy.plan([PlanView(0, 10, 0, 50, 0.0), PlanView(1, 10, 0, 50, 0.0, wanted_drafter="suffix")])
    shapes = [(one.drafter, one.max_depth, one.max_nodes) for one in plans]
    suffix = SuffixDrafter
    assert shapes == [
        ("lookup", 6, 6),
        ("suffix", suffix.preferred_depth, suffix.preferred_nodes or suffix.preferred_depth),
    ]


def test_a_profile_makes_its_drafters_once(monkeypatch):
    made = []
    monkeypatch.setattr("outrider.planner.profile.drafters_by_name", lambda specs: made.append(specs) or {})
    profile = replace(PROFILE, drafter="none", drafters=())
    profile.make_drafters()
    profile.make_policy()
    assert len(made) == 1


BAD = {
    "no file": (None, "cannot read the profile"),
    "no json": ("{", "not JSON"),
    "no object": ("[]", "not an object"),
    "unknown key": ('{"polcy": "auto"}', "unknown key 'polcy'; did you mean 'policy'"),
    "missing key": ('{"version": 1, "target": "t", "drafters": []}', "has no 'policy'"),
    "other version": ('{"version": 9, "target": "t", "drafters": [], "policy": "auto"}', "version 9"),
    "other policy": ('{"version": 1, "target": "t", "drafters": [], "policy": "bold"}', "'bold'"),
    "half fixed": ('{"version": 1, "target": "t", "drafters": [], "policy": "fixed"}', "needs a drafter"),
    "no list": ('{"version": 1, "target": "t", "drafters": "lookup", "policy": "auto"}', "must be a list"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_profile_is_one_clear_line(tmp_path, name):
    content, message = BAD[name]
    if content is not None:
        (tmp_path / "p.json").write_text(content)
    with pytest.raises(OptionError, match=re.escape(message)):
        load_profile(tmp_path / "p.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"), llama())


def test_the_commands_plan_and_generate_with_the_profile(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    log, out, html = tmp_path / "log.jsonl", tmp_path / "profile.json", tmp_path / "report.html"
    log.write_text("\n".join(json.dumps({"prompt": f"w{i} w2 w3 w2 w3", "kind": "x"}) for i in range(3)))
    words = ["plan", "--target", folder, "--traffic", str(log), "--out", str(out), "--html", str(html)]
    seen = outrider(*words, "--max-new-tokens", "24", "--verify", "1", "--seconds", "0.3")
    assert seen.code == 0, seen.err
    assert "recommended:" in seen.out
    assert "<svg" in html.read_text("utf-8")
    assert load_profile(out).target == folder
    again = outrider(*words, "--max-new-tokens", "24", "--verify", "1", "--seconds", "0.3")
    assert "finished steps" in again.err
    told = outrider("generate", "w1 w2 w3", "--profile", str(out), "--max-new-tokens", "9", "--explain-policy")
    assert told.code == 0, told.err
    assert "kept" in told.err
    assert "round" in told.err
    plain = outrider("generate", "w1 w2 w3", "--target", folder, "--max-depth", "0", "--max-new-tokens", "9")
    assert told.out == plain.out
    assert "leave out --drafter" in outrider("generate", "w1", "--profile", str(out), "--drafter", "suffix").error
    assert "plan again for that one" in outrider("generate", "w1", "--profile", str(out), "--target", "other").error
    assert "leave out --policy" in outrider("serve", "--profile", str(out), "--policy", "auto").error


PLAN_BAD = {
    "no drafter": (["--drafters", ","], "no drafter to plan with"),
    "misspelt drafter": (["--drafters", "lokup"], "did you mean 'lookup'"),
    "no batch": (["--batch", "0"], "batch is 0"),
    "no file": (["--traffic", "/nowhere.jsonl"], "/nowhere.jsonl"),
}


@pytest.mark.parametrize("name", PLAN_BAD)
def test_bad_plans_are_one_line(name, folder):
    words, message = PLAN_BAD[name]
    given = [] if "--traffic" in words else ["--traffic", "own"]
    assert message in outrider("plan", "--target", folder, *given, *words).error


@pytest.mark.real
@pytest.mark.slow
def test_a_real_model_is_planned_for(models, tmp_path, monkeypatch):
    """SmolLM2 on two of the own prompts: predictions within 30 % of what was measured, texts equal."""
    models("smollm2-135m")
    out, html = tmp_path / "profile.json", tmp_path / "report.html"
    words = ["plan", "--traffic", "own", "--drafters", "lookup,suffix", "--out", str(out), "--html", str(html)]
    seen = outrider(*words, "--num-samples", "3", "--verify", "2", "--max-new-tokens", "64", "--json")
    assert seen.code == 0, seen.err
    profile = load_profile(out)
    assert profile.about["measured_tokens_per_second"] >= 0.9 * profile.about["measured_plain"]
    assert "DIFFERS" not in html.read_text("utf-8")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (5, "is 5"),
        (True, "is True"),
        ({"x": 1}, "must be text"),
        (["a"], "'a'"),
        ([1, 99999], "99999"),
        ([1.5], "1.5"),
        ([-3], "-3"),
    ],
)
def test_an_answer_that_is_none_is_refused_by_name(answer: object, said: str, tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    path.write_text(json.dumps({"id": "odd", "token_ids": [1, 2], "answer": answer}), "utf-8")
    with pytest.raises(PromptError, match=re.escape(said)):
        read_traffic(path, WORLD.target(), limit=4, max_new_tokens=8)


@pytest.mark.parametrize("spec", ["self", "mix:self+suffix"])
def test_a_drafter_that_cannot_be_replayed_is_refused(spec: str) -> None:
    with pytest.raises(OptionError, match="outrider sweep"):
        check_replayable(drafters_by_name([spec]))
    check_replayable(drafters_by_name(["suffix", "mix:suffix+recycle", "lookup"]))


def test_a_profile_names_one_of_its_own_drafters() -> None:
    with pytest.raises(OptionError, match="'nosuch', which is none of its drafters"):
        replace(PROFILE, drafter="nosuch")


@pytest.mark.parametrize("option", ["--out", "--html"])
def test_a_plan_that_cannot_be_written_is_not_begun(option: str, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "x"):
        with pytest.raises(OptionError, match=option):
            check_writable(path, option)
    check_writable(tmp_path / "x", option)
    check_writable(None, option)


def test_a_pace_that_was_not_calibrated_is_told() -> None:
    plain = Verified("plain", tokens=30, seconds=1.0, predicted=10.0)
    assert "3.00 times the predicted speed" in pace_note([plain])
    assert not pace_note([replace(plain, predicted=28.0)])
    assert not pace_note([])
