"""CFG: configuration and error messages."""

from typing import Any

import pytest

import outrider
from helpers import World, run
from helpers_drafters import Oracle
from outrider import Engine, SamplingParams
from outrider.drafters.lookup import LookupDrafter
from outrider.errors import ModelError, OptionError, OutriderError, OutriderWarning
from outrider.policy.fixed import FixedPolicy

WORLD = World(seed=161)


def test_cfg_1_the_depth_asked_for_is_the_depth_used() -> None:
    """Through the request, SamplingParams, a submitted Request, and the policy."""
    options = {"max_new_tokens": 40}
    oracle = Engine(WORLD.target(), Oracle(WORLD))
    by_policy = Engine(WORLD.target(), Oracle(WORLD), policy=FixedPolicy("oracle", 5))
    request = outrider.Request([1], SamplingParams(max_depth=5, **options))
    found = [
        run(oracle, [[1]], max_depth=5, **options)[0],
        run(oracle, [request])[0],
        oracle.generate(request),
        run(by_policy, [[1]], **options)[0],
    ]
    assert [c.stats.max_proposed for c in found] == [5] * 4
    assert all(len(c.stats.accepted_per_position) == 5 for c in found)
    assert [c.effective_params["max_depth"] for c in found] == [5, 5, 5, None]


@pytest.mark.parametrize("depth", [-1, 1.5, "4", True, float("nan")])
def test_cfg_3_depths_that_are_none_are_refused_by_name(depth: Any) -> None:
    with pytest.raises(ValueError, match="max_depth"):
        Engine(WORLD.target(), Oracle(WORLD)).generate([1], max_depth=depth)
    if not isinstance(depth, float) or depth != depth:
        return
    with pytest.raises(ValueError, match="max_depth"):
        FixedPolicy("oracle", depth)


@pytest.mark.parametrize(("depth", "proposed"), [(0, 0), (1, 1), (10_000, 29)])
def test_cfg_3_the_smallest_and_the_largest_depth_work(depth: int, proposed: int) -> None:
    stats = run(Engine(WORLD.target(), Oracle(WORLD)), [[1]], max_new_tokens=30, max_depth=depth)[0].stats
    assert stats.max_proposed == proposed
    assert stats.method == ("oracle" if depth else "plain")
    assert (stats.off_reason is None) == (depth > 0)


def test_cfg_4_errors_name_sizes_not_tensors() -> None:
    """Head files are not offered yet; what can mismatch today is the vocabulary, and both sizes are named."""
    from outrider.drafters.model import ModelDrafter

    with pytest.raises(OutriderError, match=r"12 tokens.*8"):
        Engine(World(vocab_size=8).target(), ModelDrafter(World(vocab_size=12).target()))


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: Engine(WORLD.target()).generate([1], temprature=1.0), "temperature"),
        (lambda: outrider.load(WORLD.target(), "lokup"), "lookup"),
        (lambda: outrider.load(WORLD.target(), "lookup", max_ngrm=3), "max_ngram"),
        (lambda: outrider.load(WORLD.target(), "lookup:max_ngrams=3"), "max_ngram"),
        (lambda: outrider.load(WORLD.target(), rule="identcal"), "identical"),
    ],
)
def test_cfg_2_a_misspelt_option_gets_a_hint(call: Any, hint: str) -> None:
    with pytest.raises(OptionError, match=f"did you mean '{hint}'"):
        call()


@pytest.mark.parametrize("drafter", ["none", "lookup", "suffix", "recycle", "model"])
def test_cfg_5_the_method_that_was_asked_for_is_the_one_that_ran(drafter: str) -> None:
    """In the library; tests/test_cli_generate.py has the same for every method of the command line."""
    options = {"model": WORLD.draft()} if drafter == "model" else {}
    engine = outrider.load(WORLD.target(), drafter, policy="fixed", **options)  # auto may find that it does not pay
    stats = run(engine, [[1, 2, 3, 4] * 5], max_new_tokens=40)[0].stats
    assert stats.method == ("plain" if drafter == "none" else drafter)
    assert (stats.proposed > 0) == (drafter != "none")
    assert (stats.off_reason is None) == (drafter != "none")


def test_cfg_6_a_draft_that_cannot_be_loaded_is_an_error(tmp_path: Any) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUFnonsense")
    for path in (str(tmp_path / "nowhere.gguf"), str(tmp_path), str(broken)):
        with pytest.raises(ModelError) as caught:
            outrider.load(WORLD.target(), f"model:{path}")
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["model:{}/nowhere.gguf", "model:{}"])
def test_cfg_6_with_plain_allowed_it_is_a_warning_and_the_result_says_why(tmp_path: Any, spec: str) -> None:
    with pytest.warns(OutriderWarning, match=f"without drafts.*{tmp_path}"):
        engine = outrider.load(WORLD.target(), spec.format(tmp_path), allow_plain=True)
    completion = run(engine, [[1, 2, 3, 4]], max_new_tokens=9)[0]
    assert completion.token_ids == run(Engine(WORLD.target()), [[1, 2, 3, 4]], max_new_tokens=9)[0].token_ids
    assert completion.stats.method == "plain"
    assert str(tmp_path) in str(completion.stats.off_reason)


def test_cfg_6_a_pair_that_does_not_fit_and_names_that_are_wrong() -> None:
    other = World(vocab_size=12).target()
    with pytest.warns(OutriderWarning, match="12 tokens"):
        engine = outrider.load(WORLD.target(), "model", model=other, allow_plain=True)
    assert "12 tokens" in str(run(engine, [[1]], max_new_tokens=3)[0].stats.off_reason)
    for options in ({"drafter": "lokup"}, {"drafter": "lookup", "policy": "bold"}, {"rule": "identcal"}):
        with pytest.raises(OptionError):  # a slip of the pen is no reason to go on
            outrider.load(WORLD.target(), allow_plain=True, **options)


@pytest.mark.parametrize(
    "option", [{"dtype": "float32"}, {"max_rows": 2}, {"max_length": 9}, {"exact": "bitwise"}, {"device": "cuda"}]
)
def test_cfg_5_options_of_loading_are_refused_where_the_target_is_loaded(option: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(option))} cannot be set any more"):
        outrider.load(WORLD.target(), "lookup", **option)


def test_cfg_5_lookup_is_not_plain() -> None:
    target = WORLD.target()
    completion = run(Engine(target, LookupDrafter()), [[1, 2, 3, 4] * 5], max_new_tokens=40)[0]
    assert target.num_passes < 40
    assert completion.stats.accepted == 40 - target.num_passes
