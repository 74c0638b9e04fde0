"""The OpenAPI description is true: requests made from it, good and bad, never get an answer that it does not know."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from live import ToyServer, until
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from worlds import parts

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
)
QUICK = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
POST = ("/v1/chat/completions", "/v1/completions")
GET = ("/health", "/metrics", "/ready", "/v1/models")


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[ToyServer]:
    with ToyServer(parts(max_tokens=8, model_name="a")) as server:
        yield server
        until(server.idle)
        assert server.get("/ready").status_code == 200


@pytest.mark.parametrize(
    ("path", "mode"),
    [(path, mode) for path in POST for mode in GenerationMode] + [(path, GenerationMode.POSITIVE) for path in GET],
)
def test_the_description_is_true(fuzzed: ToyServer, path: str, mode: GenerationMode) -> None:
    description = schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")
    operation = description[path]["POST" if path in POST else "GET"]

    statuses: list[int] = []

    @given(operation.as_strategy(generation_mode=mode))
    @QUICK
    def check(case: schemathesis.Case) -> None:
        if mode.is_positive and isinstance(case.body, dict):
            case.body |= {"model": "a", "deadline": 60.0}
        statuses.append(case.call_and_validate(checks=list(CHECKS)).status_code)

    check()
    assert (200 in statuses) is mode.is_positive, statuses


def test_what_is_described(fuzzed: ToyServer) -> None:
    description = fuzzed.get("/openapi.json").json()
    assert sorted(description["paths"]) == sorted([*POST, *GET])
    schemas = description["components"]["schemas"]
    assert "speculation" in schemas["ChatRequest"]["properties"]
    assert schemas["ChatRequest"]["additionalProperties"] is False
