"""The page as one file: markup, style and script put together, with what it shall play, and nothing from elsewhere.

Its content security policy allows exactly this style and this script, and connections to where the page came from.
"""

import base64
import hashlib
import json
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

SCRIPTS = ("words", "model", "frames", "tree", "charts", "text", "clock", "player", "compare", "live", "main")


def trace_page(traces: list[str], *, title: str, side_by_side: bool | None = None) -> str:
    """A page that holds these traces (the text of their files; a second one is compared with the first).

    side_by_side: whether it opens with two runs side by side; None: if there are two traces.
    """
    both = len(traces) > 1 if side_by_side is None else side_by_side
    return _page({"mode": "trace", "title": title, "traces": traces, "view": "compare" if both else "play"})


def live_page(rounds: str = "/rounds", *, links: bool = True) -> str:
    """A page that follows a server. rounds: where they are, seen from the page. links: to the server's docs."""
    return _page({"mode": "live", "title": "live", "rounds": rounds, "links": links})


def _page(config: dict[str, Any]) -> str:
    style, script = _asset("style.css"), _script()
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "POLICY": escape(policy),
        "TITLE": escape(f"Outrider: {config['title']}"),
        "STYLE": style,
        "CONFIG": _as_script(config),
        "SCRIPT": script,
    }
    page = _asset("page.html")
    for name, part in parts.items():
        page = page.replace(f"<!--{name}-->", part)  # no part holds such a mark: `<` is escaped in what is not ours
    return page


@cache
def _script() -> str:
    return "\n".join(["'use strict';", "(() => {", *(_asset(f"{name}.js") for name in SCRIPTS), "})();"])


@cache
def _asset(name: str) -> str:
    return (files("outrider.watch") / "assets" / name).read_text("utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _as_script(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end the element or begin a comment."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")
