"""The engine: continuous batches of exact speculative generation. It touches no keys, values or settings.

One round runs in one direction: plan, propose, score, probabilities, accept, commit, observe, deliver. Rows join and
leave between rounds, each with its own settings, drafter, depth and progress. One thread steps it; others may submit
and cancel, which takes effect between two steps. Engines on one target may have a thread each: they take turns.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from threading import RLock
from typing import Any

from outrider.acceptance import Rule, make_rule
from outrider.drafters.base import Drafter, TargetView
from outrider.drafters.none import NoDrafter
from outrider.engine.completion import Completion, TokenEvent
from outrider.engine.drafting import Drafting
from outrider.engine.given import by_name, check_target
from outrider.engine.leases import leases_of
from outrider.engine.memory import MemoryWatch
from outrider.engine.observe import Observer, Observers, OnRound
from outrider.engine.request import Prompt, Request, encode_prompt
from outrider.engine.round import Rounds
from outrider.engine.row import Row
from outrider.engine.schedule import Schedule
from outrider.engine.trace import RoundTrace
from outrider.errors import EngineError, OptionError, UnsupportedError
from outrider.policy.base import Policy
from outrider.policy.cost_model import CostModel
from outrider.policy.make import make_policy
from outrider.sampling import checks
from outrider.sampling.params import SamplingParams
from outrider.targets.base import Layered, Target


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
        return [self.row.events.popleft() for _ in range(len(self.row.events))]

    def cancel(self) -> None:
        """End the request at its last committed token and free its row at once. Cancelling a finished one is fine."""
        self.engine.cancel(self)


class Engine:
    """Generates with `target`, drafting with `drafter`, keeping what `rule` accepts, as far as `policy` speculates.

    drafter: one Drafter, several by name, or None. policy: "fixed" (the first drafter's preferred depth; the default),
    "auto" (as deep as it pays, measured as it goes), or an object. costs: what "auto" knows of costs beforehand.
    prefill_chunk: most prompt tokens computed in one step, so that long prompts do not stall running rows.
    reuse_prefixes: finished rows stay warm, and a prompt that begins like an earlier text computes only what is new.
    max_waiting: most requests in the queue; a further one raises CapacityError. memory_floor: bytes of free
    memory below which warm texts, then drafters' models are given up (default 256 MiB; 0: never). on_round: called with
    a RoundTrace after every round; if it raises, it is warned about and nothing else happens. plain_because: why the
    engine does without a drafter, as results then say.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | Mapping[str, Drafter] | None = None,
        *,
        rule: str | Rule = "identical",
        policy: str | Policy | None = None,
        costs: CostModel | None = None,
        prefill_chunk: int = 256,
        reuse_prefixes: bool = False,
        max_waiting: int | None = None,
        memory_floor: int | None = None,
        on_round: Callable[[RoundTrace], None] | None = None,
        plain_because: str | None = None,
    ) -> None:
        prefill_chunk = checks.whole(1)("prefill_chunk", prefill_chunk)
        if max_waiting is not None:
            max_waiting = checks.whole(0)("max_waiting", max_waiting)
        check_target(target)
        if on_round is not None and not callable(on_round):
            raise OptionError(f"on_round must be a function of a RoundTrace, not {on_round!r}")
        self.target = target
        self.rule = make_rule(rule)
        drafters = by_name(drafter)
        for one in drafters.values():
            one.bind(TargetView(target.info, target.tokenizer, target if isinstance(target, Layered) else None))
        self.policy = make_policy(policy, drafters, costs)
        self._drafting = Drafting({"none": NoDrafter(), **drafters}, target.info.vocab_size)
        self._observers = Observers()
        if on_round:
            self.attach(OnRound(on_round))
        self._rounds = Rounds(target, self._drafting, self.policy, self._observers)
        self._schedule = Schedule(
            target,
            self._drafting,
            self.policy,
            self._observers,
            prefill_chunk=prefill_chunk,
            reuse_prefixes=reuse_prefixes,
            max_waiting=max_waiting,
        )
        self._memory = MemoryWatch(memory_floor, target.info.device)
        self._plain_because = plain_because
        self._ids = count()
        self._lock = RLock()  # held by the thread that is in a step
        self._turn = leases_of(target).turn  # and this one, since other engines may compute with the same target
        self._cancels: deque[Row] = deque()
        self._stepping = False

    def attach(self, observer: Observer) -> None:
        """Tell this observer what happens from now on."""
        self._observers.add(observer)

    def detach(self, observer: Observer) -> None:
        """Tell it no more."""
        self._observers.remove(observer)

    # ---- requests

    def submit(self, prompt: Prompt | Request, **sampling: Any) -> Handle:
        """Queue a request; it joins the batch at the next step with a free row. Raises OptionError or PromptError."""
        self._schedule.check_room()
        request = prompt if isinstance(prompt, Request) else Request(prompt)
        if sampling:
            request = replace(request, params=SamplingParams.from_options(**sampling))
        row = self._new_row(request)
        if row.budget == 0:
            row.finish("length")
            self._observers.ended(row)
        else:
            self._schedule.waiting.append(row)
        return Handle(self, row)

    def _new_row(self, request: Request) -> Row:
        info = self.target.info
        params = request.params.resolve(info.generation_defaults, info.eos_token_ids, info.vocab_size)
        rule = self.rule if request.rule is None else make_rule(request.rule)
        if request.drafter is not None:
            self._drafting.check(request.drafter)
        if params.stop and self.target.tokenizer is None:
            raise UnsupportedError("stop strings need a target with a tokenizer; use stop_token_ids")
        if params.logits_processors and not rule.visits_path_only:
            raise UnsupportedError(f"rule {rule.name!r} looks past rejected tokens; it cannot take logits_processors")
        tokens = encode_prompt(request.prompt, self.target.tokenizer, info)
        row = Row(next(self._ids), request, params, rule, info, tokens, len(tokens), self.target.tokenizer)
        unwanted = "no drafts were asked for (max_depth is 0)" if params.max_depth == 0 else None
        row.off_reason = unwanted or self._plain_because or self._drafting.why_not(request.drafter)
        return row

    def cancel(self, handle: Handle) -> None:
        """See Handle.cancel."""
        if not self._lock.acquire(blocking=False):  # another thread is in a step, and sees to it at the end
            self._cancels.append(handle.row)
            return
        try:
            handle.row.finish("cancelled")
            if not self._stepping:
                with self._turn:
                    self._schedule.release()
        finally:
            self._lock.release()

    @property
    def drafters(self) -> tuple[str, ...]:
        """Names that a request may ask for; "none" is always there."""
        return tuple(self._drafting.drafters)

    @property
    def num_running(self) -> int:
        return len(self._schedule.running)

    @property
    def num_waiting(self) -> int:
        return len(self._schedule.waiting)

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
        handles: list[Handle] = []
        try:
            for prompt in prompts:
                handles.append(self.submit(prompt, **sampling))
        except BaseException:  # a request that cannot be, so none of them shall run
            for handle in handles:
                handle.cancel()
            raise
        self._run(handles)
        return [handle.completion for handle in handles]

    def stream(self, prompt: Prompt | Request, **sampling: Any) -> Iterator[TokenEvent]:
        """Events of one prompt as they come; closing the iterator cancels the request."""
        events = self._events(self.submit(prompt, **sampling))
        next(events)  # a generator that has not begun would not cancel when it is closed
        return events

    def _events(self, handle: Handle) -> Iterator[TokenEvent]:
        try:
            yield TokenEvent(handle.id)  # taken by `stream`
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
        with self._lock, self._turn:
            return self._step()

    def _step(self) -> list[TokenEvent]:
        if self._stepping:
            raise EngineError("the engine cannot be run from within a step; `submit` there, and step it afterwards")
        self._stepping = True
        try:
            self._cancel_late()
            if shortage := self._memory.shortage():
                self._relieve(shortage)
            self._schedule.admit()
            before = [(row, len(row.events)) for row in self._schedule.running]
            if ready := self._schedule.prefill():
                self._rounds.run(ready)
        finally:
            self._stepping = False
            self._cancel_late()
            self._schedule.release()
        return [event for row, seen in before for event in list(row.events)[seen:]]

    def _relieve(self, shortage: str) -> None:
        """Memory is short: warm texts go; where there are none, a drafter."""
        if not self._schedule.slots.drop_warm():
            self._drafting.give_up(self.policy, self._schedule.running, shortage)

    def _cancel_late(self) -> None:
        """What other threads cancelled during a step."""
        while self._cancels:
            self._cancels[0].finish("cancelled")
            self._cancels.popleft()

    def isolate(self) -> bool:
        """After steps that raised: a round for every row by itself, so that a row at fault ends with its error, alone.

        Returns whether any of them went well; if none did, the target itself is to blame.
        """
        with self._lock, self._turn:
            if self._stepping:
                raise EngineError("the engine cannot be run from within a step")
            self._stepping = True
            try:
                self._cancel_late()
                return sum(self._alone(row) for row in self._schedule.prefill()) > 0
            finally:
                self._stepping = False
                self._cancel_late()
                self._schedule.release()

    def _alone(self, row: Row) -> bool:
        try:
            self._rounds.run([row])
        except Exception as error:
            row.finish("error", error)
            return False
        return True
