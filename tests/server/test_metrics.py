"""What /metrics counts is what happened; pages and dashboard speak of metrics that exist, the page of all."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from live import ToyServer, until
from prometheus_client.parser import text_string_to_metric_families
from test_protocol import TEXT
from worlds import parts

from outrider.engine.completion import CompletionStats
from outrider.server.config import ServerConfig
from outrider.server.schema import ChatRequest, CompletionRequest
from outrider.server.usage import acceptance, acceptance_histogram

ROOT = Path(__file__).parents[2]


def scrape(server: ToyServer) -> dict[tuple[str, ...], float]:
    """Value by name and the values of all labels but the model's."""
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(server.get("/metrics").text):
        for sample in family.samples:
            labels = [value for name, value in sample.labels.items() if name != "model_name"]
            found[(sample.name, *labels)] = sample.value
    return found


def test_counters_add_up_to_what_the_answers_say() -> None:
    with ToyServer(parts()) as server:
        before = scrape(server)
        assert before["vllm:spec_decode_num_drafts_total",] == 0  # there from the start, at zero
        depths = (1, 4, 0, 3)
        asked: list[Any] = [{**TEXT, "speculation": {"max_depth": depth}} for depth in depths]
        answers = [server.post("/v1/completions", body).json() for body in asked]
        until(server.idle)
        after = scrape(server)
    usage = [answer["usage"] for answer in answers]
    theirs = [answer["metrics"]["speculative_decoding"] for answer in answers]
    expected = {
        "vllm:prompt_tokens_total": sum(one["prompt_tokens"] for one in usage),
        "vllm:generation_tokens_total": sum(one["completion_tokens"] for one in usage),
        "vllm:spec_decode_num_drafts_total": sum(one["num_spec_steps"] for one in theirs),
        "vllm:spec_decode_num_draft_tokens_total": sum(one["num_draft_tokens"] for one in theirs),
        "vllm:spec_decode_num_accepted_tokens_total": sum(one["num_accepted_draft_tokens"] for one in theirs),
        "vllm:e2e_request_latency_seconds_count": 4,
        "vllm:prefix_cache_hits_total": sum(one["prompt_tokens_details"]["cached_tokens"] for one in usage),
        "outrider_rounds_total": sum(one["speculation"]["rounds"] for one in usage),
        "outrider_batch_rows_sum": sum(one["speculation"]["rounds"] for one in usage),
    }
    assert {name: after[name,] for name in expected} == expected
    assert after["vllm:request_success_total", "length"] == 4
    kept = [value for key, value in after.items() if key[0] == "vllm:spec_decode_num_accepted_tokens_per_pos_total"]
    assert sum(kept) == expected["vllm:spec_decode_num_accepted_tokens_total"]
    assert kept == sorted(kept, reverse=True)
    assert after["outrider_phase_seconds_total", "score"] > 0
    assert after["vllm:num_requests_running",] == after["vllm:num_requests_waiting",] == 0
    assert 0 < after["vllm:kv_cache_usage_perc",] < 1  # the warm rows


def names(server: ToyServer) -> set[str]:
    families = text_string_to_metric_families(server.get("/metrics").text)
    return {family.name for family in families if not family.name.endswith("_created")}


def test_the_pages_name_every_metric_and_no_other(toy: ToyServer) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    known = names(toy)
    told = {
        word for cell in re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE) for word in re.findall(r"`([^`]+)`", cell)
    }
    assert told == known
    dashboard = (ROOT / "deploy" / "grafana-dashboard.json").read_text("utf-8")
    shown = set(re.findall(r"(?:vllm:|outrider_)\w+", " ".join(_queries(json.loads(dashboard)))))
    assert {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in shown} <= known


def _queries(dashboard: Any) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_the_serving_guide_names_every_option_and_field() -> None:
    page = (ROOT / "docs" / "serving.md").read_text("utf-8")
    obvious = {"model", "host", "port", "api_key", "model_name"}
    for name in {*ChatRequest.model_fields, *CompletionRequest.model_fields} - obvious:
        assert f"`{name}`" in page or f"`{name}." in page, name
    for field in fields(ServerConfig):
        assert field.name in obvious or f"--{field.name.replace('_', '-')}" in page, field.name


def test_histogram_counts_only_rounds_with_a_proposal() -> None:
    """Ten rounds: three without a proposal; of the seven, five kept one token, of those two kept a second."""
    counts = {"rounds": 10, "rounds_without_proposal": 3, "proposed": 14, "accepted": 7, "delivered": 17}
    stats = CompletionStats("toy", "identical", True, "bitwise", **counts, accepted_per_position=(0.5, 0.2))
    assert acceptance_histogram(stats) == [2, 3, 2]
    figures = acceptance(stats)
    assert (figures["num_spec_steps"], figures["mean_acceptance_length"]) == (7, 2.0)
    assert figures["draft_acceptance_rate"] == 0.5
