"""Prometheus metrics. Names that begin with `vllm:` mean what vLLM means by them, so its dashboards read them; the
others are ours. docs/metrics.md says what each is for. One registry per server, no globals.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from outrider.engine.observe import Observer
from outrider.engine.trace import RoundTrace, RowTrace
from outrider.server.job import Job, Update
from outrider.server.runner import DeadlineExceeded, ShuttingDown

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

M = TypeVar("M", bound=MetricWrapperBase)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
_DEPTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics(Observer):
    """Everything that /metrics shows for one model. Methods are called in the engine's thread, except `refused`."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._model = model_name
        self._requests()
        self._speculation()
        self._own()

    def _requests(self) -> None:
        self.running = self._gauge("vllm:num_requests_running", "Requests that hold a row.")
        self.waiting = self._gauge("vllm:num_requests_waiting", "Requests in the queue.")
        self.cache_use = self._gauge("vllm:kv_cache_usage_perc", "Share of the cache in use, warm rows too, 0 to 1.")
        self.success = self._counter("vllm:request_success", "Requests that ended well.", "finished_reason")
        self.prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens of requests that began to write.")
        self.generation_tokens = self._counter("vllm:generation_tokens", "Tokens written.")
        self.prefix_queries = self._counter("vllm:prefix_cache_queries", "Prompt tokens looked up in warm rows.")
        self.prefix_hits = self._counter("vllm:prefix_cache_hits", "Prompt tokens found there, not computed again.")
        self.first_token = self._histogram("vllm:time_to_first_token_seconds", "Arrival to first token.")
        self.per_token = self._histogram(
            "vllm:request_time_per_output_token_seconds", "Mean seconds per token after the first, per request."
        )
        self.latency = self._histogram("vllm:e2e_request_latency_seconds", "Arrival to last token.")
        self.queue_time = self._histogram("vllm:request_queue_time_seconds", "Arrival to a row.")
        self.prefill_time = self._histogram("vllm:request_prefill_time_seconds", "A row to the first token.")
        self.decode_time = self._histogram("vllm:request_decode_time_seconds", "First token to last.")
        self.prompt_size = self._histogram("vllm:request_prompt_tokens", "Prompt tokens per request.", _TOKENS)
        self.answer_size = self._histogram("vllm:request_generation_tokens", "Written tokens per request.", _TOKENS)

    def _speculation(self) -> None:
        self.drafts = self._counter("vllm:spec_decode_num_drafts", "Proposals: one row in one round with a draft.")
        self.draft_tokens = self._counter("vllm:spec_decode_num_draft_tokens", "Tokens drafted.")
        self.accepted = self._counter("vllm:spec_decode_num_accepted_tokens", "Drafted tokens that were kept.")
        self.accepted_at = self._counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos", "Proposals kept at least that far.", "position"
        )

    def _own(self) -> None:
        self.accepted_by = self._counter(
            "outrider_accepted_tokens", "Drafted tokens kept, by whose they were.", "drafter"
        )
        self.rounds = self._counter("outrider_rounds", "Target passes.")
        self.phase = self._counter("outrider_phase_seconds", "Seconds by phase of the round.", "phase")
        self.batch = self._histogram("outrider_batch_rows", "Rows in a round.", _ROWS)
        self.nodes = self._histogram("outrider_round_nodes", "Tokens scored in a round, all rows.", _TOKENS)
        self.plans = self._counter("outrider_policy_decisions", "What the policy allowed a row in a round.", "drafter")
        self.depth = self._histogram("outrider_policy_depth", "Drafted depth that the policy allowed.", _DEPTHS)
        self.failed = self._counter("outrider_request_errors", "Requests that ended with an error.", "kind")
        self.turned_away = self._counter("outrider_requests_refused", "Requests that were not admitted.", "reason")

    # ---- observers

    @property
    def detailed(self) -> bool:
        return False

    def round_done(self, trace: RoundTrace) -> None:
        """One round of the engine."""
        self.rounds.labels(self._model).inc()
        self.batch.labels(self._model).observe(len(trace.rows))
        self.nodes.labels(self._model).observe(trace.num_nodes)
        for phase in ("draft", "score", "accept", "rest"):
            self.phase.labels(self._model, phase).inc(max(0.0, getattr(trace.seconds, phase)))
        for row in trace.rows:
            self._observe_row(row)

    def _observe_row(self, row: RowTrace) -> None:
        self.plans.labels(self._model, row.drafter).inc()
        self.depth.labels(self._model).observe(row.max_depth)
        self.generation_tokens.labels(self._model).inc(len(row.delivered))
        drafted, kept = len(row.tokens) - 1, sum(origin == "accepted" for origin in row.origins)
        if drafted:
            self.drafts.labels(self._model).inc()
            self.draft_tokens.labels(self._model).inc(drafted)
            self.accepted.labels(self._model).inc(kept)
        for source, count in row.accepted_by.items():
            self.accepted_by.labels(self._model, source).inc(count)
        for position in range(kept):
            self.accepted_at.labels(self._model, str(position)).inc()

    def job_ended(self, job: Job, update: Update) -> None:
        """One generation is over, well or not."""
        completion = update.completion
        if completion is None:
            self.failed.labels(self._model, _kind(update.error, job.cancelled)).inc()
            return
        if completion.finish_reason == "cancelled":
            self.failed.labels(self._model, "cancelled").inc()
        else:
            self.success.labels(self._model, completion.finish_reason).inc()
        written, prompt = len(completion.token_ids), len(completion.prompt_token_ids)
        self.prompt_tokens.labels(self._model).inc(prompt)
        self.prefix_queries.labels(self._model).inc(prompt)
        self.prefix_hits.labels(self._model).inc(completion.stats.reused)
        self.phase.labels(self._model, "prefill").inc(completion.stats.seconds.prefill)
        self.prompt_size.labels(self._model).observe(prompt)
        self.answer_size.labels(self._model).observe(written)
        self._observe_times(job, written)

    def _observe_times(self, job: Job, written: int) -> None:
        times = job.times
        self.queue_time.labels(self._model).observe(times.queue_seconds)
        if times.started is None or times.first_token is None or times.last_token is None:
            return
        decode = times.last_token - times.first_token
        self.first_token.labels(self._model).observe(times.first_token - times.queued)
        self.prefill_time.labels(self._model).observe(times.first_token - times.started)
        self.decode_time.labels(self._model).observe(decode)
        self.latency.labels(self._model).observe(times.last_token - times.queued)
        if written > 1:
            self.per_token.labels(self._model).observe(decode / (written - 1))

    def refused(self, reason: str) -> None:
        """A request was turned away: queue, clients, body, bytes, shutdown."""
        self.turned_away.labels(self._model, reason).inc()

    def watch(self, running: Callable[[], float], waiting: Callable[[], float], cache: Callable[[], float]) -> None:
        """Gauges are read when somebody asks."""
        self.running.labels(self._model).set_function(running)
        self.waiting.labels(self._model).set_function(waiting)
        self.cache_use.labels(self._model).set_function(cache)

    def text(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self.registry)

    # ---- makers

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(name, about, ["model_name"], registry=self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        counter = Counter(name, about, ["model_name", *labels], registry=self.registry)
        return _shown(counter, self._model, labels)

    def _histogram(self, name: str, about: str, buckets: Iterable[float] = _SECONDS) -> Histogram:
        return _shown(
            Histogram(name, about, ["model_name"], buckets=tuple(buckets), registry=self.registry), self._model
        )


def _shown(metric: M, model: str, labels: tuple[str, ...] = ()) -> M:
    """A metric without further labels appears from the start, at zero, so that rates are right from the first event."""
    if not labels:
        metric.labels(model)
    return metric


def _kind(error: Exception | None, cancelled: bool) -> str:
    if cancelled:
        return "cancelled"
    if isinstance(error, DeadlineExceeded):
        return "deadline"
    return "shutdown" if isinstance(error, ShuttingDown) else type(error).__name__
