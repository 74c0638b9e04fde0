"""Suffix drafting: what followed the longest repeated end of the text, as often as it did, branching where it branched.

Keeps a suffix automaton of each row's text and, if asked, of earlier requests. Long where the text is known, short or
absent where it is not. Source: Oliaro et al., "SuffixDecoding" (2024); `lookup` is the simple twin.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from outrider.drafters.automaton import SuffixAutomaton
from outrider.drafters.base import DraftContext, Drafter
from outrider.drafters.growth import Candidate, grow
from outrider.drafters.trust import Trust
from outrider.errors import OptionError
from outrider.types import DraftTree, Outcome, Scored

PRIOR = (0.30, 0.45, 0.60, 0.75, 0.88, 0.95)  # trust by match length 1, 2, 3-4, 5-8, 9-16, more
RECENT = 64  # tokens of a row that are matched against a text it meets for the first time


class Place(NamedTuple):
    """A matched string within one automaton."""

    automaton: SuffixAutomaton
    state: int
    length: int


@dataclass
class SuffixDrafter(Drafter):
    """min_survival: a token less likely than this to be kept, by past experience, is not drafted.

    remember: tokens of finished requests that later ones may draw from; 0 keeps every request to itself, which is
    what requests of different people need.
    """

    name: ClassVar[str] = "suffix"
    free: ClassVar[bool] = True
    preferred_depth: ClassVar[int] = 16
    preferred_nodes: ClassVar[int] = 16

    min_survival: float = 0.15
    remember: int = 0
    _rows: dict[int, "_RowText"] = field(default_factory=dict[int, "_RowText"], init=False, repr=False)
    _past: deque[SuffixAutomaton] = field(default_factory=deque[SuffixAutomaton], init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.min_survival < 1.0:
            raise OptionError(f"min_survival is {self.min_survival!r}; it must be at least 0 and below 1")
        if isinstance(self.remember, bool) or self.remember < 0:
            raise OptionError(f"remember is {self.remember!r}; it must be a number of tokens, at least 0")

    def begin(self, row: int, tokens: Sequence[int]) -> None:
        self._rows[row] = _RowText()

    def end(self, row: int) -> None:
        text = self._rows.pop(row, None)
        if text and self.remember:
            self._past.append(text.automaton)
            while self._past and sum(one.num_tokens for one in self._past) > self.remember:
                self._past.popleft()

    def propose_row(self, context: DraftContext) -> DraftTree:
        text = self._rows[context.row]
        text.follow(context.tokens, self._past)
        return grow(
            context.root,
            text.best_place(),
            text.candidates,
            max_nodes=context.plan.max_nodes,
            max_depth=context.plan.max_depth,
            min_survival=self.min_survival,
        )

    def observe(self, row: int, tree: DraftTree, outcome: Outcome, scored: Scored, nodes: range) -> None:
        """Learn how far matches of each length can be trusted, from the nodes that were really judged."""
        text = self._rows.get(row)
        if text is None or tree.confidence is None:
            return
        for depth, node in enumerate(outcome.path):
            children = [child for child in tree.children[node] if tree.confidence[child] > 0]  # 0: not its own
            if children:
                kind = bucket(text.matched + depth)
                said = sum(tree.confidence[child] for child in children) / max(text.trust.chance(kind, 1.0), 1e-6)
                text.trust.learn(kind, min(said, 1.0), any(child in outcome.path for child in children))


class _RowText:
    """One row's automaton, where its end matches the texts of earlier requests, and how far matches proved true.

    Trust is a row's own, so that what it drafts depends on no other request.
    """

    def __init__(self) -> None:
        self.automaton = SuffixAutomaton()
        self.trust = Trust(PRIOR)
        self.matched = 0
        self._places: dict[int, Place] = {}

    def follow(self, tokens: Sequence[int], past: Iterable[SuffixAutomaton]) -> None:
        """Take in the tokens that are new since the last call."""
        new = tokens[self.automaton.num_tokens :]
        self._places = {id(other): self._advance(other, tokens, new) for other in past}
        self.automaton.extend(new)

    def _advance(self, other: SuffixAutomaton, tokens: Sequence[int], new: Sequence[int]) -> Place:
        known = self._places.get(id(other))
        place = known or Place(other, 0, 0)
        for token in new if known else tokens[-RECENT:]:
            place = Place(other, *other.match(place.state, place.length, token))
        return place

    def best_place(self) -> Place:
        """The longest match of the text's end: in the text itself (before its end), or in an earlier one."""
        state = max(self.automaton.link(self.automaton.last), 0)
        own = Place(self.automaton, state, self.automaton.length(state))
        best = max((own, *self._places.values()), key=lambda place: place.length)
        self.matched = best.length
        return best

    def candidates(self, place: Place, depth: int) -> Iterable[Candidate[Place]]:
        """What followed the matched string; where nothing did (the text's end), what followed its longest suffix."""
        automaton, state, length = place
        followers = automaton.followers(state)
        while not followers and state > 0:
            state = automaton.link(state)
            length = automaton.length(state)
            followers = automaton.followers(state)
        total = sum(times for _, times, _ in followers)
        if length == 0 or total == 0:
            return
        for token, times, after in followers:
            chance = self.trust.chance(bucket(length), times / total)
            yield Candidate(token, chance, Place(automaton, after, length + 1))


def bucket(length: int) -> int:
    """Match lengths by order of magnitude: 1, 2, 3-4, 5-8, 9-16, more."""
    return min(max(length - 1, 0).bit_length(), len(PRIOR) - 1)
