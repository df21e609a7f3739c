"""Short pages for people who cannot come in, or asked for what is not there: what happened, and what to do.

The same words go to programs as JSON. Nothing that a visitor sent is ever repeated on them.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping

import msgspec
from aiohttp import web

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto 0; padding: 0 1.5rem; }
h1 { font-size: 1.4rem; line-height: 1.3; }
code { font: .95em ui-monospace, monospace; background: #8882; padding: .15em .4em; border-radius: .3em; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
#: Nothing but the one style sheet above is loaded, and nothing runs.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title} - Sprite</title>
<style>{style}</style></head>
<body><main><h1>{title}</h1>{paragraphs}</main></body>
</html>
"""


def page(
    request: web.Request,
    status: int,
    title: str,
    *paragraphs: str,
    code: str,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Say it as a page to a browser, as JSON to anything else: `{"error": {"code", "message"}}`.

    The JSON has the shape of the Messages API's errors as well (`type`), since its clients meet it here, too.

    In a paragraph, text between backquotes is something to type.
    """
    headers = {"Cache-Control": "no-store", "Vary": "Accept", **(headers or {})}
    if "text/html" not in request.headers.get("Accept", ""):
        message = " ".join((f"{title}.", *paragraphs))
        body = msgspec.json.encode({"type": "error", "error": {"type": code, "code": code, "message": message}})
        return web.Response(status=status, body=body, content_type="application/json", headers=headers)
    text = _PAGE.format(
        title=html.escape(title), style=_STYLE, paragraphs="".join(f"<p>{_marked(words)}</p>" for words in paragraphs)
    )
    return web.Response(
        status=status,
        text=text,
        content_type="text/html",
        headers={**headers, "Content-Security-Policy": POLICY},
    )


def _marked(words: str) -> str:
    plain, *rest = html.escape(words).split("`")
    # Every second piece stood between two backquotes.
    return plain + "".join(f"<code>{piece}</code>" if number % 2 == 0 else piece for number, piece in enumerate(rest))
