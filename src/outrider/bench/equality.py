"""Do two systems write the same text, and if not, does rounding explain it? A speed-up is printed only if so.

Within our family the certificate's measure decides: on a bitwise target nothing may differ. Across implementations
the yardstick is how far their logits lie apart at that very place (ours; transformers' in one pass, and step by step as
it decodes), which must itself be no more than rounding can do.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from outrider.bench.runs import Run, System
from outrider.certify.judge import first_difference
from outrider.certify.probe import Measured, Probe, gap
from outrider.certify.records import Verdict
from outrider.sampling.params import SamplingParams
from outrider.targets.base import Target

TheirLogits = Callable[[Sequence[int], int], list[Tensor]]
_Texts = dict[str, set[tuple[int, ...]]]


@dataclass(frozen=True)
class Equality:
    """How the texts of two systems compare over all prompts. joins_families: ours against those of reference_family.

    other_weights: the two families compute with different weights, so texts may differ and nobody is to blame; they are
    only counted.
    """

    system: str
    reference: str
    equal: int
    near_ties: int
    not_explained: int
    worst: str = ""
    joins_families: bool = False
    reference_family: str = "transformers"
    other_weights: bool = False

    @property
    def sound(self) -> bool:
        """A ratio of the two speeds may be printed."""
        return self.not_explained == 0


class Arbiter:
    """Compares texts. model: transformers' module on the same weights, or None if it is not compared.

    peers: of other families, what gives their logits (columns) after a text and the number of its prompt's tokens.
    other_weights: families whose weights are not ours.
    """

    def __init__(
        self,
        target: Target,
        model: Any = None,
        peers: Mapping[str, TheirLogits] | None = None,
        other_weights: Collection[str] = (),
    ) -> None:
        self._other_weights = frozenset(other_weights)
        self._target = target
        self._probe = Probe(target)
        self._model = model
        self._peers = dict(peers or {})

    def compare(
        self, system: System, reference: System, runs: Sequence[Run], prompts: Mapping[str, Sequence[int]]
    ) -> Equality:
        """prompts: token ids by id. Every repeat counts: a text must not change either."""
        across = next((one.family for one in (system, reference) if one.family != "outrider"), None)
        own, others = _texts(runs, system.name), _texts(runs, reference.name)
        if self._other_weights & ({system.family, reference.family} if system.family != reference.family else set()):
            return _counted(system, reference, own, others, prompts)
        judged = {name: self._judge(own[name], others[name], tokens, across) for name, tokens in prompts.items()}
        verdicts = [verdict for verdict, _ in judged.values()]
        details = [
            f"{name}: {detail}" for verdict in _WORST_FIRST for name, (v, detail) in judged.items() if v == verdict
        ]
        return Equality(
            system.name,
            reference.name,
            equal=verdicts.count("equal"),
            near_ties=verdicts.count("near tie"),
            not_explained=verdicts.count("NOT EXPLAINED"),
            worst=details[0] if details else "",
            joins_families=system.family != reference.family,
            reference_family=reference.family,
        )

    def _judge(
        self, own: set[tuple[int, ...]], other: set[tuple[int, ...]], prompt: Sequence[int], across: str | None
    ) -> tuple[Verdict, str]:
        worst: tuple[Verdict, str] = ("equal", "")
        for one in own:
            for two in other:
                if one != two:
                    verdict, detail = self._explain(one, two, prompt, across)
                    worst = (verdict, detail) if worst[0] != "NOT EXPLAINED" else worst
        return worst

    def _explain(
        self, one: tuple[int, ...], two: tuple[int, ...], prompt: Sequence[int], across: str | None
    ) -> tuple[Verdict, str]:
        place, first, second = first_difference(one, two)
        if first is None or second is None:
            return "NOT EXPLAINED", f"one text ends at token {place}, the other goes on"
        if not across and self._target.info.exact == "bitwise":
            return "NOT EXPLAINED", f"token {place} differs on a target that claims bitwise passes"
        measured = self._measure([*prompt, *one[:place]], len(prompt), (first, second), across)
        between = gap(measured.scores, first, second)
        detail = f"token {place}, gap {between:.3g}, noise {measured.noise:.3g}, tolerance {measured.tolerance:.3g}"
        return ("near tie" if between <= measured.tolerance else "NOT EXPLAINED"), detail

    def _measure(self, tokens: list[int], num_prompt: int, candidates: tuple[int, int], across: str | None) -> Measured:
        greedy = SamplingParams(temperature=0.0).resolve({}, (), self._target.info.vocab_size)
        measured = self._probe.measure(tokens, num_prompt, greedy, candidates)
        if across is None:
            return measured
        rows = [measured.scores.cpu(), *self._their_logits(tokens, num_prompt, across)]
        watched = torch.tensor([*candidates, *(int(row.argmax()) for row in rows)])
        seen = torch.stack([row[watched] for row in rows])
        apart = float((seen.amax(0) - seen.amin(0)).max())
        return replace(measured, scores=rows[0], noise=max(measured.noise, apart))

    def _their_logits(self, tokens: Sequence[int], num_prompt: int, family: str = "transformers") -> list[Tensor]:
        """A family's logits (V,) after the text, from passes of different widths."""
        find = self._peers.get(family, self._transformers_logits)
        return [row[: self._target.info.vocab_size].double().cpu() for row in find(tokens, num_prompt)]

    @torch.no_grad()
    def _transformers_logits(self, tokens: Sequence[int], num_prompt: int) -> list[Tensor]:
        """transformers' own: in one pass, and one token a pass behind the prompt."""
        device = self._model.device
        whole = self._model(torch.tensor([list(tokens)], device=device), logits_to_keep=1).logits[0, -1]
        out, cache = None, None
        for piece in (list(tokens[:num_prompt]), *([token] for token in tokens[num_prompt:])):
            out = self._model(torch.tensor([piece], device=device), cache=cache, use_cache=True)
            cache = out.cache
        assert out is not None
        return [whole, out.logits[0, -1]]


def _counted(
    system: System, reference: System, own: _Texts, others: _Texts, prompts: Mapping[str, Sequence[int]]
) -> Equality:
    """Texts of different weights: how many are equal nevertheless."""
    equal = sum(own[name] == others[name] for name in prompts)
    said = f"other weights: {len(prompts) - equal} of {len(prompts)} texts differ"
    return Equality(system.name, reference.name, equal, 0, 0, said, True, reference.family, other_weights=True)


_WORST_FIRST: tuple[Verdict, ...] = ("NOT EXPLAINED", "near tie")


def _texts(runs: Sequence[Run], system: str) -> _Texts:
    """Every text that a system wrote, by prompt; more than one if its repeats differ."""
    texts: _Texts = {}
    for run in runs:
        if run.system == system:
            texts.setdefault(run.prompt_id, set()).add(run.timing.token_ids)
    return texts
