"""What a request gives back: events while it runs, a completion at the end, and figures that add up.

Always true: sum of delivered over the rounds == len(token_ids); accepted <= proposed; one round is one target pass.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from outrider.sampling.logprobs import TokenLogprobs
from outrider.types import PhaseSeconds, RowRound

FinishReason = Literal["stop", "length", "cancelled", "error"]
Origin = Literal["accepted", "recovered", "bonus", "plain"]


@dataclass(frozen=True)
class TokenEvent:
    """News of one request: usually one token; token_ids is empty where only withheld text is released at the end.

    origin: accepted (a kept draft token), recovered (the target's own after a rejection), bonus (the target's own
    after everything drafted was kept) or plain (its own where nothing was drafted). text joins up to the completion's
    text. finish_reason is set on a request's last event.
    """

    request_id: int
    token_ids: tuple[int, ...] = ()
    text: str = ""
    origin: Origin | None = None
    finish_reason: FinishReason | None = None
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True)
class CompletionStats:
    """What one request did. Seconds are wall-clock of the rounds it took part in, shared with its neighbours.

    accepted_by: accepted tokens by whose they were; of several drafters who proposed one, it is the surest one's.
    accepted_per_position[i]: share of rounds in which the draft token at depth i+1 was kept (of all rounds).
    reused: prompt tokens whose cache was already there. recomputed: times the cache had to be computed again.
    method: the drafters that proposed, or "plain"; off_reason says why plain.
    """

    method: str
    rule: str
    lossless: bool
    exact: str
    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    delivered: int = 0
    max_proposed: int = 0
    rounds_without_proposal: int = 0
    accepted_by: Mapping[str, int] = field(default_factory=dict[str, int])
    accepted_per_position: tuple[float, ...] = ()
    recomputed: int = 0
    reused: int = 0
    seconds: PhaseSeconds = field(default_factory=PhaseSeconds)
    off_reason: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def tokens_per_round(self) -> float:
        """Delivered tokens per target pass; 0 before the first."""
        return self.delivered / self.rounds if self.rounds else 0.0

    @property
    def acceptance(self) -> float | None:
        """Accepted over proposed; None if nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else None

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "tokens_per_round": self.tokens_per_round, "acceptance": self.acceptance}


@dataclass(frozen=True)
class Completion:
    """The whole answer to one request. text is None for a target without tokenizer."""

    token_ids: tuple[int, ...]
    text: str | None
    finish_reason: FinishReason
    prompt_token_ids: tuple[int, ...]
    effective_params: Mapping[str, Any]
    stats: CompletionStats
    stop_match: str | int | None = None
    logprobs: tuple[TokenLogprobs, ...] | None = None
    error: Exception | None = None


@dataclass
class Tally:
    """Sums up one request's rounds."""

    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    delivered: int = 0
    max_proposed: int = 0
    rounds_without_proposal: int = 0
    recomputed: int = 0
    reused: int = 0
    accepted_by: dict[str, int] = field(default_factory=dict[str, int])
    kept_at: list[int] = field(default_factory=list[int])
    drafters: set[str] = field(default_factory=set[str])
    warnings: list[str] = field(default_factory=list[str])
    seconds: PhaseSeconds = field(default_factory=PhaseSeconds)

    def copy(self) -> "Tally":
        """The same figures, of which later additions to the original change nothing."""
        own = {"kept_at": [*self.kept_at], "drafters": {*self.drafters}, "warnings": [*self.warnings]}
        return replace(self, **own, accepted_by={**self.accepted_by})

    def add(self, row_round: RowRound) -> None:
        self.rounds += 1
        self.proposed += row_round.proposed
        self.accepted += row_round.accepted
        self.delivered += row_round.delivered
        self.max_proposed = max(self.max_proposed, row_round.proposed)
        self.rounds_without_proposal += row_round.proposed == 0
        for source, count in row_round.accepted_by.items():
            self.accepted_by[source] = self.accepted_by.get(source, 0) + count
        self.kept_at += [0] * (row_round.depth - len(self.kept_at))
        for depth in range(row_round.accepted):
            self.kept_at[depth] += 1
        if row_round.proposed:
            self.drafters.add(row_round.drafter if row_round.drafter != "none" else "grammar")

    def stats(self, rule: str, lossless: bool, exact: str, off_reason: str | None) -> CompletionStats:
        return CompletionStats(
            method="+".join(sorted(self.drafters)) or "plain",
            rule=rule,
            lossless=lossless,
            exact=exact,
            rounds=self.rounds,
            proposed=self.proposed,
            accepted=self.accepted,
            delivered=self.delivered,
            max_proposed=self.max_proposed,
            rounds_without_proposal=self.rounds_without_proposal,
            accepted_by={**self.accepted_by},
            accepted_per_position=tuple(count / self.rounds for count in self.kept_at),
            recomputed=self.recomputed,
            reused=self.reused,
            seconds=self.seconds,
            off_reason=None if self.drafters else off_reason or "; ".join(self.warnings) or "nothing was proposed",
            warnings=tuple(self.warnings),
        )
