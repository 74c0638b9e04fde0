"""Rows, branches and roll-back as calls to llama.cpp's memory, against a model of that memory: no library is needed."""

import random

import pytest
from fake_memory import FakeMemory

from outrider.errors import CapacityError, TargetError
from outrider.targets.llamacpp.layout import Leaves, lay_out
from outrider.targets.llamacpp.sequences import Sequences

ROWS = 3


class World:
    """Sequences over a fake memory, and what each row ought to hold."""

    def __init__(self, branches: int = 12, window: int = 0) -> None:
        self.memory = FakeMemory()
        self.sequences = Sequences(self.memory, None, ROWS, branches, window)
        self.texts: dict[int, list[int]] = {}

    def append(self, row: int, tokens: list[int]) -> None:
        base = self.sequences.length(row)
        self.sequences.begin(row, 1)
        positions = list(range(base, base + len(tokens)))
        self.memory.decode(tokens, positions, [[row]] * len(tokens))
        self.sequences.grow(row, base + len(tokens))
        self.texts[row] = [*self.texts.get(row, []), *tokens]

    def draft(self, row: int, tokens: list[int], parents: list[int]) -> Leaves:
        base = self.sequences.length(row)
        leaves = lay_out(row, parents, 0, self.sequences.begin)
        depths = [0]
        for parent in parents[1:]:
            depths.append(depths[parent] + 1)
        self.memory.decode(tokens, [base + depth for depth in depths], [list(ids) for ids in leaves.sequences])
        return leaves

    def keep(self, row: int, leaves: Leaves, tokens: list[int], path: list[int]) -> None:
        base = self.sequences.length(row)
        self.sequences.keep(row, leaves.under[path[-1]], base + len(path), base + leaves.first_depth)
        self.texts[row] = [*self.texts.get(row, []), *(tokens[node] for node in path)]

    def check(self) -> None:
        for row in range(ROWS):
            expected = self.texts.get(row, [])
            assert self.memory.text(row) == expected
            assert self.sequences.length(row) == len(expected)


def test_plain_decoding_makes_no_memory_calls() -> None:
    """Python's and llama.cpp's share of a plain round: nothing is removed and nothing copied."""
    world = World()
    world.append(0, [1, 2, 3])
    world.memory.calls.clear()
    for token in (4, 5, 6):
        leaves = world.draft(0, [token], [-1])
        world.keep(0, leaves, [token], [0])
    assert world.memory.calls == []
    world.check()


def test_a_chain_that_is_kept_whole_makes_no_memory_calls() -> None:
    world = World()
    world.append(0, [1, 2, 3])
    world.memory.calls.clear()
    leaves = world.draft(0, [4, 5, 6], [-1, 0, 1])
    world.keep(0, leaves, [4, 5, 6], [0, 1, 2])
    assert world.memory.calls == []
    world.check()


def test_every_path_of_a_tree_can_be_kept() -> None:
    parents, tokens = [-1, 0, 0, 1, 1, 2, 3, 6], [10, 11, 12, 13, 14, 15, 16, 17]
    for node in range(8):
        path, at = [], node
        while at >= 0:
            path, at = [at, *path], parents[at]
        world = World()
        world.append(0, [1, 2, 3])
        world.append(1, [7, 8])
        leaves = world.draft(0, tokens, parents)
        for one in range(8):
            expected, at = [], one
            while at >= 0:
                expected, at = [tokens[at], *expected], parents[at]
            for sequence in leaves.sequences[one]:
                assert world.memory.text(sequence)[: 3 + len(expected)] == [1, 2, 3, *expected]
        world.keep(0, leaves, tokens, path)
        world.check()
        world.keep(0, world.draft(0, tokens, parents), tokens, [0, 2, 5])
        world.check()


def test_random_days() -> None:
    """Appending, trees, roll-backs, copies and frees in any order leave every row with its own text."""
    for seed in range(40):
        dice = random.Random(seed)
        world = World(branches=9)
        for _ in range(60):
            _one_thing(world, dice)
            world.check()


def _one_thing(world: World, dice: random.Random) -> None:
    row, thing = dice.randrange(ROWS), dice.random()
    if thing < 0.2:
        world.append(row, [dice.randrange(100) for _ in range(dice.randrange(1, 6))])
    elif thing < 0.7:
        size = dice.randrange(1, 8)
        parents = [-1, *(dice.randrange(node) for node in range(1, size))]
        tokens = [dice.randrange(100) for _ in range(size)]
        leaves = world.draft(row, tokens, parents)
        if dice.random() < 0.2:
            world.sequences.drop_drafted(row)
            return
        path, at = list[int](), dice.randrange(size)
        while at >= 0:
            path, at = [at, *path], parents[at]
        world.keep(row, leaves, tokens, path)
    elif thing < 0.8:
        length = dice.randrange(12)
        world.sequences.truncate(row, length)
        world.texts[row] = world.texts.get(row, [])[:length]
    elif thing < 0.9:
        other = (row + 1) % ROWS
        length = dice.randrange(world.sequences.length(row) + 1)
        world.sequences.copy(row, other, length)
        world.texts[other] = world.texts.get(row, [])[:length]
    else:
        world.sequences.free(row)
        world.texts.pop(row, None)


def test_branches_are_lent_from_row_to_row() -> None:
    world = World(branches=2)
    star = [-1, 0, 0, 0]
    for row in (0, 1, 0):
        world.append(row, [1, 2, 3])
        world.keep(row, world.draft(row, [4, 5, 6, 7], star), [4, 5, 6, 7], [0, 2])
        world.check()


def test_too_many_leaves_are_refused_by_name() -> None:
    world = World(branches=2)
    world.append(0, [1])
    with pytest.raises(CapacityError, match=r"4 leaves .* may have 2 .*raise the backend option branches"):
        world.draft(0, [1, 2, 3, 4, 5], [-1, 0, 0, 0, 0])
    world.append(0, [2])
    world.check()


def test_a_window_that_has_left_the_cache_frees_the_row() -> None:
    """Rolled back to where the window needs older tokens than are held, the row must be computed again."""
    world = World(window=4)
    world.append(0, list(range(20)))
    world.memory.forget_window(0, 12)
    world.sequences.truncate(0, 18)
    assert world.sequences.length(0) == 18
    world.sequences.truncate(0, 14)
    assert world.sequences.length(0) == 0
    assert world.memory.text(0) == []


def test_a_copy_without_its_window_stays_empty() -> None:
    world = World(window=4)
    world.append(0, list(range(20)))
    world.memory.forget_window(0, 12)
    world.sequences.copy(0, 1, 10)
    assert (world.sequences.length(0), world.sequences.length(1)) == (20, 0)


def test_branches_follow_when_the_window_moves() -> None:
    """Sequences that share tokens must begin at the same place, or llama.cpp refuses the pass."""
    world = World(window=4)
    world.append(0, list(range(20)))
    world.keep(0, world.draft(0, [20, 30, 31], [-1, 0, 0]), [20, 30, 31], [0, 1])
    world.memory.forget_window(0, 12)
    world.draft(0, [22, 30, 31], [-1, 0, 0])


def test_a_memory_that_does_not_roll_back_is_told() -> None:
    world = World()
    world.append(0, [1, 2, 3])
    world.memory.refuses = True
    with pytest.raises(TargetError, match="cannot roll sequence 0 back to 2"):
        world.sequences.truncate(0, 2)
