"""Drafters over texts that are known already: what would have been kept, without a pass of the target.

Under the rule `identical` the text does not depend on what is drafted, so a known answer tells exactly which draft
tokens would have been kept. Drafters are run over it for real, round by round, in each setting. One that drafts chains
with a model is asked once at every place instead (forced.py); a chain is kept as far as its tokens are right.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from outrider.drafters.base import DraftContext, Drafter
from outrider.drafters.fit import fit
from outrider.planner.traffic import Sample
from outrider.sampling.noise import Noise
from outrider.sampling.params import SamplingParams
from outrider.targets.base import Target
from outrider.types import DraftTree, Outcome, Plan, Scored, pack

ROW = 0
CHUNK = 256


@dataclass(frozen=True, order=True)
class Setting:
    """What a fixed policy would always do. max_nodes equal to max_depth: a chain."""

    drafter: str
    max_depth: int
    max_nodes: int

    def __str__(self) -> str:
        if self.max_depth == 0:
            return "plain"
        wide = "" if self.max_nodes <= self.max_depth else f", {self.max_nodes} nodes"
        return f"{self.drafter}, depth {self.max_depth}{wide}"


PLAIN = Setting("none", 0, 0)


@dataclass(frozen=True)
class Rounds:
    """One sample in one setting: rounds until it was written. kept[i]: rounds in which level i+1 was kept.

    nodes, levels: drafted in all; asked: rounds in which a draft was asked for.
    """

    tokens: int
    rounds: int
    nodes: int
    levels: int
    kept: tuple[int, ...] = ()
    asked: int = 0

    def __add__(self, other: "Rounds") -> "Rounds":
        size = max(len(self.kept), len(other.kept))
        both = [(*one.kept, *[0] * (size - len(one.kept))) for one in (self, other)]
        return Rounds(
            self.tokens + other.tokens,
            self.rounds + other.rounds,
            self.nodes + other.nodes,
            self.levels + other.levels,
            tuple(a + b for a, b in zip(*both, strict=True)),
            self.asked + other.asked,
        )


def plain_rounds(sample: Sample) -> Rounds:
    return Rounds(len(sample.answer), len(sample.answer), 0, 0)


class TextLogits:
    """The target's logits after every token of a text, computed in one pass when first asked for."""

    def __init__(self, target: Target, sample: Sample) -> None:
        self._target, self._sample = target, sample

    def after(self, places: Sequence[int]) -> Tensor:
        """(places, V): logits after the answer's first `place` tokens."""
        return self._all[list(places)]

    @cached_property
    def _all(self) -> Tensor:
        sample = self._sample
        self._target.free([ROW])
        try:
            read(self._target, sample.prompt[:-1])
            chain = DraftTree.chain(sample.prompt[-1], sample.answer)
            packed = pack([chain], [ROW], [len(sample.prompt) - 1], self._target.info.device)
            return self._target.score(packed).logits
        finally:
            self._target.free([ROW])


def read(target: Target, tokens: Sequence[int]) -> None:
    """Put the tokens into the target's first row, chunk by chunk."""
    for start in range(0, len(tokens), CHUNK):
        target.prefill([ROW], [list(tokens[start : start + CHUNK])])


def replay_run(drafter: Drafter, sample: Sample, setting: Setting, target: Target, logits: TextLogits) -> Rounds:
    """A drafter run over the answer as the engine would run it."""
    plan = Plan(setting.drafter, setting.max_depth, max(setting.max_nodes, setting.max_depth))
    params = greedy(target)
    done = Rounds(0, 0, 0, 0)
    place, answer = 0, sample.answer
    drafter.begin(ROW, sample.prompt)
    try:
        while place < len(answer):
            room = len(answer) - place - 1
            context = context_at(sample, place, replace(plan, max_depth=min(plan.max_depth, room)), params)
            tree = fit(drafter.propose([context])[0], context, target.info.vocab_size) if room else _root(context)
            path = _kept(tree, answer[place:-1])
            _observe(drafter, tree, path, answer[place + len(path) - 1], place, logits)
            done += _round(tree, len(path) - 1)
            place += len(path)
    finally:
        drafter.end(ROW)
    return done


def replay_chain(right: Sequence[bool], depth: int) -> Rounds:
    """A drafter whose token at place i would be right or not: chains of `depth` over the whole answer."""
    done, place = Rounds(0, 0, 0, 0), 0
    while place < len(right):
        room = min(depth, len(right) - place - 1)
        accepted = next((n for n in range(room) if not right[place + n]), room)
        kept = tuple(1 for _ in range(accepted))
        done += Rounds(accepted + 1, 1, room, room, kept, asked=int(room > 0))
        place += accepted + 1
    return done


def context_at(sample: Sample, place: int, plan: Plan, params: SamplingParams) -> DraftContext:
    """What the engine would show a drafter after the answer's first `place` tokens."""
    return DraftContext(
        row=ROW,
        tokens=[*sample.prompt, *sample.answer[:place]],
        num_prompt=len(sample.prompt),
        params=params,
        noise=Noise(0),
        stream="token",
        plan=plan,
        want_probs=False,
    )


def greedy(target: Target) -> SamplingParams:
    return SamplingParams(temperature=0.0).resolve({}, target.info.eos_token_ids, target.info.vocab_size)


def _root(context: DraftContext) -> DraftTree:
    return DraftTree.root(context.root)


def _kept(tree: DraftTree, written: Sequence[int]) -> list[int]:
    """The nodes that the text keeps, root first."""
    path = [0]
    for token in written:
        following = next((child for child in tree.children[path[-1]] if tree.tokens[child] == token), None)
        if following is None:
            break
        path.append(following)
    return path


def _round(tree: DraftTree, accepted: int) -> Rounds:
    return Rounds(accepted + 1, 1, tree.num_drafted, tree.depth, tuple(1 for _ in range(accepted)), asked=1)


def _observe(
    drafter: Drafter, tree: DraftTree, path: list[int], next_token: int, place: int, logits: TextLogits
) -> None:
    """Tell the drafter what became of its tree; of nodes off the kept path the target's opinion is not known."""
    if type(drafter).observe is Drafter.observe:
        return
    shown = tree.keep(path) if drafter.watches_logits else tree
    outcome = Outcome(tuple(range(len(path))) if drafter.watches_logits else tuple(path), next_token)
    if drafter.watches_logits:
        scored = Scored(logits.after(range(place, place + len(path))))
        drafter.observe(ROW, shown, outcome, scored, range(len(path)))
    else:
        drafter.observe(ROW, shown, outcome, Scored(torch.empty(0, 0)), range(len(tree.tokens)))
