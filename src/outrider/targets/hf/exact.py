"""The test at load: does a node's result, bit for bit, not depend on who shares its pass?

A few random tokens are scored in one pass of 17, in narrow steps after prefill, in a batch of two and as a tree; logits
must be equal in every bit. It confirms a construction (attention.py, linear.py) on this machine; it is no proof.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from outrider.types import DraftTree, Outcome, Packed, Scored, pack

NUM_TOKENS = 17
STEPS = (2, 3, 5, 6, 1)  # widths; together NUM_TOKENS
BRANCH = 3  # the tree hangs below this many committed tokens


class Testable(Protocol):
    """The part of a target that the test uses."""

    def prefill(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None: ...
    def score(self, packed: Packed, want: Tensor | None = None, hidden_layers: Sequence[int] = ()) -> Scored: ...
    def commit(self, outcomes: dict[int, Outcome]) -> None: ...
    def length(self, row: int) -> int: ...
    def free(self, rows: Sequence[int]) -> None: ...


def differences(
    target: Testable, vocab_size: int, max_rows: int, device: torch.device, max_length: int = NUM_TOKENS
) -> list[str]:
    """The ways in which results depended on the shape of the pass; empty if none did. Rows 0 and 1 are left free."""
    count = min(NUM_TOKENS, max_length)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(vocab_size, (NUM_TOKENS,), generator=generator).tolist()[:count]
    try:
        reference = _score(target, [DraftTree.chain(tokens[0], tokens[1:])], [0], device)
        found = _narrow(target, tokens, reference, device)
        if count > BRANCH + 5:
            found += _neighbours(target, tokens, reference, max_rows, device)
        return found
    finally:
        target.free([0, 1][:max_rows])


def _narrow(target: Testable, tokens: list[int], reference: Tensor, device: torch.device) -> list[str]:
    """Steps of several widths, one of them committed by prefill."""
    found, start = [], 0
    for width in STEPS:
        piece = tokens[start : start + width]
        if not piece:
            break
        logits = _score(target, [DraftTree.chain(piece[0], piece[1:])], [0], device)
        if not torch.equal(logits, reference[start : start + len(piece)]):
            found.append(f"{len(piece)} nodes against {len(tokens)}")
        if width == STEPS[1]:
            target.prefill([0], [piece])
        else:
            target.commit({0: Outcome(tuple(range(len(piece))), 0)})
        start += len(piece)
    target.free([0])
    return found


def _neighbours(
    target: Testable, tokens: list[int], reference: Tensor, max_rows: int, device: torch.device
) -> list[str]:
    """A tree whose main branch is the text, beside a chain of 8 in another row."""
    target.prefill([0], [tokens[:BRANCH]])
    text, other = tokens[BRANCH : BRANCH + 3], tokens[-1]
    tree = DraftTree((text[0], other, text[1], other, text[2]), (-1, 0, 0, 2, 2))
    trees, rows = [tree], [0]
    if max_rows > 1:
        trees.append(DraftTree.chain(tokens[0], tokens[1:8]))
        rows.append(1)
    logits = _score(target, trees, rows, device)
    found = []
    if not torch.equal(logits[[0, 2, 4]], reference[BRANCH : BRANCH + 3]):
        found.append("a tree against a chain")
    if max_rows > 1 and not torch.equal(logits[5:], reference[:8]):
        found.append("a batch of two against one row")
    return found


def _score(target: Testable, trees: list[DraftTree], rows: list[int], device: torch.device) -> Tensor:
    lengths = [target.length(row) for row in rows]
    return target.score(pack(trees, rows, lengths, device)).logits
