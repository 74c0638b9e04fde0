"""Traces of the toy: trees with branches, a plain run, an error, a character in pieces."""

from pathlib import Path
from typing import Any

from worlds import draft, logits, make_engine, target

from outrider import Engine
from outrider.testing import FunctionDrafter
from outrider.traces import write_trace
from outrider.types import DraftTree

PROMPT = "the kiln held its heat "


class Branching(FunctionDrafter):
    """Two branches: the toy's own good guess, and a wrong sibling first."""

    name = "function"

    def propose_row(self, context: Any) -> DraftTree:
        chain = draft(list(context.tokens), min(3, context.plan.max_depth))
        tokens = (context.root, 97, *chain)
        parents = (-1, 0, 0, *range(2, 1 + len(chain)))
        count = 1 + min(len(tokens) - 1, context.plan.max_nodes)
        return DraftTree(tokens[:count], parents[:count], confidence=(1.0, *[0.5] * (count - 1)))


def engine(drafter: Any = None, **options: Any) -> Engine:
    return Engine(target(logits), drafter or Branching(draft), **options)


def tape(path: Path, *, prompts: bool = False) -> list[Any]:
    """A speculative run and a plain one of the same prompt in a trace at `path`; their completions."""
    made = engine()
    write_trace(made, path, prompts=prompts)
    settings = {"max_new_tokens": 30, "ignore_eos": True}
    return [made.generate(PROMPT, max_depth=depth, **settings) for depth in (4, 0)]


__all__ = ["PROMPT", "Branching", "engine", "make_engine", "tape"]
