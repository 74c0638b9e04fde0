"""The automatic policy in simulated worlds whose costs and survival are known (helpers_policy.py): never far from the
best fixed setting, better than any single one where the text changes, never slower than plain decoding."""

import math
import random

import pytest

from helpers_policy import Cost, Machine, Style, Text, simulate, write
from helpers_speed import quick
from outrider.policy.auto import AutoPolicy
from outrider.policy.base import Offer, PlanView
from outrider.policy.cost_model import CostModel, DraftCost
from outrider.policy.costs import PassCost
from outrider.policy.cut import best_cut, survivals
from outrider.policy.fixed import FixedPolicy
from outrider.policy.hope import Hope
from outrider.policy.records import DrafterShape
from outrider.policy.warmth import Warmth
from outrider.simulate import growth_curve
from outrider.types import Asked, Judged, PhaseSeconds, RoundStats, RowRound

FLAT = growth_curve([(8, 1.1), (32, 1.4)])
STEEP = growth_curve([(2, 1.25), (4, 1.5), (5, 2.0), (8, 2.4), (9, 3.0), (16, 3.6), (32, 6.5)])
SHAPES = {"lookup": DrafterShape(free=True), "model": DrafterShape()}

COPY = {"lookup": Style(0.97, 0.15, stay=40, gap=6, offers=0.5), "model": Style(0.95, says=True)}
CODE = {"lookup": Style(0.9, 0.2, stay=8, gap=8, offers=0.6), "model": Style(0.9, says=True)}
CHAT = {"lookup": Style(0.6, 0.05, stay=3, gap=25, offers=0.5), "model": Style(0.7, says=True)}
NOISE = {"lookup": Style(0.02, offers=0.8), "model": Style(0.05, says=True)}
KINDS = {"copy": COPY, "code": CODE, "chat": CHAT, "noise": NOISE}

LAPTOP = {"lookup": Cost(ask=0.002), "model": Cost(level=0.25, read=0.01)}
SERVER = {"lookup": Cost(ask=0.001), "model": Cost(level=0.08, read=0.001)}
LINEAR = growth_curve([(2, 1.07), (4, 1.41), (8, 2.48), (16, 4.53), (32, 9.1)])
AVX2 = {"lookup": Cost(ask=0.007), "model": Cost(level=0.35, read=0.01)}
MACHINES = {"laptop": (STEEP, LAPTOP), "server": (FLAT, SERVER), "avx2": (LINEAR, AVX2)}


@pytest.fixture(autouse=True)
def _quick():
    with quick():
        yield


def machine(name, seed=5):
    curve, drafters = MACHINES[name]
    return Machine(curve, drafters, seed=seed)


def texts(kind, count=16, length=100, seed=1):
    return [write(KINDS[kind], length, seed=1000 * seed + index) for index in range(count)]


def fixed_speeds(name, given, num_rows=1, depths=(1, 2, 3, 4, 6, 8, 12, 16)):
    """Every fixed setting: plain, and each drafter at each depth."""
    settings = [("none", 0)] + [(drafter, depth) for drafter in SHAPES for depth in depths]
    return {s: simulate(machine(name), FixedPolicy(*s), given, num_rows=num_rows).speed for s in settings}


# Bounds with stalls of the machine; docs/policy.md has what is reached without. Goals: 0.97 and 0.95.
NEVER_SLOWER, NEAR_BEST = 0.95, 0.86
QUICK = [("laptop", "code", 1), ("laptop", "noise", 1), ("server", "copy", 1), ("server", "code", 8)]
CELLS = [(name, kind, rows) for name in MACHINES for kind in KINDS for rows in (1, 8)]


@pytest.mark.parametrize(
    ("name", "kind", "num_rows"),
    [pytest.param(*cell, marks=() if cell in QUICK else pytest.mark.slow) for cell in CELLS],
)
def test_close_to_the_best_fixed_setting_and_not_slower_than_plain(name, kind, num_rows):
    given = texts(kind, count=12 if num_rows == 1 else 36)
    found = simulate(machine(name), AutoPolicy(SHAPES), given, num_rows=num_rows).speed
    fixed = fixed_speeds(name, given, num_rows)
    assert found >= NEVER_SLOWER * fixed["none", 0]
    assert found >= NEAR_BEST * max(fixed.values()), max(fixed, key=fixed.__getitem__)


@pytest.mark.parametrize("name", ["laptop", pytest.param("server", marks=pytest.mark.slow)])
def test_a_stream_that_changes_kind_beats_every_single_fixed_setting(name):
    stream = [text for kind in KINDS for text in texts(kind, 20, 60, seed=2)]
    found = simulate(machine(name), AutoPolicy(SHAPES), stream).speed
    fixed = fixed_speeds(name, stream, depths=(1, 2, 3, 4, 5, 6, 8))
    assert found > max(fixed.values()), max(fixed, key=fixed.__getitem__)


def test_the_first_request_of_a_process_pays_little_for_learning():
    """One short request, costs measured but survival unknown, and a dear draft model that must read the prompt."""
    for kind, least in (("noise", 0.92), ("chat", 0.93)):
        ratios = []
        for seed in range(8):
            given = texts(kind, 1, 64, seed=seed)
            plain = simulate(machine("laptop"), FixedPolicy("none", 0), given).speed
            ratios.append(simulate(machine("laptop"), AutoPolicy(SHAPES, known_costs()), given).speed / plain)
        assert sum(ratios) / len(ratios) >= least, (kind, ratios)


def known_costs():
    table = tuple((width, STEEP(width)) for width in (1, 2, 4, 5, 8, 9, 16, 32))
    costs = {name: DraftCost(name == "lookup", cost.ask, cost.level, cost.read) for name, cost in LAPTOP.items()}
    return CostModel(table, 256, overhead=0.01, drafters=costs)


def easy_and_hard(length, seed):
    """A text that is easy and hard in turn: there the target's own layers have it right, here only the model has."""
    coins, easy, left = random.Random(seed), True, 0
    hits, says = {"self": [], "model": []}, {"self": [], "model": []}
    for _ in range(length + 64):
        if left == 0:
            easy, left = not easy, coins.randint(20, 40)
        left -= 1
        for name, chances in {"self": (0.15, 0.97), "model": (0.85, 0.95)}.items():
            chance = chances[easy]
            says[name].append(min(0.99, max(0.01, coins.betavariate(6 * chance + 0.3, 6 * (1 - chance) + 0.3))))
            hits[name].append(coins.random() < says[name][-1])
    return Text(hits, {name: [True] * (length + 64) for name in hits}, says, length)


def test_the_cheap_self_where_the_text_is_easy_and_the_model_where_it_is_not():
    """Both are used, and the two together beat every fixed setting of either; alone, each follows the text too."""
    costs = {"self": Cost(level=0.05), "model": Cost(level=0.22, read=0.005)}
    given = [easy_and_hard(150, seed) for seed in range(24)]

    def speed(policy):
        return simulate(Machine(FLAT, costs), policy, given).speed

    policy, used = AutoPolicy({"self": DrafterShape(), "model": DrafterShape()}), dict.fromkeys(costs, 0)
    observe = policy.observe

    def count(stats):
        for row in stats.rows:
            if row.proposed:
                used[row.drafter] += 1
        observe(stats)

    policy.observe = count
    found = speed(policy)
    fixed = {(name, depth): speed(FixedPolicy(name, depth)) for name in costs for depth in (2, 3, 4, 5, 6, 8)}
    assert found > max(fixed.values())
    assert min(used.values()) > 0.1 * sum(used.values()), used
    alone = speed(AutoPolicy({"self": DrafterShape()}))
    assert alone > 1.03 * max(value for (name, _), value in fixed.items() if name == "self")


def test_rows_of_one_batch_get_different_drafters():
    """Each row's text suits another of two drafters that cost passes."""
    costs = {"one": Cost(level=0.05), "two": Cost(level=0.05)}
    policy, pairs = AutoPolicy({"one": DrafterShape(), "two": DrafterShape()}), set()
    styles = [{"one": Style(0.95), "two": Style(0.02)}, {"one": Style(0.02), "two": Style(0.95)}]
    plan = policy.plan

    def watched(views):
        plans = plan(views)
        if len(views) == 2 and views[0].num_written > 100:
            pairs.add(tuple(one.drafter for one in plans))
        return plans

    policy.plan = watched
    simulate(Machine(growth_curve([(64, 1.05)]), costs), policy, [write(style, 400, 3) for style in styles], num_rows=2)
    assert ("one", "two") in pairs


def test_entropy_tells_requests_of_one_temperature_apart():
    """At temperature 1 drafts survive where the text is certain. Of two new requests that wrote a few tokens without
    any draft, the one whose tokens were certain is drafted for, and the other is not."""
    policy, coins = AutoPolicy({"model": DrafterShape(level=0.2)}), random.Random(4)
    for number in range(160):
        for place in range(2):
            one_round(policy, number, place, (0.02, 1.5)[number % 2], coins)
        policy.end(number)
    depths = {}
    for number, entropy in ((1000, 0.02), (1001, 1.5)):
        for place in range(3):
            policy.plan([PlanView(number, 50 + place, place, 100, 1.0)])
            row = RowRound(number, "none", 0, 0, 1, 0, 51 + place, {}, entropy)
            policy.observe(RoundStats((row,), PhaseSeconds(score=1.0), 1))
        depths[entropy] = policy.plan([PlanView(number, 53, 3, 100, 1.0)])[0].max_depth
    assert depths[0.02] >= 3
    assert depths[1.5] <= 1


def one_round(policy, row, place, entropy, coins):
    """One row decodes at temperature 1; a drafted token is right with the chance that a token of this entropy has."""
    view = PlanView(row, 50 + place, place, 100, 1.0)
    depth = policy.plan([view])[0].max_depth
    right = next((level for level in range(depth) if coins.random() > math.exp(-entropy)), depth)
    levels = tuple((None, level < right) for level in range(min(depth, right + 1)))
    scored = len(policy.choose([view], [[Offer("model", tuple(range(-1, depth)))]])[0].nodes) - 1 if depth else 0
    kept = min(right, scored)
    spent = PhaseSeconds(draft=0.2 * depth, score=1 + 0.02 * scored)
    figures = RowRound(row, "model", scored, kept, kept + 1, scored, 51 + place, {}, entropy * (kept + 1))
    asked = (Asked("model", 1, depth, spent.draft),) if depth else ()
    judged = (Judged(row, "model", depth, levels),) if depth else ()
    policy.observe(RoundStats((figures,), spent, 1 + scored, asked, judged))


def test_warmth_begins_with_the_temperature_and_follows_the_text():
    assert [Warmth.of(temperature).stage for temperature in (0.0, 0.1, 0.5, 1.0)] == [0, 0, 1, 2]
    hot = Warmth.of(1.0)
    hot.learn(12, 0.3)
    assert hot.stage == 0
    hot.learn(6, 12.0)
    assert hot.stage == 2
    greedy = Warmth.of(0.0)
    greedy.learn(50, 0.0)
    assert greedy.entropy == 0


def test_depth_follows_a_text_that_changes():
    """One request: a copied passage, new words, the passage again."""
    policy, seen = AutoPolicy({"lookup": DrafterShape(free=True)}), []
    text = write({"lookup": Style(1.0)}, 360, seed=1)
    text.hits["lookup"][120:240] = [False] * 120
    original = policy.choose

    def choose(views, offers):
        choices = original(views, offers)
        seen.append((views[0].num_written, len(choices[0].nodes) - 1))
        return choices

    policy.choose = choose
    simulate(machine("server"), policy, [text])
    in_new_words = [nodes for place, nodes in seen if 130 <= place < 240]
    assert max(nodes for place, nodes in seen if 60 < place < 110) >= 8
    assert sum(in_new_words) <= 2.5 * len(in_new_words)
    assert max(nodes for place, nodes in seen if 260 < place < 340) >= 8


def test_requests_limits_are_kept():
    policy = AutoPolicy({"d": DrafterShape(free=True)})
    views = [
        PlanView(0, 10, 0, 1000, 0.0, wanted_depth=0),
        PlanView(1, 10, 0, 2, 0.0),
        PlanView(2, 10, 0, 1000, 0.0, wanted_depth=5),
        PlanView(3, 10, 0, 0, 0.0),
    ]
    plans = policy.plan(views)
    assert plans[0].max_depth == 0
    assert plans[1].max_depth <= 2
    assert (plans[2].max_depth, plans[2].revise) == (5, False)
    assert plans[3].max_depth == 0


def test_every_choice_says_why():
    policy = AutoPolicy({"lookup": DrafterShape(free=True), "model": DrafterShape()})
    view = PlanView(0, 100, 0, 50, 0.0)
    plan = policy.plan([view])[0]
    assert plan.reason
    (nothing,) = policy.choose([view], [[]])
    assert nothing.reason == "nothing was offered"
    (some,) = policy.choose([view], [[Offer("lookup", (-1, 0, 1))]])
    assert "lookup offered 2" in some.reason


def test_the_better_of_two_offers_is_taken():
    costs = CostModel(((1, 1.0), (8, 1.1)), 100)
    policy = AutoPolicy({"a": DrafterShape(free=True), "b": DrafterShape(free=True)}, costs)
    view = PlanView(0, 100, 0, 50, 0.0)
    policy.plan([view])
    (choice,) = policy.choose([view], [[Offer("a", (-1, 0, 1), (1, 0.2, 0.2)), Offer("b", (-1, 0, 1), (1, 0.9, 0.9))]])
    assert (choice.drafter, choice.nodes) == ("b", (0, 1, 2))


def test_the_cut_sees_past_a_step():
    """Nodes 2 and 3 are dear, 4 to 8 cost nothing more: worth it only if looked at together."""
    seconds = growth_curve([(2, 1.9), (3, 2.0), (9, 2.0)])
    alive = [0.95**n for n in range(1, 9)]
    assert best_cut(alive, 1, seconds, worth=1.0).num_nodes == 8
    assert best_cut([0.3] * 3, 1, seconds, worth=1.0).num_nodes == 0
    assert survivals((-1, 0, 0, 1), (1, 0.5, 0.2, 0.5)) == [1, 0.5, 0.2, 0.25]


def test_pass_cost_learns_steps_and_survives_a_stall():
    cost = PassCost()
    for _ in range(30):
        for width in (1, 4, 8, 9, 16):
            cost.learn(width, STEEP(width))
    for width in (1, 4, 8, 9, 16):
        assert cost.of(width) == pytest.approx(STEEP(width), rel=0.04)
    before = cost.of(5)
    cost.learn(5, 100.0)
    assert cost.of(5) < 1.3 * before


def test_pass_cost_begins_with_what_was_measured():
    cost = PassCost(STEEP)
    assert cost.of(8) == pytest.approx(2.4, rel=0.02)
    for _ in range(40):
        cost.learn(1, 2.0)  # the machine became twice as slow
    assert cost.of(8) == pytest.approx(4.8, rel=0.1)


def test_hopes_that_fail_are_trusted_less_and_forgiven_slowly():
    hope = Hope()
    assert hope.trust == 1
    for _ in range(50):
        hope.learn(1.0, 0.7)
    low = hope.trust
    assert 0.7 < low < 0.8
    for _ in range(100):
        hope.forgive()
    assert low < hope.trust < 1
    for _ in range(50):
        hope.learn(1.0, 1.5)
    assert hope.trust == 1  # what came better than hoped is no reason to hope for more


def test_a_drafter_that_does_not_pay_is_asked_less_often_where_asking_is_noticed():
    """Asking takes 0.5 % of a round here; below 0.3 % it stays as it was."""
    for ask, least, most in ((0.005, 0.2, 0.6), (0.001, 1.0, 1.0)):
        policy, asked = AutoPolicy({"lookup": DrafterShape(free=True)}), []
        original = policy.plan
        policy.plan = lambda views, original=original, asked=asked: _noted(original(views), asked)
        useless = write({"lookup": Style(0.0)}, 200, seed=1)
        simulate(Machine(STEEP, {"lookup": Cost(ask=ask)}, noise=0), policy, [useless])
        late = asked[50:190]
        assert least <= sum(late) / len(late) <= most, ask


def _noted(plans, asked):
    asked.append(plans[0].max_depth > 0)
    return plans


def test_rows_with_nothing_to_choose_count_in_the_width_of_the_pass():
    """The pass of eight rows is at the edge of a step: what would pay beside one row does not pay beside eight."""
    curve = growth_curve([(1, 1.0), (4, 1.05), (8, 1.1), (9, 3.0), (16, 3.1)])
    costs = CostModel(tuple((width, curve(width)) for width in (1, 4, 8, 9, 16)), 100)
    for others, scored in ((0, 2), (7, 0)):
        policy = AutoPolicy({"a": DrafterShape(free=True)}, costs)
        views = [
            PlanView(0, 100, 0, 50, 0.0),
            *(PlanView(1 + n, 100, 0, 50, 0.0, wanted_depth=0) for n in range(others)),
        ]
        policy.plan(views)
        (choice,) = policy.choose(views[:1], [[Offer("a", (-1, 0, 1), (1, 0.6, 0.6))]])
        assert len(choice.nodes) - 1 == scored, others


def test_a_draft_that_survives_far_is_found_out():
    """All tokens of the draft model are right and its first drafts are short: it is soon asked for more."""
    policy, depths = AutoPolicy({"model": DrafterShape()}), []
    original = policy.plan
    policy.plan = lambda views: _depths(original(views), depths)
    simulate(Machine(FLAT, {"model": Cost(level=0.02)}), policy, [write({"model": Style(1.0)}, 400, seed=1)])
    assert max(depths) >= 12


def _depths(plans, depths):
    depths.append(plans[0].max_depth)
    return plans
