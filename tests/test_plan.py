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
from outrider.drafters.model import ModelDrafter
from outrider.drafters.recycle import RecycleDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.errors import OptionError, PromptError
from outrider.files import check_writable
from outrider.planner.forced import check_replayable, forced
from outrider.planner.predict import BATCHES, Table
from outrider.planner.profile import Profile, load_profile
from outrider.planner.replay import PLAIN, Rounds, Setting, TextLogits, replay_chain, replay_free
from outrider.planner.report import report
from outrider.planner.run import run_plan
from outrider.planner.traffic import Sample, read_traffic
from outrider.planner.work import Work
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
        told = replay_free(make(), sample, Setting(make.name, depth, depth), WORLD.target(), None)
        stats = real(make(), sample, depth, depth)
        assert (told.tokens, told.rounds, told.nodes) == (stats.delivered, stats.rounds, stats.proposed)
        assert sum(told.kept) == stats.accepted


def test_a_replay_of_a_drafter_that_watches_logits_is_close():
    """It learns less than in a real run: of nodes off the kept path the target's opinion is not known."""
    target = WORLD.target()
    for sample in samples():
        setting = Setting("recycle", 4, 8)
        told = replay_free(RecycleDrafter(), sample, setting, target, TextLogits(target, sample))
        stats = real(RecycleDrafter(), sample, 4, 8)
        assert told.tokens == stats.delivered
        assert stats.rounds <= told.rounds <= 1.3 * stats.rounds


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
    assert len(done.verified) == 5
    assert all(one.tokens == 2 * LENGTH for one in done.verified)
    assert done.profile.policy in ("auto", "fixed")
    page = report(done)
    for words in ("Speed-up by kind", "Speed-up by batch size", "Acceptance by position", "Where the time goes"):
        assert words in page
    assert page.count("<svg") >= 5
    assert not re.search(r"(src|href)=|@import|url\(", page)
    assert all(f"x at {size}" in page for size in BATCHES)


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


PROFILE = Profile("t", ("lookup:max_ngram=4",), "fixed", "lookup", 6, 6)


def test_a_profile_survives_its_file(tmp_path):
    PROFILE.save(tmp_path / "p.json")
    assert load_profile(tmp_path / "p.json") == PROFILE
    assert PROFILE.make_policy() == FixedPolicy("lookup", 6, 6)
    assert PROFILE.make_drafters()["lookup"].max_ngram == 4


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
    assert "round 1: kept" in told.err
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
