"""`recycle`: what it keeps of passes, by one token and by two, what it begins with, and what it refuses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import World, run, tokens_of
from outrider import Engine
from outrider.drafters import followers
from outrider.drafters.base import TargetView
from outrider.drafters.followers import Followers
from outrider.drafters.recycle import RecycleDrafter, top
from outrider.errors import OptionError
from outrider.policy.fixed import FixedPolicy

WORLD = World(11, seed=5)
PROMPTS = WORLD.prompts(4)


def texts(drafter: RecycleDrafter | None, prompts: Sequence[Sequence[int]] = PROMPTS) -> tuple[list[Any], int]:
    """The texts, and the rounds that they took."""
    policy = FixedPolicy("recycle", 6, 24) if drafter else None
    found = run(Engine(WORLD.target(), drafter, policy=policy), prompts, max_new_tokens=40)
    return tokens_of(found), sum(one.stats.rounds for one in found)


def test_two_tokens_are_asked_before_one() -> None:
    table = Followers(4)
    table.learn(1, 2, ((5, 0.9), (6, 0.1)))
    table.learn(3, 2, ((7, 1.0),))
    assert table.find(1, 2) == (2, ((5, 0.9), (6, 0.1)))
    assert table.find(3, 2) == (2, ((7, 1.0),))
    assert table.find(9, 2) == (1, ((7, 0.5), (5, 0.45), (6, 0.05)))
    assert table.find(1, 9) == (0, ())


def test_a_pass_counts_half_and_the_width_is_kept() -> None:
    table = Followers(2)
    for seen in (((5, 0.6), (6, 0.4)), ((6, 0.8), (7, 0.2))):
        table.learn(1, 2, seen)
    assert table.find(1, 2)[1] == ((6, pytest.approx(0.6)), (5, pytest.approx(0.3)))


def test_what_was_longest_not_seen_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "LIMIT", 4)
    table = Followers(1)
    for before, token in ((1, 2), (3, 4), (1, 2), (5, 6)):
        table.learn(before, token, ((9, 1.0),))
    assert [table.find(*pair)[0] for pair in ((1, 2), (5, 6), (3, 4))] == [2, 2, 0]


def test_a_saved_table_saves_rounds_and_changes_no_text(tmp_path: Path) -> None:
    plain, _ = texts(None)
    learning = RecycleDrafter(shared=True)
    assert texts(learning)[0] == plain
    learning.save(tmp_path / "start.json")
    cold, warm = texts(RecycleDrafter()), texts(RecycleDrafter(start=str(tmp_path / "start.json")))
    assert cold[0] == warm[0] == plain
    assert warm[1] < cold[1]


def test_requests_do_not_learn_from_each_other_through_the_start(tmp_path: Path) -> None:
    learning = RecycleDrafter(shared=True)
    texts(learning, PROMPTS[:1])
    learning.save(tmp_path / "start.json")
    drafter = RecycleDrafter(start=str(tmp_path / "start.json"))
    assert texts(drafter)[1] == texts(drafter)[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot start from"), ("[]", "cannot start from"), ('{"format": "x", "after": []}', "its format is 'x'")],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "start.json"
    if content is not None:
        path.write_text(content, "utf-8")
    with pytest.raises(OptionError, match=message):
        Engine(WORLD.target(), RecycleDrafter(start=str(path)))


def test_a_table_of_another_target_is_refused(tmp_path: Path) -> None:
    other = World(7, seed=5)
    learning = RecycleDrafter(shared=True)
    run(Engine(other.target(), learning), [[1, 2]], max_new_tokens=4)
    learning.save(tmp_path / "start.json")
    with pytest.raises(OptionError, match="vocab_size 7 instead of 11"):
        RecycleDrafter(start=str(tmp_path / "start.json")).bind(TargetView(WORLD.target().info))


@pytest.mark.parametrize("size", [5, 64, 4096, 4097, 5000, 49152])
def test_the_quick_search_for_the_best_finds_what_the_plain_one_finds(size: int) -> None:
    logits = torch.randn(7, size, generator=torch.Generator().manual_seed(size))
    logits[0, -3:] = 9.0 + torch.arange(3)
    width = min(16, size)
    found, expected = top(logits, width), logits.topk(width)
    assert torch.equal(found[0], expected.values)
    assert torch.equal(found[1], expected.indices)


@pytest.mark.parametrize("width", [0, 65, True, 2.5])
def test_widths_that_cannot_be(width: int) -> None:
    with pytest.raises(OptionError, match=f"width is {width}"):
        RecycleDrafter(width=width)
