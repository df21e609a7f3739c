"""Short pages for refusals and missing things: what happened, and what to do.

Programs get the same text as JSON. The pages never repeat a visitor's input.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from aiohttp import web

_STYLE = """
:root { color-scheme: light dark; --back: #faf9f7; --text: #1f1e1b; --soft: #5f5b53; --box: #efede8; --mark: #5646d6; }
@media (prefers-color-scheme: dark) {
  :root { --back: #191816; --text: #f0eeea; --soft: #b3aea4; --box: #2a2825; --mark: #a59bff; }
}
body { font: 16px/1.55 system-ui, sans-serif; margin: 0; background: var(--back); color: var(--text); }
main { max-width: 34rem; margin: 14vh auto 0; padding: 0 1.5rem; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: .3rem 0 1rem; }
p { margin: .7rem 0; }
.brand { color: var(--mark); font-weight: 700; margin: 0; }
code { font: .95em ui-monospace, monospace; background: var(--box); padding: .15em .4em; border-radius: .3em; }
.whole code { display: block; padding: .7em .9em; overflow-wrap: anywhere; }
form { display: flex; gap: 1.2rem; align-items: center; margin: 1.4rem 0; }
button { font: inherit; padding: .45em 1em; border: 0; border-radius: .4em; }
button { background: var(--mark); color: var(--back); }
button.quiet { background: var(--box); color: var(--text); }
form.choices { flex-wrap: wrap; }
form.choices label { flex-basis: 100%; display: flex; gap: .6em; }
form.choices input { flex: none; align-self: flex-start; margin-top: .4em; }
a { color: var(--mark); }
.way { margin: 1.1rem 0; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
#: Allows only the style sheet above, and no scripts.
_POLICY = "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action {forms}; frame-ancestors 'none'"
POLICY = _POLICY.format(style=_STYLE_HASH, forms="'none'")
#: Forms post to this bridge. With no referrer at all, browsers would send the Origin "null".
_ASKING = {
    "Content-Security-Policy": _POLICY.format(style=_STYLE_HASH, forms="'self'"),
    "Referrer-Policy": "same-origin",
}
_FORM = '<form method="post">{fields}<button>{yes}</button>{no}</form>'
_STAY = '<a href="/">{words}</a>'
_REFUSE = '<button name="refused" value="yes" class="quiet">{words}</button>'
_WAY = '<p class="way"><a href="{address}">{words}</a></p>'
_TICK = '<label><input type="checkbox" name="{name}" value="{value}"{checked}><span>{words}</span></label>'
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title} - Sprite</title>
<style>{style}</style></head>
<body><main><p class="brand">Sprite</p><h1>{title}</h1>{paragraphs}</main></body>
</html>
"""


def page(
    request: web.Request,
    status: int,
    title: str,
    *paragraphs: str,
    code: str,
    headers: Mapping[str, str] | None = None,
    question: tuple[str, str] | None = None,
    ways: Sequence[Way] = (),
) -> web.Response:
    """Return a page for browsers, or JSON for other clients: `{"error": {"code", "message"}}`.

    The JSON also has the format of Messages API errors (`type`), whose clients connect here, too. In paragraphs,
    backquotes mark names and text to type. A `question` adds a button that posts to the page's own address, and a link
    to `/`: the labels of both. `ways` are further links.
    """
    headers = {"Cache-Control": "no-store", "Vary": "Accept", **(headers or {})}
    if "text/html" not in request.headers.get("Accept", ""):
        message = " ".join((f"{title.rstrip('.')}.", *paragraphs))
        body = msgspec.json.encode({"type": "error", "error": {"type": code, "code": code, "message": message}})
        return web.Response(status=status, body=body, content_type="application/json", headers=headers)
    body_text = "".join(map(_way, ways)) + "".join(map(_paragraph, paragraphs))
    policy = {"Content-Security-Policy": POLICY}
    if question is not None:
        stay = _STAY.format(words=html.escape(question[1]))
        body_text += _FORM.format(fields="", yes=html.escape(question[0]), no=stay)
        policy = _ASKING
    return _html(status, title, body_text, {**headers, **policy})


@dataclass(frozen=True, slots=True)
class Way:
    """A further link on a page: its label and a path on this bridge."""

    words: str
    address: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A checkbox; the form sends `name` and `value`."""

    name: str
    value: str
    words: str
    is_ticked: bool


def choices(title: str, *paragraphs: str, ticks: Sequence[Tick], yes: str, no: str, leads_to: str) -> web.Response:
    """Return a page with choices. It posts to its own address, with `refused` if the person presses `no`.

    `leads_to` is the allowed redirect target of the answer, as a Content-Security-Policy source.
    """
    fields = "".join(
        _TICK.format(
            name=html.escape(tick.name),
            value=html.escape(tick.value),
            checked=" checked" if tick.is_ticked else "",
            words=_marked(tick.words),
        )
        for tick in ticks
    )
    form = _FORM.format(fields=fields, yes=html.escape(yes), no=_REFUSE.format(words=html.escape(no)))
    form = form.replace("<form ", '<form class="choices" ', 1)
    policy = _POLICY.format(style=_STYLE_HASH, forms=f"'self' {leads_to}")
    headers = {**_ASKING, "Content-Security-Policy": policy, "Cache-Control": "no-store"}
    return _html(200, title, "".join(map(_paragraph, paragraphs)) + form, headers)


def document(title: str, body: str, *, style: str = "", script: str | None = None, status: int = 200) -> web.Response:
    """Return a whole page with the bridge's own markup and forms. `body` is HTML with all values escaped.

    `style` follows the common styles. `script` is the address of the only script that may run, if any.
    """
    whole = _STYLE + style
    digest = base64.b64encode(hashlib.sha256(whole.encode()).digest()).decode()
    policy = _POLICY.format(style=digest, forms="'self'")
    if script is not None:
        policy += "; script-src 'self'; connect-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'"
        body += f'<script type="module" src="{html.escape(script)}"></script>'
    headers = {**_ASKING, "Content-Security-Policy": policy, "Cache-Control": "no-store"}
    text = _PAGE.format(title=html.escape(title), style=whole, paragraphs=body)
    return web.Response(status=status, text=text, content_type="text/html", headers=headers)


def _html(status: int, title: str, body: str, headers: Mapping[str, str]) -> web.Response:
    text = _PAGE.format(title=html.escape(title), style=_STYLE, paragraphs=body)
    return web.Response(status=status, text=text, content_type="text/html", headers=headers)


def _way(way: Way) -> str:
    return _WAY.format(address=html.escape(way.address), words=html.escape(way.words))


def _paragraph(text: str) -> str:
    """Return a paragraph. Text that consists of one backquoted part gets a box."""
    is_whole = text.startswith("`") and text.endswith("`") and text.count("`") == 2  # noqa: PLR2004 - a pair
    return f'<p class="whole">{_marked(text)}</p>' if is_whole else f"<p>{_marked(text)}</p>"


def _marked(text: str) -> str:
    plain, *rest = html.escape(text).split("`")
    # Every second piece stood between two backquotes.
    return plain + "".join(f"<code>{piece}</code>" if number % 2 == 0 else piece for number, piece in enumerate(rest))
