"""The engine: continuous batches of exact speculative generation. It touches no keys, values or settings.

One round runs in one direction: plan, propose, score, probabilities, accept, commit, observe, deliver. Rows join and
leave between rounds, each with its own settings, drafter, depth and progress. Not thread-safe: one thread steps it.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch

from outrider.acceptance import Rule, make_rule
from outrider.drafters.base import Drafter, TargetView
from outrider.drafters.none import NoDrafter
from outrider.engine.completion import Completion, TokenEvent
from outrider.engine.drafting import Drafting
from outrider.engine.request import Prompt, Request, encode_prompt
from outrider.engine.row import Row, Taken
from outrider.engine.watch import Stopwatch
from outrider.errors import DrafterError, OptionError, TargetError, UnsupportedError
from outrider.policy.base import Policy
from outrider.policy.fixed import FixedPolicy
from outrider.sampling.params import SamplingParams
from outrider.targets.base import Target
from outrider.types import DraftTree, Packed, Plan, RoundStats, RowRound, Scored, pack


@dataclass(frozen=True)
class Handle:
    """A submitted request. Its events wait in `take_events` until read."""

    engine: "Engine"
    row: Row

    @property
    def id(self) -> int:
        return self.row.id

    @property
    def done(self) -> bool:
        return self.row.finish_reason is not None

    @property
    def completion(self) -> Completion:
        """The answer; RuntimeError while the request is still running."""
        return self.row.completion()

    def take_events(self) -> list[TokenEvent]:
        """Events since the last call."""
        events = list(self.row.events)
        self.row.events.clear()
        return events

    def cancel(self) -> None:
        """End the request at its last committed token and free its row at once. Cancelling a finished one is fine."""
        self.engine.cancel(self)


class Engine:
    """Generates with `target`, drafting with `drafter`, keeping what `rule` accepts, as far as `policy` speculates.

    drafter: one Drafter, several by name, or None. policy: default FixedPolicy with the drafter's preferred depth.
    prefill_chunk: most prompt tokens computed in one step, so that long prompts do not stall running rows.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | Mapping[str, Drafter] | None = None,
        *,
        rule: str | Rule = "identical",
        policy: Policy | None = None,
        prefill_chunk: int = 256,
    ) -> None:
        if prefill_chunk < 1:
            raise OptionError(f"prefill_chunk is {prefill_chunk}; it must be at least 1")
        self.target = target
        self.rule = make_rule(rule) if isinstance(rule, str) else rule
        drafters = _by_name(drafter)
        for one in drafters.values():
            one.bind(TargetView(target.info, target.tokenizer))
        self._drafting = Drafting({"none": NoDrafter(), **drafters}, target.info.vocab_size)
        self.policy = policy or _default_policy(drafters)
        self._prefill_chunk = prefill_chunk
        self._ids = count()
        self._waiting: deque[Row] = deque()
        self._running: list[Row] = []
        self._free_slots = list(reversed(range(target.info.max_rows)))
        self._stepping = False

    # ---- requests

    def submit(self, prompt: Prompt | Request, **sampling: Any) -> Handle:
        """Queue a request; it joins the batch at the next step with a free row. Raises OptionError or PromptError."""
        request = prompt if isinstance(prompt, Request) else Request(prompt)
        if sampling:
            request = replace(request, params=SamplingParams.from_options(**sampling))
        row = self._new_row(request)
        if row.budget == 0:
            row.finish("length")
        else:
            self._waiting.append(row)
        return Handle(self, row)

    def _new_row(self, request: Request) -> Row:
        info = self.target.info
        params = request.params.resolve(info.generation_defaults, info.eos_token_ids, info.vocab_size)
        rule = make_rule(request.rule) if request.rule else self.rule
        if request.drafter is not None:
            self._drafting.check(request.drafter)
        if params.stop and self.target.tokenizer is None:
            raise UnsupportedError("stop strings need a target with a tokenizer; use stop_token_ids")
        if params.logits_processors and not rule.visits_path_only:
            raise UnsupportedError(f"rule {rule.name!r} looks past rejected tokens; it cannot take logits_processors")
        tokens = encode_prompt(request.prompt, self.target.tokenizer, info)
        row = Row(next(self._ids), request, params, rule, info, tokens, len(tokens), self.target.tokenizer)
        row.off_reason = "max_depth is 0" if params.max_depth == 0 else None
        return row

    def cancel(self, handle: Handle) -> None:
        """See Handle.cancel."""
        if handle.done:
            return
        handle.row.finish("cancelled")
        if not self._stepping:
            self._release_finished()

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    # ---- the three ways to run

    def generate(self, prompt: Prompt | Request, **sampling: Any) -> Completion:
        """The completion of one prompt. Raises what the request's own processor, drafter or target raised."""
        handle = self.submit(prompt, **sampling)
        self._run([handle])
        if handle.completion.error is not None:
            raise handle.completion.error
        return handle.completion

    def generate_batch(self, prompts: Sequence[Prompt | Request], **sampling: Any) -> list[Completion]:
        """The completions of several prompts, in order; one at fault has finish_reason "error", the rest go on."""
        handles = [self.submit(prompt, **sampling) for prompt in prompts]
        self._run(handles)
        return [handle.completion for handle in handles]

    def stream(self, prompt: Prompt | Request, **sampling: Any) -> Iterator[TokenEvent]:
        """Events of one prompt as they come; closing the iterator cancels the request."""
        return self._events(self.submit(prompt, **sampling))

    def _events(self, handle: Handle) -> Iterator[TokenEvent]:
        try:
            while True:
                yield from handle.take_events()
                if handle.done and not handle.row.events:
                    break
                self.step()
            if handle.completion.error is not None:
                raise handle.completion.error
        finally:
            handle.cancel()

    def _run(self, handles: Sequence[Handle]) -> None:
        try:
            while not all(handle.done for handle in handles):
                self.step()
        finally:
            for handle in handles:
                handle.cancel()

    # ---- one step

    def step(self) -> list[TokenEvent]:
        """Admit, prefill a chunk, and run one round over the rows that are ready; returns the new events.

        An exception here (only a target's own, or an interrupt) leaves every row at its last committed token.
        """
        self._stepping = True
        try:
            self._admit()
            before = [(row, len(row.events)) for row in self._running]
            self._prefill()
            rows = [row for row in self._running if not row.needs_prefill and row.finish_reason is None]
            if rows:
                self._round(rows, Stopwatch())
        finally:
            self._stepping = False
            self._release_finished()
        return [event for row, seen in before for event in list(row.events)[seen:]]

    def _round(self, rows: list[Row], watch: Stopwatch) -> None:
        plans = self._plan(rows)
        with watch("draft"):
            answers = self._drafting.propose(rows, plans)
        rows, plans, trees = _without_failed(rows, plans, answers)
        if not rows:
            return
        packed = pack(trees, [_slot(r) for r in rows], [len(r.tokens) - 1 for r in rows], self.target.info.device)
        with watch("score"):
            scored = self.target.score(packed)
        with watch("accept"):
            taken = self._accept(rows, trees, packed, scored)
        self.target.commit({_slot(row): t.outcome for row, t in zip(rows, taken, strict=True) if t})
        figures = self._apply(rows, trees, plans, taken)
        self._observe(rows, trees, taken, packed, scored)
        stats = RoundStats(figures, watch.read(), packed.num_nodes)
        self.policy.observe(stats)
        for row in rows:
            row.tally.seconds += stats.seconds

    def _plan(self, rows: list[Row]) -> list[Plan]:
        views = [row.view() for row in rows]
        plans = self.policy.plan(views)
        return [_within(plan, view.room) for plan, view in zip(plans, views, strict=True)]

    def _accept(self, rows: list[Row], trees: list[DraftTree], packed: Packed, scored: Scored) -> list[Taken | None]:
        """What each row takes; None for a row whose own processor, rule or logits failed it."""
        best = _argmax(rows, scored)
        taken: list[Taken | None] = []
        for index, (row, tree) in enumerate(zip(rows, trees, strict=True)):
            nodes = slice(packed.starts[index], packed.starts[index + 1])
            try:
                laws = row.laws(scored.logits[nodes], tree, _all_sound(best[nodes]))
                taken.append(row.take(tree, row.rule(tree, laws, row.noise), laws))
            except Exception as error:
                row.finish("error", error)
                taken.append(None)
        return taken

    def _apply(
        self, rows: list[Row], trees: list[DraftTree], plans: list[Plan], taken: list[Taken | None]
    ) -> tuple[RowRound, ...]:
        figures: list[RowRound] = []
        for row, tree, plan, one in zip(rows, trees, plans, taken, strict=True):
            if one and row.finish_reason is None:
                figures.append(row.apply(one, tree, plan))
        return tuple(figures)

    def _observe(
        self, rows: list[Row], trees: list[DraftTree], taken: list[Taken | None], packed: Packed, scored: Scored
    ) -> None:
        for index, (row, tree, one) in enumerate(zip(rows, trees, taken, strict=True)):
            nodes = range(packed.starts[index], packed.starts[index + 1])
            if one and (error := self._drafting.observe(row, tree, one.outcome, scored, nodes)):
                row.finish("error", error)

    # ---- rows come and go

    def _admit(self) -> None:
        while self._waiting and self._free_slots:
            row = self._waiting.popleft()
            if row.finish_reason is None:
                row.slot = self._free_slots.pop()
                self._running.append(row)

    def _prefill(self) -> None:
        """Compute at most one chunk of prompt tokens; also of rows whose cache is not what it should be."""
        budget = self._prefill_chunk
        for row in self._running:
            self._check_cache(row)
            size = min(budget, len(row.tokens) - 1 - row.prefilled)
            if size > 0:
                self._prefill_row(row, size)
                budget -= size

    def _prefill_row(self, row: Row, size: int) -> None:
        watch = Stopwatch()
        try:
            with watch("prefill"):
                self.target.prefill([_slot(row)], [row.tokens[row.prefilled : row.prefilled + size]])
            row.prefilled += size
        except Exception as error:
            row.finish("error", error)
        row.tally.seconds += watch.read()

    def _check_cache(self, row: Row) -> None:
        """Invariant I1. A cache of another length (a rollback that failed, an interrupt) is computed again."""
        if self.target.length(_slot(row)) != row.prefilled:
            self.target.free([_slot(row)])
            row.prefilled = 0
            row.tally.recomputed += 1

    def _release_finished(self) -> None:
        for row in [row for row in self._running if row.finish_reason is not None]:
            self._running.remove(row)
            self.target.free([_slot(row)])
            self._drafting.end(row)
            self.policy.end(row.id)
            self._free_slots.append(_slot(row))
        self._waiting = deque(row for row in self._waiting if row.finish_reason is None)


def _slot(row: Row) -> int:
    if row.slot is None:
        raise TargetError("a row without a slot cannot run")
    return row.slot


def _by_name(drafter: Drafter | Mapping[str, Drafter] | None) -> dict[str, Drafter]:
    if drafter is None:
        return {}
    return dict(drafter) if isinstance(drafter, Mapping) else {drafter.name: drafter}


def _default_policy(drafters: Mapping[str, Drafter]) -> Policy:
    if not drafters:
        return FixedPolicy("none", 0)
    name, drafter = next(iter(drafters.items()))
    return FixedPolicy(name, drafter.preferred_depth, drafter.preferred_nodes)


def _within(plan: Plan, room: int) -> Plan:
    """The plan cut to what may still be written: a draft beyond it could never be delivered."""
    depth = max(0, min(plan.max_depth, room))
    if depth == 0 or plan.drafter == "none":
        return replace(plan, drafter="none", max_depth=0, max_nodes=0)
    return replace(plan, max_depth=depth, max_nodes=max(1, plan.max_nodes))


def _without_failed(
    rows: list[Row], plans: list[Plan], answers: list[DraftTree | DrafterError]
) -> tuple[list[Row], list[Plan], list[DraftTree]]:
    """The rows that go on; a row whose drafter failed ends here with that error."""
    kept: list[tuple[Row, Plan, DraftTree]] = []
    for row, plan, answer in zip(rows, plans, answers, strict=True):
        if isinstance(answer, DrafterError):
            row.finish("error", answer)
        else:
            kept.append((row, plan, answer))
    return [k[0] for k in kept], [k[1] for k in kept], [k[2] for k in kept]


def _argmax(rows: list[Row], scored: Scored) -> list[int]:
    """Every node's likeliest raw token, if a row can use it; -1 where the logits are not sound."""
    if not any(row.params.greedy and not row.params.shapes_logits for row in rows):
        return []
    best = scored.logits.max(-1)
    return torch.where(best.values > float("-inf"), best.indices, -1).tolist()


def _all_sound(best: list[int]) -> list[int] | None:
    """The fast path's ids; None sends a row with unsound logits the slow way, which reports them."""
    return best if best and min(best) >= 0 else None
