"""The state of one running request. Owned by the engine; everything that changes it is in this file.

A round computes what a row would take (`take`, which changes nothing) and then applies it (`apply`), so that an
exception or an interrupt in between leaves the row at its last committed token.
"""

import contextlib
import copy
import time
from collections import Counter, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from outrider.acceptance.base import Rule
from outrider.drafters.base import DraftContext
from outrider.engine.completion import Completion, FinishReason, Origin, Tally, TokenEvent
from outrider.engine.request import Request
from outrider.errors import EngineError
from outrider.policy.base import PlanView
from outrider.sampling.laws import Laws
from outrider.sampling.logprobs import TokenLogprobs, token_logprobs
from outrider.sampling.noise import Noise
from outrider.sampling.params import SamplingParams
from outrider.targets.base import TargetInfo, Tokenizer
from outrider.text import StopChecker, TextStream
from outrider.types import DraftTree, Outcome, Plan, RowRound


@dataclass(frozen=True)
class Taken:
    """What one row takes from one round, cut at the first stop: cut outcome, events, and the text state after.

    kept: the drafted nodes whose tokens are among the events. surprisal: of the events' tokens, summed (nats).
    """

    outcome: Outcome
    events: tuple[TokenEvent, ...]
    finish_reason: FinishReason | None
    stop_match: str | int | None
    stream: TextStream | None
    checker: StopChecker | None
    kept: tuple[int, ...] = ()
    surprisal: float = 0.0

    @property
    def token_ids(self) -> list[int]:
        return [token for event in self.events for token in event.token_ids]

    @property
    def num_accepted(self) -> int:
        return len(self.kept)

    def accepted_by(self, tree: DraftTree, drafter: str) -> dict[str, int]:
        """Kept tokens by whose they were: those without a source of their own are `drafter`'s."""
        return dict(Counter((tree.sources[node] if tree.sources else "") or drafter for node in self.kept))


@dataclass(eq=False)
class Row:
    """One request on its way: waiting (slot None), prefilling, decoding, finished."""

    id: int
    request: Request
    params: SamplingParams
    rule: Rule
    info: TargetInfo
    tokens: list[int]
    num_prompt: int
    tokenizer: Tokenizer | None
    slot: int | None = None
    prefilled: int = 0
    drafters: set[str] = field(default_factory=set[str])
    tally: Tally = field(default_factory=Tally)
    events: deque[TokenEvent] = field(default_factory=deque[TokenEvent])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    text: str = ""
    finish_reason: FinishReason | None = None
    stop_match: str | int | None = None
    error: Exception | None = None
    off_reason: str | None = None
    mismatches: int = 0  # times that the target's cache had a wrong length since the newest token
    submitted: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.stream = TextStream(self.tokenizer) if self.tokenizer else None
        self.checker = StopChecker(tuple(self.params.stop or ()), self.params.include_stop)
        self.end_token_ids = self.params.end_token_ids(self.info.eos_token_ids)
        self.budget = min(self.params.max_new_tokens or 0, self.info.max_length - self.num_prompt)

    @property
    def is_late(self) -> bool:
        """Past the request's timeout."""
        limit = self.request.timeout
        return limit is not None and self.waited > limit

    @property
    def waited(self) -> float:
        """Seconds since it was submitted."""
        return time.monotonic() - self.submitted

    @property
    def cache_row(self) -> int:
        """The target's row that serves this request; only a running one has it."""
        if self.slot is None:
            raise EngineError(f"request {self.id} has no cache row yet")
        return self.slot

    @property
    def written(self) -> list[int]:
        return self.tokens[self.num_prompt :]

    @property
    def num_written(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def needs_prefill(self) -> bool:
        return self.prefilled < len(self.tokens) - 1

    @property
    def noise(self) -> Noise:
        """The round's noise; keyed by position alone where the rule shares it with the drafter."""
        return Noise(self.params.seed or 0, None if self.rule.shared_noise else self.tally.rounds)

    def view(self) -> PlanView:
        room = min(self.budget - self.num_written - 1, self.info.max_length - len(self.tokens))
        return PlanView(
            row=self.id,
            context_length=len(self.tokens),
            num_written=self.num_written,
            room=room,
            temperature=self.params.temperature or 0.0,
            wanted_depth=self.params.max_depth,
            wanted_drafter=self.request.drafter,
        )

    def context(self, plan: Plan) -> DraftContext:
        return DraftContext(
            row=self.id,
            tokens=self.tokens.copy(),  # what a drafter does to it stays its own affair
            num_prompt=self.num_prompt,
            params=self.params,
            noise=self.noise,
            stream="token" if self.rule.shared_noise else "draft",
            plan=plan,
            want_probs=self.rule.needs_draft_probs,
            chains_only=self.rule.chains_only,
            cache_row=self.cache_row,
        )

    def laws(self, logits: Tensor, tree: DraftTree, argmax: Sequence[int] | None) -> Laws:
        return Laws(logits, tree, self.tokens, self.num_prompt, self.params, self.end_token_ids, self.noise, argmax)

    def take(self, tree: DraftTree, outcome: Outcome, laws: Laws) -> Taken:
        """The tokens that the outcome commits, one by one, up to the first stop. Changes nothing."""
        stream, checker = copy.deepcopy(self.stream), copy.deepcopy(self.checker)
        events: list[TokenEvent] = []
        finish: FinishReason | None = None
        match: str | int | None = None
        surprisal = 0.0
        for node, token, origin in _committed(tree, outcome):
            text = checker.push(stream.push(token), stream.pending) if stream else ""
            finish, match = self._stop(token, len(events) + 1, checker)
            if finish and stream and not checker.matched:
                text += checker.push(stream.flush())
                finish, match = ("stop", checker.matched) if checker.matched else (finish, match)
                text += checker.flush()
            count = self.params.logprobs
            surprisal += laws.surprisal(node, token)
            probs = None if count is None else token_logprobs(laws, node, token, count)
            events.append(TokenEvent(self.id, (token,), text, origin, finish, probs))
            if finish:
                break
        kept = outcome.path[1 : 1 + len(events)]
        return Taken(_cut(tree, outcome, len(events)), tuple(events), finish, match, stream, checker, kept, surprisal)

    def _stop(self, token: int, num_new: int, checker: StopChecker) -> tuple[FinishReason | None, str | int | None]:
        if checker.matched:
            return "stop", checker.matched
        if token in self.end_token_ids:
            return "stop", token
        return ("length", None) if self.num_written + num_new >= self.budget else (None, None)

    def apply(self, taken: Taken, tree: DraftTree, plan: Plan) -> RowRound:
        """Commit what was taken, all or (if interrupted) nothing; returns the row's figures of the round."""
        with self._all_or_nothing():
            return self._apply(taken, tree, plan)

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Generator[None]:
        """What an exception or an interrupt leaves half done is undone."""
        before = dict(vars(self), tally=self.tally.copy())
        sizes = [(items, len(items)) for items in (self.tokens, self.logprobs)]
        num_events = len(self.events)
        try:
            yield
        except BaseException:
            vars(self).update(before)
            for items, size in sizes:
                del items[size:]
            while len(self.events) > num_events:
                self.events.pop()
            raise

    def _apply(self, taken: Taken, tree: DraftTree, plan: Plan) -> RowRound:
        self.tokens += taken.token_ids
        self.prefilled, self.mismatches = len(self.tokens) - 1, 0
        self.stream, self.checker = taken.stream, taken.checker or self.checker
        self.text += "".join(event.text for event in taken.events)
        self.logprobs += [event.logprobs for event in taken.events if event.logprobs]
        self.events.extend(taken.events)
        self.finish_reason, self.stop_match = taken.finish_reason, taken.stop_match
        figures = RowRound(
            row=self.id,
            drafter=plan.drafter,
            proposed=tree.num_drafted,
            accepted=taken.num_accepted,
            delivered=len(taken.token_ids),
            depth=tree.depth,
            context_length=len(self.tokens),
            accepted_by=taken.accepted_by(tree, plan.drafter),
            surprisal=taken.surprisal,
        )
        self.tally.add(figures)
        if tree.note and tree.note not in self.tally.warnings:
            self.tally.warnings.append(tree.note)
        return figures

    def finish(self, reason: FinishReason, error: Exception | None = None) -> None:
        """End without a further token, releasing text that was withheld; a row that has ended stays as it is."""
        if self.finish_reason is not None:
            return
        stream, checker = copy.deepcopy(self.stream), copy.deepcopy(self.checker)  # an interrupt loses no text
        rest = checker.push(stream.flush()) + checker.flush() if stream else ""
        with self._all_or_nothing():
            self.text += rest
            self.finish_reason, self.error = reason, error
            self.events.append(TokenEvent(self.id, text=rest, finish_reason=reason))

    def completion(self) -> Completion:
        if self.finish_reason is None:
            raise RuntimeError("the request is still running")
        return Completion(
            token_ids=tuple(self.written),
            text=self.text if self.tokenizer else None,
            finish_reason=self.finish_reason,
            prompt_token_ids=tuple(self.tokens[: self.num_prompt]),
            effective_params=self.params.to_dict(),
            stats=self.tally.stats(self.rule.name, self.rule.lossless, self.info.exact, self.off_reason),
            stop_match=self.stop_match,
            logprobs=None if self.params.logprobs is None else tuple(self.logprobs),
            error=self.error,
        )


def _committed(tree: DraftTree, outcome: Outcome) -> list[tuple[int, int, Origin]]:
    """(node that the token follows, token, origin) for every token that the outcome commits, in order."""
    kept: list[tuple[int, int, Origin]] = [(tree.parents[n], tree.tokens[n], "accepted") for n in outcome.path[1:]]
    own: Origin = "plain" if not tree.num_drafted else "bonus" if outcome.bonus else "recovered"
    return [*kept, (outcome.path[-1], outcome.next_token, own)]


def _cut(tree: DraftTree, outcome: Outcome, count: int) -> Outcome:
    """The outcome that commits only the first `count` tokens; its newest is not in the path (invariant I1)."""
    if count == len(outcome.path):
        return outcome
    return Outcome(outcome.path[:count], tree.tokens[outcome.path[count]])
