"""Runs the pairs of a grid on one engine, in batches, and collects the certificate.

Plain and speculative runs are requests to the same engine that differ in max_depth alone, so weights, settings,
defaults and the prompt's tokens cannot differ between them; that they did not is checked all the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch

from outrider.acceptance.registry import rule_spec
from outrider.certify.environment import environment
from outrider.certify.grid import Grid, Job, comparable
from outrider.certify.judge import Judge
from outrider.certify.probe import Probe
from outrider.certify.records import Certificate, Floor, JobResult
from outrider.engine.completion import Completion
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.errors import OptionError
from outrider.prompts import TestPrompt
from outrider.sampling.params import SamplingParams

NOISE_PLACES = 3
NOISE_CONTEXT = 128

OnResult = Callable[[JobResult, Certificate], None]


@dataclass(frozen=True)
class Subject:
    """What is certified: an engine, how its drafter is called in the report, and the options of every request."""

    engine: Engine
    drafter: str
    options: Mapping[str, Any]

    def settings(self, grid: Grid) -> dict[str, Any]:
        """What two certificates must share to be joined."""
        info, rule = self.engine.target.info, self.engine.rule
        return {
            "target": info.name,
            "dtype": str(info.dtype).removeprefix("torch.")
            + (f" with {info.quantize} weights" if info.quantize else ""),
            "exact": info.exact,
            "exact_reason": info.exact_reason,
            "drafter": self.drafter,
            "rule": rule_spec(rule),
            "lossless": rule.lossless,
            "max_new_tokens": grid.max_new_tokens,
            "options": {name: repr(value) if callable(value) else value for name, value in self.options.items()},
        }

    def params(self, grid: Grid, temperature: float, seed: int, depth: int) -> SamplingParams:
        fixed = {"temperature": temperature, "seed": seed, "max_depth": depth, "max_new_tokens": grid.max_new_tokens}
        for name in fixed:
            if name in self.options:
                raise OptionError(f"{name} is set by the grid; give it as temperatures, seeds, depths, max_new_tokens")
        return SamplingParams.from_options(**fixed, **self.options)

    def resolved(self, grid: Grid, job: Job) -> SamplingParams:
        info = self.engine.target.info
        params = self.params(grid, job.temperature, job.seed, job.depth)
        return params.resolve(info.generation_defaults, info.eos_token_ids, info.vocab_size)

    def run(self, grid: Grid, jobs: Sequence[Job], depth: int) -> list[Completion]:
        """The completions of the jobs' prompts with this depth (0 = plain), together in one batch."""
        requests = [
            Request(list(job.prompt_token_ids), self.params(grid, job.temperature, job.seed, depth)) for job in jobs
        ]
        return self.engine.generate_batch(requests)


def certify(
    engine: Engine,
    prompts: Sequence[TestPrompt],
    grid: Grid,
    *,
    drafter: str = "",
    options: Mapping[str, Any] | None = None,
    floor_prompts: int = 2,
    earlier: Certificate | None = None,
    on_result: OnResult = lambda result, certificate: None,
) -> Certificate:
    """The certificate of everything in the grid; after an interrupt, of what was compared until then.

    options: SamplingParams fields for all requests. floor_prompts: how many are also run plain with another number of
    threads. earlier: results not to compute again; its settings must be the same. Raises OptionError, PromptError.
    """
    grid, notes = comparable(grid, engine.rule)
    subject = Subject(engine, drafter, options or {})
    encoded = [(p.id, p.kind, p.encode(engine.target.tokenizer)) for p in prompts]
    jobs = list(grid.jobs(encoded))
    certificate = Certificate(subject.settings(grid), environment(), len(jobs), notes=notes)
    jobs = _without_done(certificate, jobs, earlier)
    try:
        _measure_noise(certificate, engine, [tokens for _, _, tokens in encoded])
        for result in _compare_all(subject, grid, jobs):
            certificate.results.append(result)
            on_result(result, certificate)
        if floor_prompts:
            certificate.floor = _floor(subject, grid, encoded[:floor_prompts])
    except KeyboardInterrupt:
        certificate.interrupted = True
    _check_worth(certificate)
    return certificate


def _compare_all(subject: Subject, grid: Grid, jobs: Sequence[Job]) -> Iterator[JobResult]:
    judge = Judge(Probe(subject.engine.target), bitwise=subject.engine.target.info.exact == "bitwise")
    for batch in _batches(jobs, grid.batch):
        firsts = list({job.prompt_id: job for job in batch}.values())
        plain = dict(zip([job.prompt_id for job in firsts], subject.run(grid, firsts, 0), strict=True))
        for depth in dict.fromkeys(job.depth for job in batch):
            same_depth = [job for job in batch if job.depth == depth]
            for job, drafted in zip(same_depth, subject.run(grid, same_depth, depth), strict=True):
                difference = judge.compare(plain[job.prompt_id], drafted, subject.resolved(grid, job))
                result = _result(job, drafted)
                yield replace(result, difference=difference)


def _batches(jobs: Sequence[Job], size: int) -> Iterator[list[Job]]:
    """Jobs of the same temperature and seed, `size` prompts at a time, all their depths together."""
    for _, same in groupby(jobs, key=lambda job: (job.temperature, job.seed)):
        by_prompt = [list(group) for _, group in groupby(same, key=lambda job: job.prompt_id)]
        for start in range(0, len(by_prompt), size):
            yield [job for group in by_prompt[start : start + size] for job in group]


def _result(job: Job, completion: Completion) -> JobResult:
    stats = completion.stats
    return JobResult(
        key=job.key,
        prompt_id=job.prompt_id,
        kind=job.kind,
        temperature=job.temperature,
        seed=job.seed,
        depth=job.depth,
        num_prompt=len(job.prompt_token_ids),
        num_tokens=len(completion.token_ids),
        finish_reason=completion.finish_reason,
        method=stats.method,
        rounds=stats.rounds,
        proposed=stats.proposed,
        accepted=stats.accepted,
        off_reason=stats.off_reason,
        effective_params=dict(completion.effective_params),
        prompt_token_ids=list(completion.prompt_token_ids),
    )


def _without_done(certificate: Certificate, jobs: list[Job], earlier: Certificate | None) -> list[Job]:
    """Take over earlier results; returns the jobs that are left. A prompt that has changed is run again."""
    if earlier is None:
        return jobs
    for name, value in certificate.settings.items():
        if earlier.settings.get(name) != value:
            raise OptionError(
                f"cannot resume: {name} was {earlier.settings.get(name)!r} and is now {value!r}; use another file"
            )
    wanted = {job.key: list(job.prompt_token_ids) for job in jobs}
    kept = [r for r in earlier.results if wanted.get(r.key, r.prompt_token_ids) == list(r.prompt_token_ids)]
    certificate.results = kept
    certificate.num_jobs = len({*wanted, *(result.key for result in kept)})
    done = {result.key for result in kept}
    return [job for job in jobs if job.key not in done]


def _measure_noise(certificate: Certificate, engine: Engine, texts: Sequence[Sequence[int]]) -> None:
    """Rounding noise of this machine on the first few prompts; a bitwise target must show none."""
    probe = Probe(engine.target)
    places = [text[-NOISE_CONTEXT:] for text in texts[:NOISE_PLACES]]
    largest = max(probe.logit_noise(place) for place in places)
    certificate.noise = {"largest": largest, "places": len(places)}
    if engine.target.info.exact == "bitwise" and largest > 0:
        certificate.faults.append(
            f"the target claims bitwise passes, but a logit moved by {largest:.3g} with the shape of the pass"
        )


def _floor(subject: Subject, grid: Grid, prompts: Sequence[tuple[str, str, Sequence[int]]]) -> Floor:
    """Plain runs of the first setting with one thread and with the usual number (two, if that is one)."""
    temperature, seed = grid.settings()[0]
    jobs = [Job(name, kind, tuple(tokens), temperature, seed, 0) for name, kind, tokens in prompts]
    usual = torch.get_num_threads()
    many = max(usual, 2)
    try:
        texts = [_texts_with(subject, grid, jobs, threads) for threads in (1, many)]
    finally:
        torch.set_num_threads(usual)
    different = sum(one != other for one, other in zip(*texts, strict=True))
    return Floor(many, len(jobs), different)


def _texts_with(subject: Subject, grid: Grid, jobs: Sequence[Job], threads: int) -> list[tuple[int, ...]]:
    torch.set_num_threads(threads)
    groups = [jobs[start : start + grid.batch] for start in range(0, len(jobs), grid.batch)]
    return [completion.token_ids for group in groups for completion in subject.run(grid, group, 0)]


def _check_worth(certificate: Certificate) -> None:
    """Equality is worth nothing if nothing was drafted."""
    if certificate.complete and not sum(result.proposed for result in certificate.results):
        reasons = sorted({result.off_reason or "no reason given" for result in certificate.results})
        certificate.faults.append(f"no token was ever drafted, so nothing was certified: {'; '.join(reasons)}")
