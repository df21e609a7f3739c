"""The bridge's own pages, made from `templates/`, above all short ones for refusals and missing things.

Programs get the text of the short ones as JSON. The pages never repeat a visitor's input.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

import aiohttp
import jinja2
import msgspec
from aiohttp import web
from markupsafe import Markup

_TEMPLATES = Path(__file__).parent / "templates"
#: Allows only the page's own style sheet, and no scripts.
_POLICY = (
    "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action {forms}; frame-ancestors 'none'{more}"
)
_SCRIPTED = "; script-src 'self'; connect-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'"


def _printable(value: Any) -> Any:
    """Return text with spaces instead of its control characters, also those that change its direction."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return "".join(sign if sign.isprintable() else " " for sign in value) if is_text else value


def _utc(at: float, form: str = "%Y-%m-%d") -> str:
    return datetime.fromtimestamp(at, UTC).strftime(form)


_PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_TEMPLATES),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    finalize=_printable,
    trim_blocks=True,
    auto_reload=False,
)
_PAGES.filters["utc"] = _utc


class AnsweredError(Exception):
    """A check refuses the request with this HTTP response, which the server sends."""

    def __init__(self, response: web.Response) -> None:
        super().__init__(response.status)
        self.response = response


@dataclass(frozen=True, slots=True)
class Way:
    """A further link on a page: its label and a path on this bridge."""

    words: str
    address: str


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
    to `/`: the labels of both. `ways` are further links. With status 503, clients are asked to retry soon.
    """
    if "text/html" in request.headers.get("Accept", ""):
        forms = "'none'" if question is None else "'self'"
        response = document("message.html", title, forms=forms, paragraphs=paragraphs, question=question, ways=ways)
        response.set_status(status)
    else:
        message = " ".join((f"{title.rstrip('.')}.", *paragraphs))
        body = msgspec.json.encode({"type": "error", "error": {"type": code, "code": code, "message": message}})
        response = web.Response(status=status, body=body, content_type="application/json")
    retry = {"Retry-After": "2"} if status == web.HTTPServiceUnavailable.status_code else {}
    response.headers.update({"Cache-Control": "no-store", "Vary": "Accept", **retry, **(headers or {})})
    return response


def as_json(value: object) -> web.Response:
    """Return a value as JSON that no cache keeps."""
    headers = {"Cache-Control": "no-store"}
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", headers=headers)


def redirect(address: str) -> web.Response:
    """Return a redirect for a browser, to be followed by GET."""
    return web.Response(status=303, headers={"Location": address, "Cache-Control": "no-store"})


def document(
    template: str, title: str, *, style: str = "", script: str = "", forms: str = "'self'", **values: object
) -> web.Response:
    """Return a page made of a template and its values, which are escaped.

    `style` is a style sheet among the templates that follows the common one. `script` is the address of the only script
    that may run. `forms` are the allowed targets of forms, as sources of a Content-Security-Policy.
    """
    css, digest = _css(style)
    headers = {
        "Content-Security-Policy": _POLICY.format(style=digest, forms=forms, more=_SCRIPTED if script else ""),
        "Cache-Control": "no-store",
    }
    if forms != "'none'":
        # With no referrer at all, browsers would send the Origin "null".
        headers["Referrer-Policy"] = "same-origin"
    text = _PAGES.get_template(template).render(title=title, style=css, script=script, **values)
    return web.Response(text=text, content_type="text/html", headers=headers)


@cache
def _css(style: str) -> tuple[Markup, str]:
    """Return the common style sheet with `style` after it, and its hash for the policy."""
    css = "".join((_TEMPLATES / name).read_text() for name in ("base.css", style) if name)
    return Markup(css), base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()  # noqa: S704 - our own file


_T = TypeVar("_T")

#: The largest is a browser's push subscription, with room to spare.
MAX_SMALL_BODY_BYTES = 8192


async def body_within(message: web.Request | aiohttp.ClientResponse, most: int) -> bytes | None:
    """Return the message's body, or None if it has more than `most` bytes, without reading the rest."""
    if (message.content_length or 0) > most:
        return None
    body = bytearray()
    async for chunk in message.content.iter_any():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)


def too_large(request: web.Request, most: int) -> web.Response:
    """Return the refusal of a body of more than `most` bytes, whose rest is not read."""
    size = f"{most >> 20} MiB" if most >> 20 else f"{most >> 10} KiB"
    words = f"This request may have up to {size}."
    response = page(request, 413, "This request is too large", words, code="request_too_large")
    response.force_close()
    return response


async def small_body(request: web.Request, type_: type[_T], example: str) -> _T:
    """Return the request's body as that type. AnsweredError for any other body, with a valid `example` in its words."""
    body = await body_within(request, MAX_SMALL_BODY_BYTES)
    if body is None:
        raise AnsweredError(too_large(request, MAX_SMALL_BODY_BYTES))
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        words = f"Send JSON such as `{example}`."
        raise AnsweredError(page(request, 400, "This request is invalid", words, code="bad_request")) from error


_MAX_FIELDS = 20


async def small_form(request: web.Request) -> dict[str, str]:
    """Return the first value of each field of the request's form; empty for a form that is too large."""
    body = await body_within(request, MAX_SMALL_BODY_BYTES)
    try:
        fields = parse_qs((body or b"").decode("utf-8", "replace"), max_num_fields=_MAX_FIELDS)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}
