"""Targets and drafters made of plain functions, for tests and for understanding: no model, no download.

target = FunctionTarget(lambda tokens: [0.0, 1.0, 2.0], vocab_size=3)
drafter = FunctionDrafter(lambda tokens, max_depth: [2] * max_depth)
Engine(target, drafter).generate([0], max_new_tokens=4).token_ids == (2, 2, 2, 2)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from outrider.drafters.base import DraftContext, Drafter
from outrider.targets.toy import FunctionTarget
from outrider.types import DraftTree

__all__ = ["FunctionDrafter", "FunctionTarget"]


@dataclass
class FunctionDrafter(Drafter):
    """Drafts the chain that `propose(tokens, max_depth)` returns (chosen, not drawn), or the tree if it returns one."""

    name: ClassVar[str] = "function"

    function: Callable[[list[int], int], Sequence[int] | DraftTree]

    def __init__(self, propose: Callable[[list[int], int], Sequence[int] | DraftTree]) -> None:
        self.function = propose  # `propose` itself is the method that every drafter has

    def propose_row(self, context: DraftContext) -> DraftTree:
        answer = self.function(list(context.tokens), context.plan.max_depth)
        return answer if isinstance(answer, DraftTree) else DraftTree.chain(context.root, answer)
