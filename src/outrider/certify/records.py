"""What a certificate says, as plain values that JSON holds and gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["equal", "near tie", "NOT EXPLAINED"]


@dataclass(frozen=True)
class Difference:
    """The first place where two runs of one request part.

    what: "token" or the first other field that differs. position: of the differing token among the new ones. plain,
    speculative: the two tokens (None: that run had ended) or values. gap: how far apart plain's two best tokens lie
    there, in the score that decides (greedy: processed logits; sampling: log-probability plus noise); pair_gap: the
    same for the two tokens that were written. noise: how much that score moves with the shape of the pass, measured at
    this very place on this machine. tolerance: the largest gap that this noise can bridge.
    """

    what: str
    verdict: Verdict
    reason: str
    position: int | None = None
    plain: Any = None
    speculative: Any = None
    gap: float | None = None
    pair_gap: float | None = None
    noise: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class JobResult:
    """One pair of runs: how it was run, what it wrote, and where the two differ, if anywhere."""

    key: str
    prompt_id: str
    kind: str
    temperature: float
    seed: int
    depth: int
    num_prompt: int
    num_tokens: int
    finish_reason: str
    method: str
    rounds: int
    proposed: int
    accepted: int
    off_reason: str | None
    effective_params: Mapping[str, Any]
    prompt_token_ids: Sequence[int]
    difference: Difference | None = None

    @property
    def verdict(self) -> Verdict:
        return self.difference.verdict if self.difference else "equal"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "JobResult":
        given: dict[str, Any] = dict(values)
        if given["difference"]:
            given["difference"] = Difference(**given["difference"])
        return cls(**given)


@dataclass(frozen=True)
class Floor:
    """Plain against plain, one thread against several: how often this machine's own text is unsteady."""

    threads: int
    compared: int
    different: int


@dataclass
class Certificate:
    """Everything compared so far. settings: what was run on what; two certificates join only if theirs are equal.

    noise: measured rounding noise of logits over several pass shapes. num_jobs: how many were to be compared.
    """

    settings: dict[str, Any]
    environment: dict[str, Any]
    num_jobs: int
    noise: dict[str, Any] = field(default_factory=dict[str, Any])
    floor: Floor | None = None
    notes: list[str] = field(default_factory=list[str])
    results: list[JobResult] = field(default_factory=list[JobResult])
    faults: list[str] = field(default_factory=list[str])
    interrupted: bool = False

    def count(self, verdict: Verdict) -> int:
        return sum(result.verdict == verdict for result in self.results)

    @property
    def num_tokens(self) -> int:
        """Tokens of the speculative runs that were compared with plain ones."""
        return sum(result.num_tokens for result in self.results)

    @property
    def complete(self) -> bool:
        return len(self.results) == self.num_jobs

    @property
    def passed(self) -> bool:
        """Everything was compared, and nothing is unexplained."""
        return self.complete and not self.faults and not self.count("NOT EXPLAINED")

    def to_dict(self) -> dict[str, Any]:
        summary = {
            "passed": self.passed,
            "complete": self.complete,
            "tokens": self.num_tokens,
            "equal": self.count("equal"),
            "near_ties": self.count("near tie"),
            "not_explained": self.count("NOT EXPLAINED"),
        }
        return {"summary": summary, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Certificate":
        given = {name: value for name, value in values.items() if name != "summary"}
        given["results"] = [JobResult.from_dict(result) for result in given["results"]]
        given["floor"] = Floor(**given["floor"]) if given["floor"] else None
        return cls(**given)
