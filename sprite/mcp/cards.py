"""Canvas cards for other programs: HTML for hosts of MCP Apps, text for all others (pure).

The HTML is self-contained: no script, no external resources, and all text by an agent or a person is escaped.
Blocks are untrusted, because an agent's computer may send anything.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from sprite.protocol.shapes import Block, Card

#: Defined by MCP Apps: https://modelcontextprotocol.io/seps/1865-mcp-apps-interactive-user-interfaces-for-mcp
EXTENSION: Final = "io.modelcontextprotocol/ui"
MIME_TYPE: Final = "text/html;profile=mcp-app"
#: All open cards in one document; `_CARD` and an id is one card.
CANVAS_URI: Final = "ui://sprite/cards"
_CARD: Final = "ui://sprite/card/"
#: A host shows it in a frame, and a model may have to read it.
MAX_HTML_CHARS: Final = 1_000_000
_MAX_BLOCKS, _MAX_ROWS, _MAX_COLUMNS, _MAX_CELL_CHARS, _MAX_TEXT_CHARS = 200, 500, 50, 2_000, 50_000
_MAX_PLAIN_CHARS = 10_000
#: For the host, beside the document's own policy: no loading, no connections, no frames.
CSP: Final[dict[str, list[str]]] = {
    "connectDomains": [],
    "resourceDomains": [],
    "frameDomains": [],
    "baseUriDomains": [],
}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 0; padding: 12px; }
article { border: 1px solid color-mix(in srgb, currentColor 20%, transparent); border-radius: 8px; padding: 12px 16px; }
article + article { margin-top: 12px; }
h1 { font-size: 1.15em; margin: 0 0 .6em; }
h2, h3, h4, h5 { font-size: 1em; margin: .8em 0 .3em; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid color-mix(in srgb, currentColor 15%, transparent); padding: 4px 8px; }
th, td { text-align: left; vertical-align: top; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: inherit; margin: .4em 0; }
small { opacity: .75; }
progress { width: 100%; }
"""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width"><title>{title}</title><style>{style}</style></head>
<body>{body}</body></html>
"""


def card_uri(card_id: str) -> str:
    """Return the resource URI of a card."""
    return _CARD + quote(card_id, safe="")


def card_of_uri(uri: str) -> str | None:
    """Return the card id of a resource URI, or None."""
    return unquote(uri.removeprefix(_CARD)) if uri.startswith(_CARD) else None


def open_cards(cards: Iterable[Card]) -> list[Card]:
    """Return the cards that are not archived."""
    return [card for card in cards if not card.archived]


def cards_html(title: str, cards: Sequence[Card]) -> str:
    """Return a document with these cards; cards beyond the size limit are left out with a notice."""
    body, length, left = [], 0, 0
    for card in cards:
        drawn = _article(card)
        if length + len(drawn) > MAX_HTML_CHARS:
            left += 1
            continue
        body.append(drawn)
        length += len(drawn)
    if left:
        body.append(f"<p><small>{left} more, too large to be shown here; open the page.</small></p>")
    if not cards:
        body.append("<p>There are no cards.</p>")
    return _PAGE.format(policy=_POLICY, title=_escaped(title, 200), style=_STYLE, body="".join(body))


def card_text(card: Card) -> str:
    """Return a card as plain text, cut if it is very long."""
    lines = [f"[card: {_plain(card.title, 200)}]"]
    length = 0
    for block in card.blocks[:_MAX_BLOCKS]:
        for line in _lines(block):
            if (length := length + len(line)) > _MAX_PLAIN_CHARS:
                return "\n".join([*lines, "…"])
            lines.append(line)
    return "\n".join(lines)


# --- HTML -------------------------------------------------------------------------------------


def _article(card: Card) -> str:
    blocks = "".join(_block(block) for block in card.blocks[:_MAX_BLOCKS])
    return f"<article><h1>{_escaped(card.title, 500)}</h1>{blocks}</article>"


def _block(block: Block) -> str:  # noqa: PLR0911 - one for each kind of block
    data = block.data
    match block.type:
        case "heading":
            level = data.get("level")
            size = 1 + (level if isinstance(level, int) and 1 <= level <= 4 else 2)  # noqa: PLR2004 - as the wire has it
            return f"<h{size}>{_escaped(data.get('text'))}</h{size}>"
        case "stat":
            said = _escaped(data.get("description") or "")
            return (
                f"<p><small>{_escaped(data.get('label'))}</small><br><strong>{_escaped(data.get('value'))}</strong>"
                f"{f'<br><small>{said}</small>' if data.get('description') else ''}</p>"
            )
        case "key-value":
            rows = ((pair.get("key"), pair.get("value")) for pair in _objects(data.get("pairs")))
            return _table([], rows)
        case "table":
            return _table(*_cells(data))
        case "badge":
            return f"<p><strong>{_escaped(data.get('text'))}</strong></p>"
        case "progress":
            share = _share(data.get("value"))
            return f'<p>{_escaped(data.get("label"))} <progress max="100" value="{share:g}"></progress> {share:g} %</p>'
        case "separator":
            return "<hr>"
        case "document":
            name = _escaped(data.get("title") or data.get("path"))
            excerpt = data.get("excerpt")
            return f"<p><strong>{name}</strong></p>" + (f"<pre>{_escaped(excerpt)}</pre>" if excerpt else "")
        case "text" | "note":
            return f"<pre>{_escaped(data.get('content'), _MAX_TEXT_CHARS)}</pre>"
        case _:
            return ""


def _table(columns: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{_escaped(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>"


def _escaped(value: Any, limit: int = _MAX_CELL_CHARS) -> str:
    return html.escape(_plain(value, limit, one_line=False))


# --- text -------------------------------------------------------------------------------------


def _lines(block: Block) -> Iterator[str]:
    data = block.data
    match block.type:
        case "heading":
            yield _plain(data.get("text"))
        case "stat":
            yield f"{_plain(data.get('label'))}: {_plain(data.get('value'))}"
        case "key-value":
            yield from (f"{_plain(p.get('key'))}: {_plain(p.get('value'))}" for p in _objects(data.get("pairs")))
        case "table":
            columns, rows = _cells(data)
            for row in (columns, *rows):
                yield " | ".join(_plain(cell) for cell in row)
        case "badge":
            yield _plain(data.get("text"))
        case "progress":
            yield f"{_plain(data.get('label'))} {_share(data.get('value')):g} %".strip()
        case "document":
            yield _plain(data.get("title") or data.get("path"))
        case "text" | "note":
            yield _plain(data.get("content"), _MAX_TEXT_CHARS, one_line=False)
        case _:
            return


# --- what blocks hold, whatever it is ---------------------------------------------------------


def _cells(data: dict[str, Any]) -> tuple[list[Any], list[list[Any]]]:
    """Return a table's columns, and its rows in their order."""
    columns = data.get("columns")
    columns = columns[:_MAX_COLUMNS] if isinstance(columns, list) else []
    rows: list[list[Any]] = []
    given = data.get("rows")
    for row in given[:_MAX_ROWS] if isinstance(given, list) else []:
        if isinstance(row, dict):
            rows.append([row.get(str(column)) for column in columns])
        elif isinstance(row, list):
            rows.append(row[:_MAX_COLUMNS])
    return columns, rows


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value[:_MAX_ROWS] if isinstance(each, dict)] if isinstance(value, list) else []


def _share(value: Any) -> float:
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return float(max(0, min(value, 100))) if is_number else 0.0


def _plain(value: Any, limit: int = _MAX_CELL_CHARS, *, one_line: bool = True) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else _json(value)
    text = text[: limit + 1]
    text = " ".join(text.split()) if one_line else text
    text = text if len(text) <= limit else f"{text[:limit]}…"
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "…"
