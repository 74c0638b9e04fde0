"""Which layers a target should draft with: a short search on text that it wrote itself, for the `self` drafter.

How little a layer changes what passes through it (1 - cosine of what goes in and comes out; Men et al., "ShortGPT",
2024) ranks the layers in one pass. Sets of the least of them, and early exits, are then tried as they will be used:
chains are drafted behind the target's own cache at places all over the text, and compared with the text. What a set
will gain follows from its agreement, the time of its pass, and how the target's own pass grows with its width.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from outrider.bench.growth import pass_seconds
from outrider.errors import OptionError, UnsupportedError
from outrider.simulate import Forecast, best_depth
from outrider.targets.base import Layered, Target
from outrider.types import DraftTree, Outcome, pack

DEPTH = 4  # of the chains that are tried
PLACES = 8  # per text
SHARES = (1 / 8, 1 / 5, 1 / 4, 1 / 3, 2 / 5, 1 / 2)  # of the layers, left out
EXITS = (1 / 2, 3 / 4)  # of the layers, run
WIDTHS = (1, 2, 3, DEPTH + 1)
REPEATS = 4


@dataclass(frozen=True)
class Trial:
    """One set of layers. agreement: share of drafted tokens that the target wrote, of those whose predecessors it did.

    cost: of one pass of the part, in passes of the whole target.
    """

    layers: tuple[int, ...]
    num_layers: int
    agreement: float
    cost: float
    forecast: Forecast

    @property
    def skipped(self) -> tuple[int, ...]:
        return tuple(layer for layer in range(self.num_layers) if layer not in self.layers)

    @property
    def spec(self) -> str:
        """How to ask for it: self:layers=12, or self:skip=10-13+17."""
        if self.layers == tuple(range(len(self.layers))):
            return f"self:layers={len(self.layers)}"
        return f"self:skip={ranges(self.skipped)}"


class LayerSearch:
    """Tries parts of one target on texts (token ids: prompt and the target's own greedy continuation).

    num_prompts[i]: tokens of text i that the target did not write. The target must be idle, with two rows per text.
    """

    def __init__(self, target: Target, texts: Sequence[Sequence[int]], num_prompts: Sequence[int]) -> None:
        if not isinstance(target, Layered) or target.num_layers < 2:
            raise UnsupportedError(f"target {target.info.name!r} cannot run with a part of its layers")
        if 2 * len(texts) > target.info.max_rows:
            raise OptionError(f"{len(texts)} texts need {2 * len(texts)} rows; the target has {target.info.max_rows}")
        self._target = target
        self._num_layers = target.num_layers
        self._part: Callable[[Sequence[int]], Target] = target.part
        self._texts = [list(text) for text in texts]
        self._places = [_places(num_prompts[i], len(text)) for i, text in enumerate(texts)]
        seconds = pass_seconds(target, self._texts[0], WIDTHS, REPEATS)
        self._whole = seconds[1]
        self._growth = {width: value / self._whole for width, value in seconds.items()}

    def run(self) -> Iterator[Trial]:
        """Every trial as it is done."""
        rows = range(len(self._texts))
        self._target.prefill(rows, [text[:-1] for text in self._texts])
        try:
            for layers in candidates(self.influences()):
                yield self.try_layers(layers)
        finally:
            self._target.free(range(2 * len(self._texts)))

    def influences(self) -> list[float]:
        """How much each layer changes what passes through it; the first, which nothing passes into, counts as 1."""
        text = self._texts[0]
        row = 2 * len(self._texts) - 1
        packed = pack([DraftTree.chain(text[0], text[1:])], [row], [0], self._target.info.device)
        hidden = self._target.score(packed, torch.tensor([0]), range(self._num_layers)).hidden
        self._target.free([row])
        return [1.0, *(_change(hidden[i - 1], hidden[i]) for i in range(1, self._num_layers))]

    def try_layers(self, layers: Sequence[int]) -> Trial:
        part = self._part(layers)
        kept = judged = 0
        for place in range(PLACES):
            lengths = [places[place] for places in self._places]
            for index, length in enumerate(lengths):
                self._target.copy(index, len(self._texts) + index, length)
            for text, length, draft in zip(self._texts, lengths, self._draft(part, lengths), strict=True):
                agreed = _agreement(draft, text[length + 1 :])
                kept, judged = kept + agreed, judged + min(agreed + 1, len(draft))
        agreement = kept / judged
        cost = self._time(part) / self._whole
        found = best_depth(agreement, cost, max_depth=DEPTH, target_cost=self._width_cost)
        return Trial(tuple(layers), self._num_layers, agreement, cost, found)

    def _draft(self, part: Target, lengths: Sequence[int]) -> list[list[int]]:
        """DEPTH tokens for every text after `length` committed ones, as the `self` drafter drafts them greedily."""
        rows = [len(self._texts) + index for index in range(len(lengths))]
        newest = [text[length] for text, length in zip(self._texts, lengths, strict=True)]
        drafts: list[list[int]] = [[] for _ in rows]
        for depth in range(DEPTH):
            trees = [DraftTree.root(token) for token in newest]
            packed = pack(trees, rows, [length + depth for length in lengths], part.info.device)
            newest = part.score(packed).logits.argmax(-1).tolist()
            part.commit({row: Outcome((0,), -1) for row in rows})
            for draft, token in zip(drafts, newest, strict=True):
                draft.append(token)
        return drafts

    def _time(self, part: Target) -> float:
        """Seconds of the part's pass over one node, as `pass_seconds` measures the whole target's."""
        self._target.free([len(self._texts)])
        row, text = len(self._texts), self._texts[0]
        self._target.copy(0, row, len(text) - 1)
        packed = pack([DraftTree.root(text[-1])], [row], [len(text) - 1], part.info.device)
        best = float("inf")
        for _ in range(REPEATS):
            start = time.perf_counter()
            part.score(packed).logits[0, 0].item()
            best = min(best, time.perf_counter() - start)
        self._target.truncate(row, len(text) - 1)
        return best

    def _width_cost(self, width: int) -> float:
        """v(width), read off between the widths that were measured."""
        below = max(w for w in self._growth if w <= width)
        above = min((w for w in self._growth if w >= width), default=below)
        share = (width - below) / (above - below) if above > below else 0.0
        return self._growth[below] + share * (self._growth[above] - self._growth[below])


def candidates(influences: Sequence[float]) -> list[tuple[int, ...]]:
    """Sets of layers worth a trial: without the least influential ones, and the first few alone."""
    num_layers = len(influences)
    ranked = sorted(range(1, num_layers), key=influences.__getitem__)
    found: list[tuple[int, ...]] = []
    for share in SHARES:
        left_out = set(ranked[: max(1, round(share * num_layers))])
        found.append(tuple(layer for layer in range(num_layers) if layer not in left_out))
    found += [tuple(range(max(1, int(share * num_layers)))) for share in EXITS]
    return [layers for layers in dict.fromkeys(found) if 0 < len(layers) < num_layers]


def ranges(layers: Sequence[int]) -> str:
    """(10, 11, 12, 17) as 10-12+17."""
    runs = [[layer for _, layer in run] for _, run in groupby(enumerate(layers), key=lambda pair: pair[1] - pair[0])]
    return "+".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _places(num_prompt: int, length: int) -> list[int]:
    """Numbers of committed tokens after which drafts are tried, spread over what the target wrote."""
    first, last = num_prompt - 1, length - 1 - DEPTH
    if last - first < PLACES:
        raise OptionError(f"a text of {length} tokens, {num_prompt} of them the prompt, is too short to try drafts on")
    return [first + (last - first) * i // (PLACES - 1) for i in range(PLACES)]


def _agreement(draft: Sequence[int], text: Sequence[int]) -> int:
    agreed = 0
    while agreed < len(draft) and draft[agreed] == text[agreed]:
        agreed += 1
    return agreed


def _change(before: Tensor, after: Tensor) -> float:
    return 1.0 - float(torch.cosine_similarity(before.float(), after.float(), dim=-1).mean())


def written(completions: Sequence[Any]) -> tuple[list[list[int]], list[int]]:
    """Texts and prompt lengths of completions, as a search wants them; those too short to try drafts on left out."""
    enough = [one for one in completions if len(one.token_ids) > PLACES + DEPTH + 1]
    texts = [[*one.prompt_token_ids, *one.token_ids] for one in enough]
    return texts, [len(one.prompt_token_ids) for one in enough]
