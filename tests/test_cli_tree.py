"""The tree that `generate --show-tree` prints, and the search for a part of a model that drafts well."""

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from helpers import World, run
from helpers_cli import PROMPT
from helpers_cli import outrider as command_line
from helpers_drafters import chosen_tree
from helpers_hf import text, tiny
from helpers_models import llama, save_model
from outrider import Engine
from outrider.bench.layers import LayerSearch, candidates, ranges, written
from outrider.cli.tree import most_instructive, round_tree, states
from outrider.drafters.self import SelfDrafter, parse_layers
from outrider.engine.trace import RoundTrace, RowTrace
from outrider.policy.fixed import FixedPolicy
from outrider.targets.hf.target import HFTarget
from outrider.testing import FunctionDrafter
from outrider.types import PhaseSeconds


def row(**changes: Any) -> RowTrace:
    made = {
        "request_id": 0,
        "drafter": "mix",
        "max_depth": 3,
        "max_nodes": 6,
        "reason": "",
        "position": 5,
        "tokens": (1, 2, 3, 4, 5, 6),
        "parents": (-1, 0, 0, 1, 1, 3),
        "confidence": (1.0, 0.5, 0.4, 0.8, 0.1, 0.7),
        "target_best": (2, 4, 0, 7, 0, 0),
        "target_chance": (1.0, 0.9, 0.05, 0.6, 0.2, 0.01),
        "path": (0, 1, 3),
        "next_token": 7,
        "delivered": (2, 4, 7),
        "texts": ("b", "d", "g"),
        "origins": ("accepted", "accepted", "recovered"),
        "finish_reason": None,
        "sources": ("", "suffix", "recycle", "suffix", "recycle", "suffix"),
    }
    fields = RowTrace.__dataclass_fields__
    return RowTrace(**{"cache_row": 0, **made, **changes} if "cache_row" in fields else {**made, **changes})


def trace(one: RowTrace, index: int = 0) -> RoundTrace:
    return RoundTrace(index, (one,), PhaseSeconds(draft=0.001, score=0.02), len(one.tokens))


def shown(one: RowTrace) -> str:
    console = Console(file=StringIO(), width=100, color_system=None)
    console.print(round_tree(trace(one), 3, lambda ids: "".join("abcdefg\n"[i - 1] for i in ids)))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_every_state() -> None:
    assert states(row()) == ("kept", "kept", "unjudged", "kept", "unjudged", "rejected")
    assert states(row(path=(0,), origins=("recovered",), delivered=(7,)))[1:3] == ("rejected", "rejected")
    assert states(row(path=(0, 1), next_token=4, origins=("accepted", "accepted"), delivered=(2, 4)))[3] == "kept"


def test_the_tree_shows_tokens_states_sources_and_figures() -> None:
    assert shown(row()) == (
        "round 1 of 3: 5 drafted by mix, 2 kept, 3 tokens written; draft 1.0 ms, score 20.0 ms\n"
        "'a' (written before)\n"
        "├── ✓ 'b'  suffix, draft 50%, target 90%\n"
        "│   ├── ✓ 'd'  suffix, draft 80%, target 60%\n"
        "│   │   └── ✗ 'f'  suffix, draft 70%, target 1%\n"
        "│   └── · 'e'  recycle, draft 10%, target 20%\n"
        "└── · 'c'  recycle, draft 40%, target 5%\n"
        "then 'g'  the target's own, in place of what was rejected\n"
    )


def test_endings() -> None:
    assert "then 'g'  nothing was rejected" in shown(row(origins=("accepted", "accepted", "bonus")))
    cut = row(path=(0, 1), next_token=4, origins=("accepted", "accepted"), delivered=(2, 4))
    assert "the text ended with a drafted token" in shown(cut)
    bare = shown(row(confidence=None, sources=()))
    assert "✓ 'b'  target 90%" in bare
    assert "'\\n'" in shown(row(delivered=(2, 4, 8)))


def test_the_most_instructive_round_is_chosen() -> None:
    nothing = row(tokens=(1,), parents=(-1,), path=(0,), origins=("bonus",), delivered=(2,))
    wrong = row(path=(0,), origins=("recovered",), delivered=(7,))
    assert most_instructive([]) is most_instructive([trace(nothing)]) is None
    rounds = [trace(nothing), trace(wrong, 1), trace(row(), 2), trace(row(), 3)]
    found = most_instructive(rounds)
    assert found is rounds[2]


def test_a_real_round_can_be_shown() -> None:
    world, seen = World(seed=3, draft_error=4.0), list[RoundTrace]()
    drafter = FunctionDrafter(chosen_tree(world))
    engine = Engine(world.target(), drafter, policy=FixedPolicy("function", 3, 14), on_round=seen.append)
    run(engine, [[1]], max_new_tokens=20)
    assert most_instructive(seen) is not None
    assert {"kept", "rejected", "unjudged"} == {state for one in seen for state in states(one.rows[0])}
    for one in seen:
        kept = [one.rows[0].tokens[n] for n, state in enumerate(states(one.rows[0])) if state == "kept"][1:]
        accepted = [
            t for t, origin in zip(one.rows[0].delivered, one.rows[0].origins, strict=True) if origin == "accepted"
        ]
        assert kept == accepted


@pytest.mark.parametrize("state", ["kept", "rejected", "unjudged"])
def test_colours_say_the_same(state: str) -> None:
    console = Console(file=StringIO(), width=100, force_terminal=True, color_system="standard")
    console.print(round_tree(trace(row()), 1, lambda ids: "x"))
    assert isinstance(console.file, StringIO)
    mark = {"kept": "\x1b[1;32m", "rejected": "\x1b[9;31m", "unjudged": "\x1b[2m"}[state]
    assert mark in console.file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_model(tmp_path_factory.mktemp("target"), llama(dtype=torch.float32))


def test_show_tree_prints_one_round_after_the_text(folder: str) -> None:
    words = (
        "generate",
        "--target",
        folder,
        "--drafter",
        "recycle",
        "--policy",
        "fixed",
        "--max-new-tokens",
        "30",
        PROMPT,
    )
    seen, plain = command_line(*words, "--show-tree"), command_line(*words)
    assert (seen.code, seen.out) == (0, plain.out)
    assert re.search(r"^round \d+ of \d+: \d+ drafted by recycle, \d+ kept", seen.err, re.MULTILINE)
    assert "(written before)" in seen.err
    assert "├── " in seen.err or "└── " in seen.err
    assert "round " not in plain.err
    result = json.loads(command_line(*words, "--show-tree", "--json").out)
    assert len(result["round"]["rows"][0]["tokens"]) > 1
    assert "nothing was drafted" in command_line(*words, "--show-tree", "--max-depth", "0").err


def test_shares_of_a_mix_are_in_the_figures(folder: str) -> None:
    seen = command_line(
        "generate", "--target", folder, "--drafter", "mix", "--policy", "fixed", "--max-new-tokens", "40", PROMPT
    )
    assert re.search(r"% accepted \((suffix|recycle) \d+", seen.err)


def test_tune_self_prints_a_table_and_what_to_use(folder: str, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": PROMPT}) + "\n", "utf-8")
    words = ("drafters", "tune-self", "--target", folder, "--prompts", str(prompts))
    seen = command_line(*words)
    assert seen.code == 0, seen.err
    assert "agreement" in seen.out
    assert "self:" in seen.out
    assert "use: --drafter self:" in seen.out or "another drafter will do better" in seen.out
    result = json.loads(command_line(*words, "--json").out)
    assert all(0 <= trial["agreement"] <= 1 for trial in result["trials"])
    options = result["best"].partition(":")[2].split("=")
    assert SelfDrafter(**{options[0]: int(options[1]) if options[0] == "layers" else options[1]})
    assert "lookup" in command_line("drafters").out


def test_layers_worth_a_trial() -> None:
    found = candidates([1.0, 0.3, 0.1, 0.2, 0.05, 0.4, 0.6, 0.5])
    assert (0, 1, 2, 3, 5, 6, 7) in found
    assert (0, 1, 5, 6, 7) in found
    assert (0, 1, 2, 3) in found
    assert all(layers[0] == 0 and len(layers) < 8 for layers in found)
    assert ranges((1, 2, 3, 7, 9, 10)) == "1-3+7+9-10"
    assert parse_layers(ranges((1, 2, 3, 7, 9, 10))) == (1, 2, 3, 7, 9, 10)


def test_a_search_knows_a_part_that_agrees() -> None:
    """The last layer of this model does nothing; leaving it out costs no agreement, leaving out others does."""
    model = tiny("llama", torch.float32)
    with torch.no_grad():
        model.model.layers[2].self_attn.o_proj.weight.zero_()
        model.model.layers[2].mlp.down_proj.weight.zero_()
    target = HFTarget(model, max_rows=4)
    prompts = [text(6, seed=n) for n in (1, 2)]
    texts, lengths = written(run(Engine(target), prompts, max_new_tokens=24))
    search = LayerSearch(target, texts, lengths)
    influences = search.influences()
    assert influences[2] == pytest.approx(0.0, abs=1e-6)
    target.prefill([0, 1], [one[:-1] for one in texts])
    assert search.try_layers([0, 1]).agreement == 1.0
    assert search.try_layers([0, 2]).agreement < 1.0
    target.free(range(4))
