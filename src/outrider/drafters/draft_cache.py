"""A draft model's cache: it follows the committed text by itself, and one pass scores many places of many rows.

Before drafting it drops what was rejected and feeds the committed tokens that it lacks (one, or two after a full
acceptance). Knows token ids of the draft model only; laws, trees of the target's tokens and settings are not known
here. A cache holds one path, so a pass that looks at places on several branches scores their way there once more.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from outrider.targets.base import Target
from outrider.types import DraftTree, Outcome, pack

PREFILL_FROM = 17  # more missing tokens than this are prefilled without logits
PREFILL_CHUNK = 256

Path = tuple[int, ...]


class Look(NamedTuple):
    """Places of one row: each path (draft ids) follows the context (draft ids of the committed text)."""

    row: int
    context: Sequence[int]
    paths: Sequence[Path]


class DraftCache:
    """Cache rows of `draft`, one per row that drafts. `admit`, then in every round `follow`, `look`, `keep`, ..."""

    def __init__(self, draft: Target) -> None:
        self.draft = draft
        self._free = list(range(draft.info.max_rows))
        self._slots: dict[int, int] = {}
        self._fed: dict[int, list[int]] = {}
        self._looked: dict[int, DraftTree] = {}

    def admit(self, row: int) -> bool:
        """Whether the row has a cache row, given one now if any is free."""
        if row not in self._slots and self._free:
            self._slots[row] = self._free.pop()
            self._fed[row] = []
        return row in self._slots

    def end(self, row: int) -> None:
        """Forget the row; an unknown one is fine."""
        self._fed.pop(row, None)
        self._looked.pop(row, None)
        if (slot := self._slots.pop(row, None)) is not None:
            self.draft.free([slot])
            self._free.append(slot)

    def in_use(self) -> bool:
        """Whether any row is held."""
        return bool(self._slots or self._fed or self._looked) or len(self._free) != self.draft.info.max_rows

    def follow(self, row: int, context: Sequence[int]) -> None:
        """Drop what was rejected; long stretches that are missing are prefilled at once, the last token never."""
        fed = self._fed[row]
        keep = common_prefix(fed, context, len(context) - 1)
        del fed[keep:]
        self.draft.truncate(self._slots[row], keep)
        while len(context) - len(fed) >= PREFILL_FROM:
            piece = list(context[len(fed) : min(len(fed) + PREFILL_CHUNK, len(context) - 1)])
            self.draft.prefill([self._slots[row]], [piece])
            fed.extend(piece)

    def look(self, looks: Sequence[Look]) -> list[Tensor]:
        """Logits (paths, V of the draft) after each look's paths, all in one pass. `keep` must follow."""
        trees, wanted = list[DraftTree](), list[int]()
        for look in looks:
            tree, ends = _trie([self._beyond(look, path) for path in look.paths])
            wanted += [sum(len(other.tokens) for other in trees) + end for end in ends]
            trees.append(tree)
        slots = [self._slots[look.row] for look in looks]
        packed = pack(trees, slots, [len(self._fed[look.row]) for look in looks], self.draft.info.device)
        logits = self.draft.score(packed, torch.tensor(wanted, device=packed.tokens.device)).logits
        self._looked = {look.row: tree for look, tree in zip(looks, trees, strict=True)}
        return list(logits.split([len(look.paths) for look in looks]))

    def keep(self, looks: Sequence[Look], finished: Iterable[int]) -> None:
        """Keep of the last pass what the next one builds on: what all its paths share, but for their last token.

        looks: those that come next for the same rows; for a row that is finished, the path that is most likely to stay.
        """
        done, outcomes = set(finished), dict[int, Outcome]()
        for look in looks:
            texts = [self._beyond(look, path) for path in look.paths]
            shared = texts[0] if len(texts) == 1 else _shared(texts)
            path = _along(self._looked[look.row], shared if look.row in done else shared[:-1])
            if path:
                outcomes[self._slots[look.row]] = Outcome(tuple(path), -1)
                self._fed[look.row] += [self._looked[look.row].tokens[node] for node in path]
        self.draft.commit(outcomes)
        self._looked = {}

    def _beyond(self, look: Look, path: Path) -> Sequence[int]:
        """What of context and path the row's cache lacks."""
        held = len(self._fed[look.row])
        missing = tuple(look.context[held:]) if held < len(look.context) else ()
        return (*missing, *path[max(0, held - len(look.context)) :])


def common_prefix(one: Sequence[int], other: Sequence[int], limit: int) -> int:
    """How many leading tokens agree, at most `limit`."""
    size = max(0, min(len(one), len(other), limit))
    if list(one[:size]) == list(other[:size]):
        return size
    return next(i for i in range(size) if one[i] != other[i])


def _trie(texts: Sequence[Sequence[int]]) -> tuple[DraftTree, list[int]]:
    """Texts that begin with the same token as one tree, and the node where each ends."""
    tokens, parents, places, ends = [texts[0][0]], [-1], dict[tuple[int, int], int](), list[int]()
    for text in texts:
        node = 0
        for token in text[1:]:
            if (node, token) not in places:
                places[node, token] = len(tokens)
                tokens.append(token)
                parents.append(node)
            node = places[node, token]
        ends.append(node)
    return DraftTree(tuple(tokens), tuple(parents)), ends


def _shared(texts: Sequence[Sequence[int]]) -> Sequence[int]:
    """The beginning that all texts share."""
    size = min(common_prefix(texts[0], text, len(text)) for text in texts)
    return texts[0][:size]


def _along(tree: DraftTree, text: Sequence[int]) -> list[int]:
    """The nodes of the tree that follow `text` from its first token on, as far as they do."""
    path: list[int] = []
    nodes: Sequence[int] = (0,)
    for token in text:
        node = next((node for node in nodes if tree.tokens[node] == token), None)
        if node is None:
            break
        path.append(node)
        nodes = tree.children[node]
    return path
