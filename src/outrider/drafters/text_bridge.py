"""A draft written as text by a model of any vocabulary: its likeliest words, cut into the target's tokens afterwards.

The tokens are chosen, not drawn, so there is no draft law: rules take each as a point mass. A block that does not read
exactly as the draft wrote it, once cut into the target's tokens, is dropped. Source: universal assisted generation
(Timor et al. 2024), and string-level verification in Timor et al. (2025).
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from outrider.drafters.base import DraftContext
from outrider.drafters.draft_cache import Look, Path
from outrider.drafters.expansion import Shape
from outrider.drafters.retelling import UNKNOWN, told_back
from outrider.targets.base import Tokenizer
from outrider.types import DraftTree


class Tongues(NamedTuple):
    """Both tokenizers, the draft's end tokens, and the id that each column of its logits speaks of (None: all ids)."""

    draft: Tokenizer
    target: Tokenizer
    draft_ends: frozenset[int]
    columns: Sequence[int] | None = None


class TextDraft:
    """Writes one row's draft, with the methods of `Expansion`. draft_ids: the committed text in the draft's ids."""

    def __init__(
        self,
        context: DraftContext,
        depth: int,
        shape: Shape,
        draft_ids: Sequence[int],
        tongues: Tongues,
    ) -> None:
        self.row = context.row
        self._context = context
        self._depth = depth
        self._shape = shape
        self._draft_ids = draft_ids
        self._tongues = tongues
        self._path: Path = ()
        self._survival = [1.0]
        self.wanted = depth > 0

    def look(self) -> Look:
        return Look(self.row, self._draft_ids, [self._path])

    def likeliest(self) -> Look:
        return self.look()

    def take(self, logits: Sequence[Tensor]) -> None:
        """logits[0]: (V of the draft,) after what was written so far. Writes one token more."""
        law = logits[0].float().log_softmax(0)
        column = int(law.argmax())
        columns = self._tongues.columns
        token = column if columns is None else columns[column]
        chance = float(law[column].exp())
        if token in self._tongues.draft_ends or not chance > 0:
            self.wanted = False
            return
        self._path = (*self._path, token)
        self._survival.append(self._survival[-1] * chance)
        self.wanted = (
            len(self._path) < self._depth
            and chance >= self._shape.min_confidence
            and self._survival[-1] >= self._shape.min_survival
        )

    def tree(self, note: str = "") -> DraftTree:
        """The text as a chain of the target's tokens, as long as the plan allows."""
        texts = self._texts()
        tokens = told_back(self._tongues.target, self._context.tokens, texts[-1]) if texts[-1] else []
        tokens = tokens[: min(self._context.plan.max_depth, self._context.plan.max_nodes)]
        if not tokens:
            return DraftTree.root(self._context.root, note)
        return DraftTree.chain(self._context.root, tokens, confidence=self._chances(tokens, texts))

    def _texts(self) -> list[str]:
        """What had been written after each draft token; characters that are not whole are left for the next."""
        lead = list(self._draft_ids[-1:])
        start = len(self._decode(lead))
        return [
            self._decode([*lead, *self._path[:count]])[start:].rstrip(UNKNOWN) for count in range(len(self._path) + 1)
        ]

    def _chances(self, tokens: Sequence[int], texts: Sequence[str]) -> list[float]:
        """Of each token the survival of the draft tokens that it needed, over that of those its elders needed."""
        chances, before = list[float](), 1.0
        for count in range(1, len(tokens) + 1):
            length = len(self._tongues.target.decode(list(tokens[:count]), skip_special_tokens=False))
            needed = next((i for i, text in enumerate(texts) if len(text) >= length), len(texts) - 1)
            chances.append(self._survival[needed] / before)
            before = self._survival[needed]
        return chances

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tongues.draft.decode(list(ids), skip_special_tokens=False)
