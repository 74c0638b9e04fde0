"""Pages for people, made of nothing but themselves: no script, font or style from elsewhere, so they work offline."""

from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
pre { overflow-x: auto; padding: 0.75rem; border: 1px solid #8888; border-radius: 0.4rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border-bottom: 1px solid #8884; }
summary { cursor: pointer; padding: 0.3rem 0; font-weight: 600; }
"""


def reference(openapi: dict[str, Any]) -> str:
    """The OpenAPI description as one page."""
    parts = [f"<p>{escape(openapi['info'].get('description', ''))}</p>"]
    parts.append('<p>The same for machines: <a href="/openapi.json">/openapi.json</a>.</p>')
    for path, methods in openapi["paths"].items():
        parts += [_operation(path, method, one) for method, one in methods.items()]
    parts.append("<h2>Objects</h2>")
    parts += [_object(name, one) for name, one in openapi["components"]["schemas"].items()]
    return _page(openapi["info"]["title"], "".join(parts))


def _operation(path: str, method: str, one: dict[str, Any]) -> str:
    answers = "".join(
        f"<tr><td><code>{status}</code></td><td>{escape(answer['description'])}</td></tr>"
        for status, answer in one["responses"].items()
    )
    body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    takes = f"<p>Takes {_kind(body)}.</p>" if body else ""
    about = escape(one.get("description", one.get("summary", "")))
    head = f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{about}</p>{takes}"
    return f"{head}<table><thead><tr><th>Status</th><th>Meaning</th></tr></thead><tbody>{answers}</tbody></table>"


def _object(name: str, one: dict[str, Any]) -> str:
    needed = one.get("required", [])
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code>{' (required)' if field in needed else ''}</td>"
        f"<td>{_kind(kind)}</td><td>{escape(kind.get('description', ''))}</td></tr>"
        for field, kind in one.get("properties", {}).items()
    )
    head = f'<details id="{escape(name)}"><summary>{escape(name)}</summary><p>{escape(one.get("description", ""))}</p>'
    columns = "<thead><tr><th>Field</th><th>Kind</th><th>Meaning</th></tr></thead>"
    return f"{head}<table>{columns}<tbody>{rows}</tbody></table></details>"


def _kind(schema: dict[str, Any]) -> str:
    """A schema in a few words, with links to the objects."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f'<a href="#{name}">{name}</a>'
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        return " or ".join(_kind(one) for one in several if one.get("type") != "null")
    if "const" in schema:
        return f"<code>{escape(repr(schema['const']))}</code>"
    if "enum" in schema:
        return " or ".join(f"<code>{escape(repr(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return escape(schema.get("type", "anything"))


def _page(title: str, body: str) -> str:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return (
        f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head>'
        f"<body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )
