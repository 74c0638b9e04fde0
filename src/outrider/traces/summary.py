"""What a trace says in sentences and sums: of some rounds, of one round, and of two runs of one prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.traces.reader import RecordedRequest, RecordedRound


@dataclass
class Sums:
    """Figures of some rounds. kept_at[i]: rounds in which the draft token at depth i+1 was kept."""

    rounds: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    kept_at: list[int] = field(default_factory=list[int])
    seconds: dict[str, float] = field(default_factory=dict[str, float])


def sums(rounds: Sequence[RecordedRound]) -> Sums:
    """The figures of these rounds together."""
    total = Sums(rounds=len(rounds))
    for one in rounds:
        kept = num_kept(one)
        total.tokens += one.delivered
        total.drafted += one.num_drafted
        total.accepted += kept
        total.kept_at += [0] * (kept - len(total.kept_at))
        for depth in range(kept):
            total.kept_at[depth] += 1
        for phase, seconds in one.seconds.items():
            total.seconds[phase] = total.seconds.get(phase, 0.0) + seconds
    return total


def num_kept(one: RecordedRound) -> int:
    """Draft tokens that were kept and delivered."""
    return sum(origin == "accepted" for origin in one.row["delivered"]["origins"])


def started(request: RecordedRequest) -> float:
    """When the request got its row; without that line, when its first round began."""
    if request.begin is not None:
        return request.begin["at"]
    first = request.rounds[0]
    return first.at - sum(first.seconds.values())


def seconds_until(request: RecordedRequest, count: int) -> float:
    """Seconds from the request's start to the end of its first `count` rounds, reading the prompt included."""
    return request.rounds[count - 1].at - started(request) if count else 0.0


def outcome(one: RecordedRound) -> str:
    """What became of a round, in one sentence."""
    row, kept = one.row, num_kept(one)
    word = "a token of its own" if row["next"]["text"] is None else repr(row["next"]["text"])
    total = f"{one.delivered} token{'s' if one.delivered != 1 else ''} from one pass of the target"
    if not one.num_drafted:
        return f"{undrafted(row['plan'])}: the target writes {word} itself, as in plain decoding."
    if row["next"]["origin"] == "accepted":
        return f"{kept} kept, and the text ends there: {total}."
    if row["next"]["origin"] == "bonus":
        return f"All {kept} on the way kept, and the target adds {word}: {total}."
    return f"{kept or 'None'} kept, then the target writes {word} instead: {total}."


def undrafted(plan: Mapping[str, Any]) -> str:
    """Why a round had no draft."""
    if plan["depth"]:
        return f"{plan['drafter']} found nothing to draft"
    return f"No draft ({plan['reason']})" if plan["reason"] else "No draft"


@dataclass(frozen=True)
class Verdict:
    """What may be said of two runs. ratio: of their speeds, only beside the same tokens of the same prompt."""

    same_prompt: bool
    first_difference: int | None
    ratio: float | None

    @property
    def words(self) -> str:
        if not self.same_prompt:
            return "two different prompts: nothing can be said of their speeds"
        if self.ratio is None:
            place = "" if self.first_difference is None else f" from number {self.first_difference + 1} on"
            return f"the tokens DIFFER{place}, so no ratio of speeds is given"
        if self.ratio >= 1:
            return f"the same tokens; the first run was {self.ratio:.2f} times as fast as the second"
        return f"the same tokens; the first run was {1 / self.ratio:.2f} times slower than the second"


def verdict(one: RecordedRequest, other: RecordedRequest) -> Verdict:
    """Compares two requests of traces with texts; both have rounds."""
    if digest(one) is None or digest(one) != digest(other):
        return Verdict(False, None, None)
    left, right = one.token_ids, other.token_ids
    if left != right:
        pairs = zip(left, right, strict=False)
        return Verdict(True, next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right))), None)
    whole = [seconds_until(request, len(request.rounds)) for request in (one, other)]
    return Verdict(True, None, whole[1] / whole[0] if whole[0] > 0 else None)


def digest(request: RecordedRequest) -> str | None:
    """Tells whether two requests had the same prompt; None where the trace does not say."""
    return None if request.begin is None else request.begin["digest"]


def pair(requests: Sequence[RecordedRequest], others: Sequence[RecordedRequest]) -> tuple[RecordedRequest, ...]:
    """The first request that speculated and, among the others, a plain run of the same prompt if there is one."""
    first = next((one for one in requests if one.speculative), requests[0])
    rest = [one for one in others if one is not first]
    same = [one for one in rest if digest(one) == digest(first)]
    second = next((one for one in same if not one.speculative), None) or next(iter(same or rest), None)
    return (first,) if second is None else (first, second)
