"""The OpenAPI description is true: requests made from it, good and bad, never get an answer that it does not know."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from live import ToyServer, until
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


@pytest.fixture(scope="module")
def fuzzed() -> object:
    with ToyServer(parts(max_tokens=8, model_name="a")) as server:
        yield server
        until(server.idle)
        assert server.get("/ready").status_code == 200


@pytest.fixture
def described(fuzzed: ToyServer) -> object:
    return schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_description_is_true(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)


def test_what_is_described(fuzzed: ToyServer) -> None:
    description = fuzzed.get("/openapi.json").json()
    paths = ["/health", "/metrics", "/ready", "/v1/chat/completions", "/v1/completions", "/v1/models"]
    assert sorted(description["paths"]) == paths
    assert "speculation" in description["components"]["schemas"]["ChatRequest"]["properties"]
    assert description["components"]["schemas"]["ChatRequest"]["additionalProperties"] is False
