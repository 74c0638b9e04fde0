"""An HTML page that needs nothing but itself: its style and its charts are in it."""

from collections.abc import Sequence
from html import escape

STYLE = """
:root { --ink:#1c2530; --paper:#fff; --faint:#d5dbe1; --quiet:#5b6b7a; --alert:#a3263c; --accent:#2563a8;
  --panel:#f4f6f8 }
@media (prefers-color-scheme: dark) { :root { --ink:#e4e9ee; --paper:#14191f; --faint:#37414c; --quiet:#93a1ae;
  --alert:#f0788a; --accent:#6ea8e0; --panel:#1c232b } }
* { box-sizing:border-box }
body { margin:0 auto; max-width:860px; padding:28px 20px 60px; color:var(--ink); background:var(--paper);
  font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif }
h1 { font-size:26px; margin:0 0 4px } h2 { font-size:18px; margin:34px 0 6px }
p { margin:6px 0 } .quiet, figcaption { color:var(--quiet); font-size:14px }
figure { margin:10px 0 } svg { width:100%; height:auto }
table { border-collapse:collapse; width:100%; font-size:14px; font-variant-numeric:tabular-nums }
th { text-align:left; color:var(--quiet); font-weight:600 } th,td { padding:5px 10px 5px 0;
  border-bottom:1px solid var(--faint) } td.n,th.n { text-align:right } td.n { white-space:nowrap }
.panel { background:var(--panel); border-left:4px solid var(--accent); padding:12px 16px; margin:16px 0;
  border-radius:0 6px 6px 0 } .panel b.big { font-size:24px }
code { font-size:13px } .scroll { overflow-x:auto }
"""


def page(title: str, parts: Sequence[str]) -> str:
    """A whole document of ready pieces of HTML."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def heading(words: str, level: int = 2) -> str:
    return f"<h{level}>{escape(words)}</h{level}>"


def paragraph(words: str, kind: str = "") -> str:
    return f"<p{f' class={kind!r}' if kind else ''}>{escape(words)}</p>"


def figure(svg: str, caption: str = "") -> str:
    """A chart with a line of explanation below it; nothing if there is no chart."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" if svg else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns after the first hold numbers."""

    def cells(row: Sequence[str], tag: str) -> str:
        kinds = ["" if index == 0 else " class='n'" for index in range(len(row))]
        return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, row, strict=True))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<div class='scroll'><table><tr>{cells(head, 'th')}</tr>{body}</table></div>"
