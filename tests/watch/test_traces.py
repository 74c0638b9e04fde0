"""A trace says what happened: it fits its schema, adds up to the completions, and harms nobody when the disk fails."""

import io
import json
import logging
import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from rich.console import Console
from tapes import PROMPT, engine, tape
from worlds import draft

import outrider
from outrider.errors import OptionError, ProcessorError
from outrider.testing import FunctionDrafter
from outrider.traces import TraceFile, write_trace
from outrider.traces.lines import Lines
from outrider.traces.reader import parse_trace, read_trace
from outrider.traces.summary import pair, sums, verdict
from outrider.watch.terminal import play

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "trace.schema.json").read_text("utf-8"))


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def test_every_line_fits_the_schema_and_adds_up(tmp_path: Path) -> None:
    completions = tape(tmp_path / "t.jsonl")
    lines = lines_of(tmp_path / "t.jsonl")
    for line in lines:
        jsonschema_rs.validate(SCHEMA, line)
    assert [line["kind"] for line in lines if line["kind"] != "round"] == ["header", *["request", "end"] * 2]
    requests = read_trace(tmp_path / "t.jsonl").requests
    for request, completion in zip(requests, completions, strict=True):
        total, stats = sums(request.rounds), completion.stats
        assert tuple(request.token_ids) == completion.token_ids
        assert request.text == completion.text
        assert (total.rounds, total.tokens) == (stats.rounds, stats.delivered)
        assert (total.drafted, total.accepted) == (stats.proposed, stats.accepted)
        assert [kept / total.rounds for kept in total.kept_at] == [s for s in stats.accepted_per_position if s]
        assert request.end
        assert request.end["figures"]["accepted"] == stats.accepted
        assert (request.end["finish"], request.end["rest"]) == (completion.finish_reason, "")
    assert requests[0].speculative
    assert not requests[1].speculative
    assert verdict(*pair(requests, requests)).ratio is not None


def test_a_row_says_what_the_target_chose_and_what_was_kept(tmp_path: Path) -> None:
    tape(tmp_path / "t.jsonl")
    rows = [one.row for one in read_trace(tmp_path / "t.jsonl").requests[0].rounds]
    branched = [row for row in rows if row["tree"]["parents"].count(0) == 2]
    assert branched
    for row in rows:
        tree, aim, path = row["tree"], row["target"], row["path"]
        assert (
            len(tree["parents"]) == len(tree["tokens"]) == len(tree["texts"]) == len(aim["chance"]) == len(aim["best"])
        )
        for parent, node in pairwise(path):  # greedy: what was kept is what the target liked best
            assert tree["parents"][node] == parent
            assert aim["best"][parent] == tree["tokens"][node]
        assert row["next"]["token"] == aim["best"][path[-1]] == row["delivered"]["tokens"][-1]
        assert len(row["delivered"]["tokens"]) == len(path)
    times = [one.at for one in read_trace(tmp_path / "t.jsonl").requests[0].rounds]
    assert times == sorted(times)


def test_a_schema_that_does_not_fit_is_noticed(tmp_path: Path) -> None:
    """A negative control: a field more, a field less, a kind unknown."""
    tape(tmp_path / "t.jsonl")
    line = next(line for line in lines_of(tmp_path / "t.jsonl") if line["kind"] == "round")
    for wrong in ({**line, "more": 1}, {k: v for k, v in line.items() if k != "at"}, {**line, "kind": "rond"}):
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(SCHEMA, wrong)


def test_the_page_names_every_field() -> None:
    page = (DOCS / "traces.md").read_text("utf-8")
    defined = SCHEMA["$defs"]
    names = {name for part in defined.values() for name in _properties(part)} - {"kind"}
    assert {name for name in names if f"`{name}`" not in page} == set()


def _properties(schema: Any) -> set[str]:
    found = schema.get("properties", {})
    return set(found) | {name for one in found.values() for name in _properties(one)}


def test_prompts_only_if_asked_for(tmp_path: Path) -> None:
    for prompts, expected in ((False, None), (True, PROMPT)):
        path = tmp_path / f"{prompts}.jsonl"
        tape(path, prompts=prompts)
        assert {one.begin["prompt"] for one in read_trace(path).requests if one.begin} == {expected}


def test_cuts_errors_and_cancellations_have_their_end_line(tmp_path: Path) -> None:
    made = engine()
    write_trace(made, tmp_path / "t.jsonl")

    def broken(tokens: list[int], row: Any) -> Any:
        raise RuntimeError("no")

    with pytest.raises(ProcessorError):
        made.generate(PROMPT, logits_processors=[broken])
    late = made.submit(PROMPT, max_new_tokens=400, ignore_eos=True)
    made.step()
    late.cancel()
    cut = made.generate(PROMPT, max_new_tokens=2, max_depth=4, ignore_eos=True)
    ends = [line for line in lines_of(tmp_path / "t.jsonl") if line["kind"] == "end"]
    assert [end["finish"] for end in ends] == ["error", "cancelled", "length"]
    assert "ProcessorError" in ends[0]["error"]
    last = read_trace(tmp_path / "t.jsonl").requests[-1]
    assert tuple(last.token_ids) == cut.token_ids
    for line in lines_of(tmp_path / "t.jsonl"):
        jsonschema_rs.validate(SCHEMA, line)


def test_without_texts_nothing_tells_what_was_written(tmp_path: Path) -> None:
    """Two texts of the same shape give the same lines, times aside."""
    shapes = []
    for letter in (97, 98):
        made = engine(FunctionDrafter(draft))
        seen: list[Any] = []
        lines = Lines(made, texts=False)

        class Keep(outrider.engine.observe.Observer):
            def began(self, request: Any) -> None:
                seen.append(lines.request(request))  # noqa: B023

            def round_done(self, trace: Any) -> None:
                seen.append(lines.round(trace))  # noqa: B023

            def ended(self, request_id: int, completion: Any) -> None:
                seen.append(lines.end(request_id, completion, 0))  # noqa: B023

        made.attach(Keep())
        bias = {letter: 100.0}
        made.generate(PROMPT, max_new_tokens=6, logit_bias=bias, max_depth=0, ignore_eos=True)
        for line in [lines.header(), *seen]:
            jsonschema_rs.validate(SCHEMA, line)
        shapes.append(
            re.sub(r'"(at|waited|created|chance|seconds)": ?(\{[^}]*\}|\[[^\]]*\]|[^,}]*)', "", json.dumps(seen))
        )
    assert shapes[0] == shapes[1]


def test_same_tokens_with_and_without_a_trace_and_nothing_is_made_without(tmp_path: Path, monkeypatch: Any) -> None:
    traced, plain = tape(tmp_path / "t.jsonl")
    assert traced.token_ids == plain.token_ids
    monkeypatch.setattr("outrider.engine.round.trace_row", lambda *_: pytest.fail("a trace was made for nobody"))
    assert engine().generate(PROMPT, max_new_tokens=30, ignore_eos=True).token_ids == traced.token_ids


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_ends_the_trace_and_no_request(caplog: pytest.LogCaptureFixture) -> None:
    made = engine()
    with caplog.at_level(logging.WARNING, "outrider.traces"):
        write_trace(made, "/dev/full")
        completion = made.generate(PROMPT, max_new_tokens=30, ignore_eos=True)
    assert completion.token_ids == engine().generate(PROMPT, max_new_tokens=30, ignore_eos=True, max_depth=0).token_ids
    assert [record.message for record in caplog.records] == [
        "the trace ends here, /dev/full cannot be written: No space left on device"
    ]


def test_a_closed_trace_writes_no_more_and_a_detached_one_neither(tmp_path: Path) -> None:
    made = engine()
    closed, detached = write_trace(made, tmp_path / "a.jsonl"), write_trace(made, tmp_path / "b.jsonl")
    closed.close()
    closed.close()
    made.detach(detached)
    made.generate(PROMPT, max_new_tokens=3)
    assert [len(lines_of(tmp_path / name)) for name in ("a.jsonl", "b.jsonl")] == [1, 1]


def test_a_trace_is_appended_to_also_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tape(path)
    os.truncate(path, path.stat().st_size - 20)
    tape(path)
    recording = read_trace(path)
    assert (len(recording.sessions), recording.skipped) == (2, 1)
    assert [len(one.token_ids) for one in recording.requests] == [30] * 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no trace"),
        (b"hello\n{}\n[]\nnull\n", "is no trace"),
        (b"\xff\xfe\x00", "is no trace"),
        (b'{"kind":"round"}\n', "is no trace"),
        (b'{"kind":"header","format":"outrider-trace","version":99}\n', "version 99"),
    ],
)
def test_what_is_no_trace_gets_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(OptionError, match=message):
        read_trace(tmp_path / "x")


def test_hostile_lines_are_skipped(tmp_path: Path) -> None:
    tape(tmp_path / "t.jsonl")
    good = (tmp_path / "t.jsonl").read_bytes().split(b"\n")
    bad = [b'{"kind":"round","rows":[{}],"seconds":{}}', b'{"kind":"round","rows":null}', b"{", b"[1]", b"3"]
    recording = parse_trace([*good, *bad])
    assert recording.skipped == len(bad)
    assert len(recording.requests) == 2
    assert len(recording.lines) == len([line for line in good if line])


def _spoilt(row: Any, path: str, value: Any) -> None:
    *way, last = path.split(".")
    for name in way:
        row = row[name]
    row[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("request", "x"),
        ("plan.reason", None),
        ("plan.depth", "deep"),
        ("tree.parents", []),
        ("tree.parents", [-1, 0, 7]),
        ("tree.parents", [0, 0, 0]),
        ("tree.texts", ["a"] * 99),
        ("target.chance", [1.0]),
        ("target.chance", None),
        ("path", []),
        ("path", [0, 99]),
        ("path", [1]),
        ("next.text", 3),
        ("next.origin", "elsewhere"),
        ("delivered.count", 99),
        ("delivered.origins", ["strange"]),
        ("delivered.texts", "ab"),
    ],
)
def test_a_foreign_row_is_left_out_and_the_rest_can_be_played(path: str, value: Any, tmp_path: Path) -> None:
    tape(tmp_path / "t.jsonl")
    lines = lines_of(tmp_path / "t.jsonl")
    spoilt = next(line for line in lines if line["kind"] == "round" and len(line["rows"][0]["path"]) > 1)
    _spoilt(spoilt["rows"][0], path, value)
    recording = parse_trace([json.dumps(line) for line in lines])
    assert recording.skipped == 1
    out = io.StringIO()
    for request in recording.requests:
        play(request, Console(file=out, width=100))
    assert "round" in out.getvalue()


def test_where_no_trace_can_be_is_told_before_a_model_is_loaded() -> None:
    with pytest.raises(OptionError, match="trace /nowhere/t cannot be written"):
        outrider.load("no-such-model", trace="/nowhere/t")
    with pytest.raises(OptionError, match="cannot be written"):
        TraceFile("/nowhere/t", engine())
