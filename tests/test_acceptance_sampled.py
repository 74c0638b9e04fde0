"""Whole texts written round by round with the real noise and laws: chi-square on joint laws, equality, agreement."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from jaxtyping import config

from outrider.acceptance import make_rule
from outrider.sampling.laws import Laws
from outrider.sampling.noise import Noise
from outrider.sampling.params import SamplingParams
from outrider.sampling.process import draw_without_replacement
from outrider.types import DraftTree
from rule_worlds import ROOT, World, target_law
from stats import chi_square, total_variation

LENGTH = 3
PARAMS = {size: SamplingParams(temperature=1.0).resolve({}, (), size) for size in (2, 3, 8)}
WORLD = World(seed=11, sharpness=0.8)
Draft = Callable[[World, list[int], Noise], DraftTree]


@pytest.fixture(autouse=True)
def _without_shape_checks() -> Iterator[None]:
    """Thousands of texts are written here; the shapes are checked by the tests of single decisions."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


def drafting(*branching: int, stream: str = "draft", probs: bool = True) -> Draft:
    """Trees with branching[d] siblings at depth d+1, drawn without replacement with the noise given."""

    def draft(world: World, text: list[int], noise: Noise) -> DraftTree:
        tokens, parents, paths, level = [text[-1]], [-1], [tuple(text)], [0]
        for depth, count in enumerate(branching):
            next_level: list[int] = []
            for node in level:
                for token in draw(world.draft(paths[node]), noise, len(text) + depth, count, stream):
                    next_level.append(len(tokens))
                    tokens.append(token)
                    parents.append(node)
                    paths.append((*paths[node], token))
            level = next_level
        laws = np.stack([world.draft(path) for path in paths]) if probs else None
        return DraftTree(tuple(tokens), tuple(parents), None if laws is None else torch.from_numpy(laws))

    return draft


def draw(law: np.ndarray, noise: Noise, position: int, count: int, stream: str) -> list[int]:
    """Gumbel top-k in the open, for laws without zeros; the library's own draw is compared with it below."""
    scores = np.log(law) + noise.gumbel(position, len(law), stream=stream).numpy()
    return np.argsort(-scores)[:count].tolist()


def write(rule_name: str, world: World, draft: Draft, seed: int, length: int = LENGTH) -> tuple[int, ...]:
    """A text of `length` tokens, round by round as an engine plays it."""
    rule, params, text, rounds = make_rule(rule_name), PARAMS[world.vocab_size], list(ROOT), 0
    while len(text) < len(ROOT) + length:
        noise = Noise(seed, None if rule.shared_noise else rounds)
        tree = draft(world, text, noise)
        rows = [world.target((*text, *tree.path_tokens(node))) for node in range(len(tree.tokens))]
        laws = Laws(torch.from_numpy(np.log(np.stack(rows))), tree, text, 1, params, (), noise)
        outcome = rule(tree, laws, noise)
        text += [*tree.path_tokens(outcome.path[-1]), outcome.next_token]
        rounds += 1
    return tuple(text[len(ROOT) : len(ROOT) + length])


def p_value(rule: str, draft: Draft, num_texts: int, world: World = WORLD) -> float:
    texts = (write(rule, world, draft, seed) for seed in range(num_texts))
    return chi_square(texts, target_law(world, LENGTH))


SHAPES = [
    ("rejection", drafting(1, 1)),
    ("rejection", drafting(2, 1)),
    ("rejection", drafting(1, 1, probs=False)),
    ("block", drafting(1, 1)),
    ("identical", drafting(1, 1, stream="token")),
]
NAMES = ["rejection chain", "rejection tree", "rejection chosen", "block chain", "identical"]


@pytest.mark.parametrize(("rule", "draft"), SHAPES, ids=NAMES)
def test_texts_have_the_targets_joint_law(rule: str, draft: Draft) -> None:
    assert p_value(rule, draft, 400) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "draft"), [*SHAPES, ("block", drafting(1, 1, 1)), ("rejection", drafting(3, 2))])
@pytest.mark.parametrize("seed", [11, 12])
def test_texts_have_the_targets_joint_law_in_depth(rule: str, draft: Draft, seed: int) -> None:
    assert p_value(rule, draft, 6000, World(seed=seed, sharpness=0.8)) > 1e-4


class Halves(World):
    """The draft wavers between 0 and 1; the target never writes 0. Half of all drafts are replaced."""

    def target(self, text):
        return np.array([1e-9, 0.7, 0.3 - 1e-9])

    def draft(self, text):
        return np.array([0.499, 0.499, 0.002])


def test_sharing_noise_between_draft_and_recovery_shows() -> None:
    """Given that 0 was drawn, the noise of 1 is known to be small: a recovery with that noise picks 1 too seldom."""
    for stream, wrong in (("draft", False), ("recover", True)):
        texts = (write("rejection", Halves(), drafting(1, stream=stream), seed, 1) for seed in range(900))
        p = chi_square(texts, target_law(Halves(), 1))
        assert (p < 1e-4) if wrong else (p > 1e-2)


def test_typical_acceptance_shows() -> None:
    assert p_value("typical", drafting(1, 1), 250) < 1e-6


def test_block_with_noise_that_forgets_the_round_shows() -> None:
    """Coins of later nodes decide about earlier ones, so a later round must not see the same numbers again."""
    world, draft = World(seed=3, sharpness=0.8, vocab_size=2), drafting(1, 1, 1)

    def forgetful(world: World, text: list[int], noise: Noise) -> DraftTree:
        return draft(world, text, Noise(noise.seed))

    assert p_value("block", draft, 300, world) > 1e-3
    assert p_value("block", forgetful, 300, world) < 1e-6


def test_the_librarys_draws_are_the_ones_made_here() -> None:
    for seed in range(50):
        law = WORLD.draft((0, seed))
        ours = draw(law, Noise(seed), 4, 2, "draft")
        assert draw_without_replacement(torch.from_numpy(law).log(), Noise(seed), 4, 2, "draft") == ours


# ---------------------------------------------------------------- identical: the same text, whatever is drafted


@pytest.mark.parametrize(
    "draft",
    [drafting(1), drafting(1, 1, 1, stream="token"), drafting(2, 2), drafting(3, 1, stream="token", probs=False)],
)
def test_identical_writes_the_very_text_of_plain_decoding(draft: Draft) -> None:
    for seed in range(25):
        plain = write("identical", WORLD, lambda world, text, noise: DraftTree.root(text[-1]), seed, 6)
        assert write("identical", WORLD, draft, seed, 6) == plain


def test_shared_noise_agrees_at_least_as_often_as_promised() -> None:
    """(1-TV)/(1+TV) at least, 1-TV at most, over random pairs; independent draws agree less."""
    for seed in range(4):
        world = World(seed=seed, vocab_size=5)
        target, draft = (torch.tensor(law(ROOT)) for law in (world.target, world.draft))
        shift = total_variation(dict(enumerate(target.tolist())), dict(enumerate(draft.tolist())))
        total, agreed, alone = 600, 0, 0
        for index in range(total):
            noise = Noise(1000 * seed + index)
            gumbel = noise.gumbel(1, 5)
            choice = int((target.log() + gumbel).argmax())
            agreed += int((draft.log() + gumbel).argmax()) == choice
            alone += int((draft.log() + noise.gumbel(1, 5, stream="draft")).argmax()) == choice
        error = 3.5 * 0.5 / total**0.5
        assert (1 - shift) / (1 + shift) - error < agreed / total < 1 - shift + error
        assert alone < agreed
