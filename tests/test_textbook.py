"""The textbook checks: exact fractions, the kiln round, random deterministic models, and the yield formula."""

import io
import random
from fractions import Fraction

import numpy as np
import pytest
from rich.console import Console

from outrider import Engine
from outrider.acceptance import available_rules
from outrider.acceptance.block import keep_chance, next_weight, weighted_excess
from outrider.acceptance.siblings import SiblingTest
from outrider.explain import chances, run_explain
from outrider.explain.tables import play_story
from outrider.simulate import best_depth, expected_tokens, forecast, simulate_tokens
from outrider.testing import FunctionDrafter, FunctionTarget

PAIRS = 300


def fractions(source: random.Random, size: int) -> np.ndarray:
    """A random law of exact fractions; about one entry in four is 0."""
    weights = [source.choice([0, 1, 2, 3, 5, 8, 13, source.randrange(1, 1000)]) for _ in range(size)]
    weights[source.randrange(size)] += 1
    return np.array([Fraction(weight, sum(weights)) for weight in weights], dtype=object)


def pairs(size: int = 4):
    for seed in range(PAIRS):
        source = random.Random(seed)
        yield fractions(source, size), fractions(source, size)


def drawable(draft: np.ndarray) -> list[int]:
    return [token for token, chance in enumerate(draft) if chance > 0]


def accept_or_resample(target: np.ndarray, draft: np.ndarray | None, proposal: np.ndarray) -> np.ndarray:
    """The law of the token that one sibling test writes, when the draft token comes from `proposal`."""
    law = np.array([Fraction(0)] * len(target), dtype=object)
    for token in drawable(proposal):
        test = SiblingTest(target, draft)
        keep = test.chance(token)
        law[token] += proposal[token] * keep
        test.reject(token)
        law = law + proposal[token] * (1 - keep) * test.remaining
    return law


def test_accept_or_resample_gives_exactly_the_targets_law() -> None:
    for target, draft in pairs():
        assert list(accept_or_resample(target, draft, draft)) == list(target)


def test_a_chosen_token_gives_exactly_the_targets_law() -> None:
    for target, draft in pairs():
        assert list(accept_or_resample(target, None, draft)) == list(target)


def test_fractions_would_show_a_draft_law_that_was_not_drawn_from() -> None:
    wrong = [list(accept_or_resample(target, draft, np.roll(draft, 1))) != list(target) for target, draft in pairs()
             if all(draft > 0)]  # fmt: skip
    assert len(wrong) > 30
    assert sum(wrong) > 0.9 * len(wrong)


def siblings_law(target: np.ndarray, draft: np.ndarray, count: int) -> np.ndarray:
    """The law of the token written after up to `count` siblings drawn without replacement."""

    def go(test: SiblingTest, left: np.ndarray, more: int) -> np.ndarray:
        if more == 0 or not drawable(left):
            return test.remaining
        law = np.array([Fraction(0)] * len(target), dtype=object)
        for token in drawable(left):
            branch = SiblingTest(target, draft)
            branch.__dict__.update(test.__dict__)
            keep, chance = branch.chance(token), left[token] / left.sum()
            law[token] += chance * keep
            if keep < 1:
                branch.reject(token)
                rest = np.array(left)
                rest[token] = Fraction(0)
                law = law + chance * (1 - keep) * go(branch, rest, more - 1)
        return law

    return go(SiblingTest(target, draft), draft, count)


@pytest.mark.parametrize("count", [2, 3])
def test_siblings_give_exactly_the_targets_law(count: int) -> None:
    for target, draft in list(pairs(3))[:100]:
        assert list(siblings_law(target, draft, count)) == list(target)


def test_block_verification_of_two_tokens_gives_exactly_the_targets_joint_law() -> None:
    for seed in range(100):
        source = random.Random(seed)
        size = 3
        target = {text: fractions(source, size) for text in [(), *((x,) for x in range(size))]}
        draft = {text: fractions(source, size) for text in target}
        law = {(x, y): Fraction(0) for x in range(size) for y in range(size)}
        for x in drawable(draft[()]):
            for y in drawable(draft[(x,)]):
                weight = draft[()][x] * draft[(x,)][y]
                one = next_weight(Fraction(1), target[()], draft[()], x)
                two = next_weight(one, target[(x,)], draft[(x,)], y)
                law[x, y] += weight * two
                after_one = weighted_excess(one, target[(x,)], draft[(x,)], y)
                keep = keep_chance(one, after_one)
                if keep > 0 and two < 1:
                    for z in range(size):
                        law[x, z] += weight * (1 - two) * keep * after_one[z] / after_one.sum()
                if keep < 1 and two < 1:
                    after_none = weighted_excess(Fraction(1), target[()], draft[()], x)
                    for z in range(size):
                        first = weight * (1 - two) * (1 - keep) * after_none[z] / after_none.sum()
                        for w in range(size):
                            law[z, w] += first * target[(z,)][w]
        assert law == {(x, y): target[()][x] * target[(x,)][y] for x, y in law}


# ---------------------------------------------------------------- the kiln round, through the real engine


def test_the_kiln_needs_two_target_passes_for_six_words() -> None:
    story = play_story()
    assert " ".join(story.text) == "the kiln held its heat overnight"
    assert story.rounds[0].drafted == ("the", "kiln", "cooled", "slowly")
    assert [played.num_kept for played in story.rounds] == [2, 2]
    assert [played.next_word for played in story.rounds] == ["held", "overnight"]
    assert [played.bonus for played in story.rounds] == [False, True]
    assert story.speculative.stats.rounds == 2
    assert story.plain.stats.rounds == 6
    assert story.equal


@pytest.mark.parametrize("rule", available_rules())
def test_the_kiln_takes_as_many_passes_under_every_rule(rule: str) -> None:
    assert play_story(rule).speculative.stats.rounds == 2
    assert play_story(rule).equal


@pytest.mark.parametrize("seed", range(25))
def test_deterministic_models_never_need_more_passes_than_tokens(seed: int) -> None:
    source = random.Random(seed)
    size, tokens, agreement = source.randrange(2, 12), source.randrange(1, 30), source.random()
    following = [source.randrange(size) for _ in range(size)]
    guess = [right if source.random() < agreement else source.randrange(size) for right in following]

    def propose(text: list[int], depth: int) -> list[int]:
        drafted = [text[-1]]
        for _ in range(depth):
            drafted.append(guess[drafted[-1]])
        return drafted[1:]

    target = FunctionTarget(lambda text: [float(i == following[text[-1]]) for i in range(size)], size)
    result = Engine(target, FunctionDrafter(propose)).generate([0], max_new_tokens=tokens, max_depth=4)
    written = [0]
    for _ in range(tokens):
        written.append(following[written[-1]])
    assert list(result.token_ids) == written[1:]
    assert result.stats.rounds == target.num_passes <= tokens
    if guess == following:
        assert result.stats.rounds == -(-tokens // 5)


# ---------------------------------------------------------------- `outrider explain`


def explained(answers: str = "", *, pause: bool = False) -> list[str]:
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO(answers))
        run_explain(Console(file=output, width=80, soft_wrap=True), pause=pause)
    return output.getvalue().splitlines()


def test_explain_fits_a_terminal_and_tells_the_whole_round() -> None:
    shown = explained()
    assert max(len(line.rstrip()) for line in shown) <= 79
    text = "\n".join(shown)
    for part in (
        "After the firing, the? kiln? cooled? slowly?",
        "After the firing, the kiln -cooled- -slowly- held",
        'bonus word, "overnight"',
        "with the draft   6       2",
        "target alone     6       6",
    ):
        assert part in text


def test_explain_waits_for_enter_and_goes_on_when_nobody_is_there() -> None:
    waits = [sum("next step" in line for line in explained(answers, pause=True)) for answers in ("", "\n" * 50)]
    assert waits[0] == 1
    assert waits[1] >= 7
    assert not any("next step" in line for line in explained())


def test_the_sampled_example_adds_up_to_the_targets_law() -> None:
    for line in chances.lines():
        assert line.written == pytest.approx(line.target)
    kept, replaced = chances.first_coins()
    assert kept.value < 0.4 <= replaced.value
    assert kept.word == "cooled"
    assert replaced.word in ("held", "kept")


# ---------------------------------------------------------------- yield and speed-up


@pytest.mark.parametrize(
    ("acceptance", "cost", "depth", "tokens", "speedup"),
    [(0.2, 0.05, 4, 1.25, 1.04), (0.8, 0.05, 4, 3.36, 2.80), (0.95, 0.5, 4, 4.52, 1.51), (1.0, 0.0, 3, 4.0, 4.0)],
)
def test_yield_and_speedup(acceptance: float, cost: float, depth: int, tokens: float, speedup: float) -> None:
    result = forecast(acceptance, depth, cost)
    assert result.tokens == pytest.approx(tokens, abs=0.005)
    assert result.speedup == pytest.approx(speedup, abs=0.005)


@pytest.mark.parametrize(("acceptance", "depth"), [(0.2, 4), (0.65, 3), (0.8, 4), (0.95, 8), (0.0, 5), (1.0, 2)])
def test_a_simulation_meets_the_yield_formula(acceptance: float, depth: int) -> None:
    rounds = 40_000
    error = 6 * (depth + 1) / 2 / rounds**0.5
    assert simulate_tokens(acceptance, depth, rounds) == pytest.approx(expected_tokens(acceptance, depth), abs=error)


def test_spd1_an_expensive_draft_is_foretold_to_be_slower() -> None:
    result = forecast(0.65, 3, 9 / 17)
    assert result.speedup == pytest.approx(0.907, abs=0.0005)
    assert "will be slower" in str(result)
    assert best_depth(0.65, 9 / 17, max_depth=3).depth in (0, 1)


def test_spd2_overhead_decides_and_every_term_is_reported() -> None:
    result = forecast(0.9, 8, 0.1, overhead=20 / 2)
    assert result.speedup < 1
    assert "draft 0.80" in str(result)
    assert "overhead 10.00" in str(result)
    assert best_depth(0.9, 0.1, overhead=10.0, max_depth=6).depth == 0


def test_a_wider_pass_that_costs_more_shortens_the_best_draft() -> None:
    flat = best_depth(0.8, 0.05)
    steep = best_depth(0.8, 0.05, target_cost=lambda nodes: 1 + 0.4 * (nodes - 1))
    assert steep.depth < flat.depth


@pytest.mark.parametrize(("acceptance", "depth"), [(-0.1, 1), (1.1, 1), (0.5, -1), (float("nan"), 1)])
def test_nonsense_is_refused(acceptance: float, depth: int) -> None:
    with pytest.raises(ValueError, match="is "):
        expected_tokens(acceptance, depth)
