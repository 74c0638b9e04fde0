"""No drafts: plain decoding, as a drafter like any other."""

from dataclasses import dataclass
from typing import ClassVar

from outrider.drafters.base import DraftContext, Drafter
from outrider.types import DraftTree


@dataclass
class NoDrafter(Drafter):
    """Proposes nothing: every round is a tree of one node, which is plain decoding."""

    name: ClassVar[str] = "none"
    preferred_depth: ClassVar[int] = 0

    def propose_row(self, context: DraftContext) -> DraftTree:
        return DraftTree.root(context.root)
