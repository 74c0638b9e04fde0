"""Whether a line of a trace holds what a player relies on (docs/traces.md); a foreign line is left out whole."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, get_args

from outrider.engine.completion import Origin

PHASES = ("prefill", "draft", "score", "accept", "rest")

_TEXT = (str, type(None))
_NUMBER = (int, float)


def check_line(line: Mapping[str, Any]) -> None:
    """Raises KeyError, TypeError, ValueError or AttributeError for a line that cannot be played."""
    kind = line["kind"]
    if kind == "round":
        _typed(line, at=_NUMBER, rows=list)
        _typed(line["seconds"], **dict.fromkeys(PHASES, _NUMBER))
        for row in line["rows"]:
            _row(row)
    elif kind == "request":
        _typed(line, request=int, at=_NUMBER, prompt_tokens=int, prompt=_TEXT, digest=_TEXT)
    elif kind == "end":
        _typed(line, request=int, finish=str, rest=_TEXT)
    elif kind == "header":
        _typed(line, drafters=list, rule=str)
        _typed(line["target"], name=str, exact=str, dtype=str, device=str)


def _row(row: Mapping[str, Any]) -> None:
    _typed(row, request=int)
    _typed(row["plan"], drafter=str, depth=int, reason=str)
    _typed(row["next"], text=_TEXT, origin=str)
    _origin(row["next"]["origin"])
    count = _tree(row["tree"])
    for chance in _listed(row["target"]["chance"], count):
        _is(chance, (*_NUMBER, type(None)))
    _path(row["path"], row["tree"]["parents"])
    delivered = row["delivered"]
    for origin in _listed(delivered["origins"], delivered["count"]):
        _origin(origin)
    _listed_or_none(delivered["tokens"], delivered["count"], int)
    _listed_or_none(delivered["texts"], delivered["count"], str)


def _tree(tree: Mapping[str, Any]) -> int:
    """Number of its nodes: the root first, every other one after its parent."""
    parents = tree["parents"]
    for node, parent in enumerate(_listed(parents, len(parents))):
        _is(parent, int)
        if not (parent == -1 if node == 0 else 0 <= parent < node):
            raise ValueError(f"node {node} has the parent {parent}")
    _listed_or_none(tree["tokens"], len(parents), int)
    _listed_or_none(tree["texts"], len(parents), str)
    if not parents:
        raise ValueError("a tree without a root")
    return len(parents)


def _path(path: Any, parents: list[int]) -> None:
    for node in _listed(path, len(path)):
        _is(node, int)
    if path[:1] != [0] or max(path) >= len(parents) or any(parents[node] != before for before, node in pairwise(path)):
        raise ValueError(f"{path} is no path of the tree")


def _origin(value: Any) -> None:
    if value not in get_args(Origin):
        raise ValueError(f"{value!r} is no origin")


def _typed(values: Mapping[str, Any], **kinds: type | tuple[type, ...]) -> None:
    for name, kind in kinds.items():
        _is(values[name], kind)


def _is(value: Any, kind: type | tuple[type, ...]) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is none of {kind}")


def _listed(value: Any, count: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != count:  # pyright: ignore[reportUnknownArgumentType]
        raise TypeError(f"{value!r} is no list of {count}")
    return value  # pyright: ignore[reportUnknownVariableType]


def _listed_or_none(value: Any, count: int, kind: type) -> None:
    if value is not None:
        for one in _listed(value, count):
            _is(one, kind)
