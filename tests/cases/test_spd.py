"""SPD: slower than plain decoding, and knowing it. Only the arithmetic is tested here, never a clock."""

from typing import Any

import pytest

from outrider.simulate import best_depth, forecast, simulate_tokens


def test_spd_1_a_dear_draft_is_said_to_be_slower() -> None:
    told = forecast(0.65, 3, 0.53)
    assert told.speedup == pytest.approx(0.907, abs=1e-3)
    assert "slower" in str(told)
    assert best_depth(0.65, 0.53).depth < 3
    assert best_depth(0.5, 0.9).depth == 0


def test_spd_2_overhead_is_part_of_the_bill() -> None:
    """Acceptance .9, a target pass of 2 ms, 20 ms of overhead: slower at any depth, each term shown."""
    for depth in (8, 16, 64):
        told = forecast(0.9, depth, 0.1, overhead=10.0, target_cost=lambda width: 1 + 0.01 * width)
        assert told.speedup < 1
        assert "slower" in str(told)
        assert (told.overhead, told.draft) == (10.0, pytest.approx(0.1 * depth))
        for part in ("target", "draft", "overhead"):
            assert part in str(told)
    assert best_depth(0.9, 0.1, overhead=10.0).depth == 0
    assert forecast(0.9, 8, 0.1).speedup > 3


def test_spd_2_the_yield_is_what_a_simulation_measures() -> None:
    assert forecast(0.9, 8, 0.1).tokens == pytest.approx(simulate_tokens(0.9, 8, 20_000, seed=1), rel=0.02)


@pytest.mark.real
@pytest.mark.slow
def test_spd_3_a_benchmark_of_a_small_model_says_what_a_ratio_is_made_of(models: Any) -> None:
    """Whatever the ratio on this machine is: it stands beside equal texts, and its parts add up to it."""
    from outrider.bench.runner import run_bench
    from outrider.bench.setup import set_up
    from outrider.prompts import load_prompts

    models("smollm2-135m")
    ready = set_up("smollm2-135m", ["lookup"], against=())
    prompts = [*load_prompts("own", ["code"], 1), *load_prompts("own", ["question"], 1)]
    report = run_bench(ready, prompts, max_new_tokens=24, repeats=1)
    (ratio,) = [one for one in report.ratios if one.system == "outrider lookup"]
    assert ratio.value is not None
    assert set(ratio.by_kind) == {"code", "question"}
    (reason,) = report.reasons
    for part in (
        f"{ratio.value:.2f}x",
        "slower than" if ratio.value < 1 else "faster than",
        "draft",
        "score",
        "overhead",
    ):
        assert part in reason
