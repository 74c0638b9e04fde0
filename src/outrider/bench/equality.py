"""Do two systems write the same text, and if not, does rounding explain it? A speed-up is printed only if so.

Within our family the certificate's measure decides: on a bitwise target nothing may differ. Across implementations
the yardstick is how far their logits lie apart at that very place (ours; transformers' in one pass, and step by step as
it decodes), which must itself be no more than rounding can do.
"""

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True)
class Equality:
    """How the texts of two systems compare over all prompts. joins_families: ours against transformers'."""

    system: str
    reference: str
    equal: int
    near_ties: int
    not_explained: int
    worst: str = ""
    joins_families: bool = False

    @property
    def sound(self) -> bool:
        """A ratio of the two speeds may be printed."""
        return self.not_explained == 0


class Arbiter:
    """Compares texts. model: transformers' module on the same weights, or None if only ours are compared."""

    def __init__(self, target: Target, model: Any = None) -> None:
        self._target = target
        self._probe = Probe(target)
        self._model = model

    def compare(
        self, system: System, reference: System, runs: Sequence[Run], prompts: Mapping[str, Sequence[int]]
    ) -> Equality:
        """prompts: token ids by id. Every repeat counts: a text must not change either."""
        across = "transformers" in (system.family, reference.family)
        own, others = _texts(runs, system.name), _texts(runs, reference.name)
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
        )

    def _judge(
        self, own: set[tuple[int, ...]], other: set[tuple[int, ...]], prompt: Sequence[int], across: bool
    ) -> tuple[Verdict, str]:
        worst: tuple[Verdict, str] = ("equal", "")
        for one in own:
            for two in other:
                if one != two:
                    verdict, detail = self._explain(one, two, prompt, across)
                    worst = (verdict, detail) if worst[0] != "NOT EXPLAINED" else worst
        return worst

    def _explain(
        self, one: tuple[int, ...], two: tuple[int, ...], prompt: Sequence[int], across: bool
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

    def _measure(self, tokens: list[int], num_prompt: int, candidates: tuple[int, int], across: bool) -> Measured:
        greedy = SamplingParams(temperature=0.0).resolve({}, (), self._target.info.vocab_size)
        measured = self._probe.measure(tokens, num_prompt, greedy, candidates)
        if not across:
            return measured
        rows = [measured.scores.cpu(), *self._their_logits(tokens, num_prompt)]
        watched = torch.tensor([*candidates, *(int(row.argmax()) for row in rows)])
        seen = torch.stack([row[watched] for row in rows])
        apart = float((seen.amax(0) - seen.amin(0)).max())
        return replace(measured, scores=rows[0], noise=max(measured.noise, apart))

    @torch.no_grad()
    def _their_logits(self, tokens: list[int], num_prompt: int) -> list[Tensor]:
        """transformers' logits (V,) after the text: in one pass, and one token a pass behind the prompt."""
        device, size = self._model.device, self._target.info.vocab_size
        whole = self._model(torch.tensor([tokens], device=device), logits_to_keep=1).logits[0, -1]
        out, cache = None, None
        for piece in (tokens[:num_prompt], *([token] for token in tokens[num_prompt:])):
            out = self._model(torch.tensor([piece], device=device), cache=cache, use_cache=True)
            cache = out.cache
        assert out is not None
        return [logits[:size].double().cpu() for logits in (whole, out.logits[0, -1])]


_WORST_FIRST: tuple[Verdict, ...] = ("NOT EXPLAINED", "near tie")


def _texts(runs: Sequence[Run], system: str) -> dict[str, set[tuple[int, ...]]]:
    """Every text that a system wrote, by prompt; more than one if its repeats differ."""
    texts: dict[str, set[tuple[int, ...]]] = {}
    for run in runs:
        if run.system == system:
            texts.setdefault(run.prompt_id, set()).add(run.timing.token_ids)
    return texts
