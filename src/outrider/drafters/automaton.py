"""A suffix automaton that grows with a text: which substrings it holds, how often, and what followed them.

Online construction in amortised constant time per token, at most two states per token (Blumer et al. 1985). A state
stands for substrings that end at the same places; its link is the longest proper suffix that ends at more places.
"""

from collections.abc import Iterable

COUNTED = 64  # suffixes of the newest token whose counts are raised; longer chains only occur in text like "aaaa..."


class SuffixAutomaton:
    """State 0 is the empty string. tokens is the text so far; last is the state of the whole text."""

    def __init__(self) -> None:
        self.num_tokens = 0
        self.last = 0
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._count = [0]

    def extend(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            self._append(token)

    def length(self, state: int) -> int:
        """Tokens in the state's longest substring."""
        return self._length[state]

    def link(self, state: int) -> int:
        """The state of the longest suffix that ends at more places; -1 for the empty string."""
        return self._link[state]

    def step(self, state: int, token: int) -> int | None:
        """The state after one more token; None if that was never seen."""
        return self._next[state].get(token)

    def followers(self, state: int) -> list[tuple[int, int, int]]:
        """(token, times it followed, state after it) for all that ever followed the state's substrings."""
        return [(token, self._count[after], after) for token, after in self._next[state].items()]

    def match(self, state: int, length: int, token: int) -> tuple[int, int]:
        """State and length of the longest suffix of (a matched string, token) that occurs in the text."""
        while state > 0 and token not in self._next[state]:
            state = self._link[state]
            length = self._length[state]
        after = self._next[state].get(token)
        return (0, 0) if after is None else (after, length + 1)

    def _append(self, token: int) -> None:
        new = self._new_state(self._length[self.last] + 1, {}, 0, 0)
        state = self.last
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        if state >= 0:
            self._link[new] = self._split(state, token)
        self.last, self.num_tokens = new, self.num_tokens + 1
        self._raise_counts(new)

    def _split(self, state: int, token: int) -> int:
        """The state of exactly (state's longest substring, token); cloned if it shared a state with longer ones."""
        other = self._next[state][token]
        if self._length[other] == self._length[state] + 1:
            return other
        clone = self._new_state(self._length[state] + 1, dict(self._next[other]), self._link[other], self._count[other])
        while state >= 0 and self._next[state].get(token) == other:
            self._next[state][token] = clone
            state = self._link[state]
        self._link[other] = clone
        return clone

    def _new_state(self, length: int, following: dict[int, int], link: int, count: int) -> int:
        self._next.append(following)
        self._link.append(link)
        self._length.append(length)
        self._count.append(count)
        return len(self._link) - 1

    def _raise_counts(self, state: int) -> None:
        for _ in range(COUNTED):
            if state <= 0:
                return
            self._count[state] += 1
            state = self._link[state]
