"""Two models small enough to print: each is a table that says which word follows a word.

The target writes "the kiln held its heat overnight" after its prompt. The draft agrees on most words, but lets the
kiln cool. Both are played through the real engine, which knows nothing of words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from outrider.engine.completion import Completion
from outrider.engine.engine import Engine
from outrider.testing import FunctionDrafter, FunctionTarget
from outrider.types import DraftTree, Outcome, Scored

PROMPT = ("After", "the", "firing,")
TARGET = {
    "firing,": "the",
    "the": "kiln",
    "kiln": "held",
    "held": "its",
    "its": "heat",
    "heat": "overnight",
    "cooled": "down",
    "slowly": "afterwards",
}
DRAFT = {**TARGET, "kiln": "cooled", "cooled": "slowly", "heat": "well"}
WORDS = tuple(dict.fromkeys([*PROMPT, *TARGET.values(), *DRAFT.values(), "."]))
MAX_DEPTH = 4
NUM_WORDS = 6


@dataclass(frozen=True)
class Round:
    """One round as words. answers[i]: what the target says after i drafted words."""

    drafted: tuple[str, ...]
    answers: tuple[str, ...]
    num_kept: int
    next_word: str
    bonus: bool

    @property
    def kept(self) -> tuple[str, ...]:
        return self.drafted[: self.num_kept]

    @property
    def struck(self) -> tuple[str, ...]:
        return self.drafted[self.num_kept :]


@dataclass
class Recorder(FunctionDrafter):
    """A function drafter that keeps what became of each of its drafts."""

    name: ClassVar[str] = "table"

    rounds: list[Round] = field(default_factory=list[Round])

    def observe(self, row: int, tree: DraftTree, outcome: Outcome, scored: Scored, nodes: range) -> None:
        answers = scored.logits[nodes.start : nodes.stop].argmax(-1).tolist()
        following = WORDS[outcome.next_token]
        drafted, said = _words(tree.tokens[1:]), _words(answers)
        self.rounds.append(Round(drafted, said, outcome.num_accepted, following, outcome.bonus))


@dataclass(frozen=True)
class Story:
    """The same request with the draft and without it."""

    rounds: tuple[Round, ...]
    speculative: Completion
    plain: Completion

    @property
    def text(self) -> tuple[str, ...]:
        return _words(self.speculative.token_ids)

    @property
    def equal(self) -> bool:
        return self.speculative.token_ids == self.plain.token_ids


def play_story(rule: str = "identical") -> Story:
    """Both runs, by the real engine."""
    target = FunctionTarget(lambda tokens: _one_hot(TARGET, tokens), len(WORDS))
    drafter = Recorder(_propose)
    engine = Engine(target, drafter, rule=rule)
    prompt = [WORDS.index(word) for word in PROMPT]
    speculative = engine.generate(prompt, max_new_tokens=NUM_WORDS, max_depth=MAX_DEPTH)
    plain = engine.generate(prompt, max_new_tokens=NUM_WORDS, max_depth=0)
    return Story(tuple(drafter.rounds), speculative, plain)


def _propose(tokens: list[int], max_depth: int) -> list[int]:
    """The draft's next words, one after another."""
    words = [WORDS[tokens[-1]]]
    for _ in range(max_depth):
        words.append(_after(DRAFT, words[-1]))
    return [WORDS.index(word) for word in words[1:]]


def _one_hot(table: Mapping[str, str], tokens: Sequence[int]) -> list[float]:
    """Logits that leave no doubt."""
    following = _after(table, WORDS[tokens[-1]])
    return [1.0 if word == following else 0.0 for word in WORDS]


def _after(table: Mapping[str, str], word: str) -> str:
    return table.get(word, ".")


def _words(tokens: Sequence[int]) -> tuple[str, ...]:
    return tuple(WORDS[token] for token in tokens)
