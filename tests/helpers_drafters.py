"""Drafters of every character: the ones that may be wrong in any way, and the ones that draw trees.

`CHARACTERS` are well-formed however bad, so a run with them equals the plain run. `NONSENSE` break the contract, so
their own request ends with a DrafterError and no other does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from helpers import World
from helpers_reference import next_token
from outrider.drafters.base import DraftContext, Drafter
from outrider.drafters.model import ModelDrafter
from outrider.sampling.process import draft_law, draw_without_replacement
from outrider.testing import FunctionDrafter
from outrider.types import DraftTree


@dataclass
class Oracle(Drafter):
    """Knows what the target will write, but for a user's processors. wrong(d): does it err at depth d, from 1."""

    name: ClassVar[str] = "oracle"
    world: World
    eos: Sequence[int] = ()
    wrong: Callable[[int], bool] = lambda depth: False

    def propose_row(self, context: DraftContext) -> DraftTree:
        ends = {*(() if context.params.ignore_eos else self.eos), *(context.params.stop_token_ids or ())}
        params = replace(context.params, logits_processors=())
        tokens, drafted = list(context.tokens), []
        for depth in range(1, context.plan.max_depth + 1):
            logits = self.world.target_logits(tokens)
            right = next_token(logits, tokens, context.num_prompt, params, ends)
            drafted.append((right + 1) % self.world.vocab_size if self.wrong(depth) else right)
            tokens.append(right)
        return DraftTree.chain(context.root, drafted)


@dataclass
class Reciter(Drafter):
    """Knows whole texts (prompt and answer) by heart. wrong(d): does it err at depth d, from 1."""

    name: ClassVar[str] = "reciter"
    texts: Sequence[Sequence[int]]
    wrong: Callable[[int], bool] = lambda depth: False

    def propose_row(self, context: DraftContext) -> DraftTree:
        so_far = list(context.tokens)
        known = next((text for text in self.texts if list(text[: len(so_far)]) == so_far), so_far)
        rest = known[len(so_far) :][: context.plan.max_depth]
        return DraftTree.chain(context.root, [token + 1 if self.wrong(d) else token for d, token in enumerate(rest, 1)])


@dataclass
class DrawnTree(Drafter):
    """Draws `width` children without replacement under every node down to `depth`, from the world's draft law.

    claims: what draft_probs says instead of the law drawn from (a negative control); None: the truth.
    """

    name: ClassVar[str] = "drawn-tree"
    world: World
    width: int = 2
    depth: int = 3
    claims: Callable[[torch.Tensor], torch.Tensor] | None = None
    asked: int = field(default=0, init=False)

    def propose_row(self, context: DraftContext) -> DraftTree:
        self.asked += 1
        tokens, parents, laws = [context.root], [-1], []
        depths = [0]
        node = 0
        while node < len(tokens):
            path = DraftTree(tuple(tokens), tuple(parents)).path_tokens(node)
            history = [*context.tokens, *path]
            logits = self.world.draft_logits(history)
            ends = context.params.end_token_ids(())
            log_probs = draft_law(logits, history, context.num_prompt, context.params, ends)
            law = log_probs.exp()
            laws.append(self.claims(law) if self.claims else law)
            if depths[node] < min(self.depth, context.plan.max_depth):
                drawn = draw_without_replacement(log_probs, context.noise, len(history), self.width, context.stream)
                tokens += drawn
                parents += [node] * len(drawn)
                depths += [depths[node] + 1] * len(drawn)
            node += 1
        return DraftTree(tuple(tokens), tuple(parents), torch.stack(laws) if context.want_probs else None)


def chosen_tree(world: World, width: int = 2, depth: int = 3) -> Callable[[list[int], int], DraftTree]:
    """The `width` likeliest children of every node (chosen, not drawn), breadth first."""

    def propose(tokens: list[int], max_depth: int) -> DraftTree:
        texts, parents, level = [tokens], [-1], [0]
        for _ in range(min(depth, max_depth)):
            new: list[int] = []
            for node in level:
                for token in world.draft_logits(texts[node]).topk(width).indices.tolist():
                    new.append(len(texts))
                    texts.append([*texts[node], token])
                    parents.append(node)
            level = new
        return DraftTree(tuple(text[-1] for text in texts), tuple(parents))

    return propose


def _random(world: World) -> Drafter:
    return FunctionDrafter(lambda tokens, depth: [hash((*tokens, i)) % world.vocab_size for i in range(depth)])


def _repeating_siblings(world: World) -> Drafter:
    def propose(tokens: list[int], depth: int) -> DraftTree:
        right = int(world.target_logits(tokens).argmax())
        return DraftTree((tokens[-1], right, right, 0, right, right), (-1, 0, 0, 1, 1, 2))

    return FunctionDrafter(propose)


def _illegal(world: World) -> Drafter:
    bad = (world.vocab_size, -1, 10**9)

    def propose(tokens: list[int], depth: int) -> list[int]:
        right = int(world.target_logits(tokens).argmax())
        return [right, bad[len(tokens) % 3], 0] if len(tokens) % 2 else [bad[len(tokens) % 3], 0]

    return FunctionDrafter(propose)


CHARACTERS: dict[str, Callable[[World, Sequence[int]], Drafter]] = {
    "right": lambda world, eos: Oracle(world, eos),
    "wrong": lambda world, eos: Oracle(world, eos, wrong=lambda depth: True),
    "wrong-second": lambda world, eos: Oracle(world, eos, wrong=lambda depth: depth == 2),
    "random": lambda world, eos: _random(world),
    "empty": lambda world, eos: FunctionDrafter(lambda tokens, depth: []),
    "too-long": lambda world, eos: FunctionDrafter(lambda tokens, depth: [tokens[-1]] * 500),
    "repeating-siblings": lambda world, eos: _repeating_siblings(world),
    "ends": lambda world, eos: FunctionDrafter(lambda tokens, depth: [(eos or (0,))[0]] * (len(tokens) % 2 * depth)),
    "illegal": lambda world, eos: _illegal(world),
    "chosen-tree": lambda world, eos: FunctionDrafter(chosen_tree(world)),
    "drawn-tree": lambda world, eos: DrawnTree(world),
    "model-tree": lambda world, eos: ModelDrafter(world.draft(), branches=3, beam=2),
    "wide-tree": lambda world, eos: FunctionDrafter(chosen_tree(world, width=world.vocab_size, depth=1)),
}
BRANCHING = ("repeating-siblings", "chosen-tree", "drawn-tree", "wide-tree", "model-tree")


def _raise(tokens: list[int], depth: int) -> list[int]:
    raise RuntimeError("no idea")


NONSENSE: dict[str, Callable[[list[int], int], object]] = {
    "raises": _raise,
    "none": lambda tokens, depth: None,
    "number": lambda tokens, depth: 3,
    "words": lambda tokens, depth: ["a", "b"],
    "floats": lambda tokens, depth: [0.0, 1.5],
    "wrong-root": lambda tokens, depth: DraftTree((tokens[-1] + 1, 0), (-1, 0)),
    "no-root": lambda tokens, depth: DraftTree((), ()),
    "cycle": lambda tokens, depth: DraftTree((tokens[-1], 0, 0), (-1, 2, 1)),
    "two-roots": lambda tokens, depth: DraftTree((tokens[-1], 0), (-1, -1)),
    "parents-short": lambda tokens, depth: DraftTree((tokens[-1], 0, 0), (-1, 0)),
    "probs-short": lambda tokens, depth: DraftTree.chain(tokens[-1], [0, 0], torch.ones(1, 8) / 8),
    "probs-narrow": lambda tokens, depth: DraftTree.chain(tokens[-1], [0, 0], torch.ones(3, 5) / 5),
}
