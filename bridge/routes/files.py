"""Files over HTTP: those of the page, and those of a person as downloads and inert previews.

A person's files are streamed from the sprite. A download is never displayed. A preview has one of a few fixed content
types, without sniffing. Opened previews have an opaque origin, no scripts and no requests.
"""

import functools
import gzip
import hashlib
import json
import mimetypes
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from aiohttp import web

from bridge.http import messages
from bridge.providers.provider import Host, HostError, NoSuchFileError

#: For a download that a browser opens anyway: opaque origin, no scripts, no requests.
SANDBOX = "default-src 'none'; sandbox; frame-ancestors 'none'"
#: The same in a frame of the page. An SVG may use its own styles only.
_PREVIEW = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'self'"
#: The shown part of a text.
MAX_TEXT_BYTES = 256 * 1024
_IMAGES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".avif": "image/avif",
    ".bmp": "image/bmp",
}
_DRAWING = ".svg"
#: Browsers show a PDF in their own viewer, which ignores the sandbox but isolates the file. So it must be a real PDF.
_PDF, _PDF_BEGINS, _PDF_WITHIN = ".pdf", b"%PDF-", 1024
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class _File:
    """An existing file: its first bytes and an iterator over the rest."""

    name: str
    first: bytes
    rest: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class _Shown:
    """Format in which a file is sent: its content type, its largest size and its headers."""

    content_type: str
    most_bytes: int | None = None
    headers: dict[str, str] = field(default_factory=dict)


async def serve(request: web.Request, host: Host, person: str) -> web.StreamResponse:
    """Answer GET /files/PATH with a file of the person's sprite, or with a preview of it for `?preview`."""
    async with AsyncExitStack() as stack:
        try:
            file = await _opened(stack, host, person, request.match_info["path"])
        except NoSuchFileError as error:
            return messages.page(request, 404, "There is no such file", str(error), code="no_such_file")
        except HostError as error:
            return messages.page(request, 503, "The file cannot be fetched now", str(error), code="unavailable")
        shown = _as_download(file) if "preview" not in request.query else _as_preview(request, file)
        if shown is None:
            title = "This file cannot be shown here"
            return messages.page(request, 415, title, "Download it to open it.", code="no_preview")
        return await _sent(request, file, shown)


async def _opened(stack: AsyncExitStack, host: Host, person: str, path: str) -> _File:
    chunks = await host.fetch(person, path)
    if isinstance(chunks, AsyncGenerator):
        # Closes the file at once after a disconnect, instead of at garbage collection.
        stack.push_async_callback(chunks.aclose)
    # A missing file is only noticed at the first bytes.
    return _File(path.rpartition("/")[2], await anext(chunks, b""), chunks)


def _as_download(file: _File) -> _Shown:
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
        "Content-Security-Policy": SANDBOX,
    }
    return _Shown("application/octet-stream", headers=headers)


def _as_preview(request: web.Request, file: _File) -> _Shown | None:
    """Return the format of a preview, or None for other kinds of files."""
    headers = {"Content-Disposition": "inline", "Content-Security-Policy": _PREVIEW, "X-Frame-Options": "SAMEORIGIN"}
    suffix = PurePosixPath(file.name).suffix.lower()
    if suffix in _IMAGES:
        return _Shown(_IMAGES[suffix], headers=headers)
    if suffix == _PDF and _PDF_BEGINS in file.first[:_PDF_WITHIN]:
        return _Shown("application/pdf", headers=headers)
    if suffix == _DRAWING and request.headers.get("Sec-Fetch-Dest") == "image":
        # As an image in a page, a browser runs no scripts of an SVG. Elsewhere it is sent as text.
        return _Shown("image/svg+xml", headers=headers)
    charset = _charset(file.first)
    return None if charset is None else _Shown(f"text/plain; charset={charset}", MAX_TEXT_BYTES, headers)


def _charset(first: bytes) -> str | None:
    """Guess a text's encoding from its first bytes, or None for binary data."""
    if first.startswith(_UTF_16):
        return "utf-16"
    if b"\0" in first:
        return None
    try:
        # The last character may be cut.
        first[:-4].decode("utf-8")
    except UnicodeDecodeError:
        return "windows-1252"
    return "utf-8"


async def _sent(request: web.Request, file: _File, shown: _Shown) -> web.StreamResponse:
    headers = {"Content-Type": shown.content_type, "Cache-Control": "no-store", **shown.headers}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    left = shown.most_bytes
    chunk = file.first
    while chunk and left != 0:
        await response.write(chunk if left is None else chunk[:left])
        left = None if left is None else max(0, left - len(chunk))
        chunk = await anext(file.rest, b"")
    await response.write_eof()
    return response


_WEB = Path(__file__).resolve().parents[1] / "web"
_INDEX = "index.html"
_WORKER = "sw.js"
#: Files for the worker to cache: the page's program. Pictures load on demand.
_KEPT = frozenset({".css", ".js", ".svg"})
_SERVED = frozenset({".html", ".css", ".js", ".svg", ".png", ".ico", ".json", ".webmanifest"})
_COMPRESSED = frozenset({".html", ".css", ".js", ".svg", ".json", ".webmanifest"})
#: Everything comes from this bridge, and markup never becomes script. One Trusted Types policy is lit-html's, the other
#: allows the service worker's URL. Frames are for PDFs in the browser's own viewer.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'none'; frame-src 'self'; manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html service-worker"
)
#: The service worker requests only this bridge, and loads no other script.
_WORKER_POLICY = "default-src 'none'; connect-src 'self'; img-src 'self'; frame-ancestors 'none'"
_FOR_GOOD = "public, max-age=31536000, immutable"
_ASK_FIRST = "no-cache"
#: References in the page's head.
_REFERENCE = re.compile(r'(?P<before>\b(?:src|href)=")(?:\./|/)?(?P<name>[a-z0-9_][^":?#]*)"')


@dataclass(frozen=True, slots=True)
class _Asset:
    body: bytes
    is_compressible: bool
    content_type: str
    etag: str


class Pages:
    """Serve the web page's files, as read from disk at creation.

    `offline_model` marks the page, and so does `is_here`: the agent is on the computer of its only person.
    """

    def __init__(self, *, offline_model: bool, is_here: bool) -> None:
        bodies = {
            path.relative_to(_WEB).as_posix(): path.read_bytes()
            for path in sorted(_WEB.rglob("*"))
            if path.is_file() and path.suffix in _SERVED
        }
        digest = hashlib.sha256()
        for name, body in bodies.items():
            digest.update(f"{name}\0{len(body)}\0".encode() + body)
        self._version = digest.hexdigest()[:12]
        html = self._with_versions(bodies[_INDEX].decode(), frozenset(bodies))
        if offline_model:
            html = html.replace("<html ", '<html data-model="offline" ', 1)
        if is_here:
            html = html.replace("<html ", '<html data-place="here" ', 1)
        bodies[_INDEX] = html.encode()
        bodies[_WORKER] = self._with_files(bodies[_WORKER].decode(), bodies).encode()
        self._assets = {name: _asset(name, body) for name, body in bodies.items()}

    def index(self, request: web.Request) -> web.Response:
        """Answer GET / for a logged-in person."""
        response = self._answer(request, self._assets[_INDEX], _ASK_FIRST)
        response.headers["Content-Security-Policy"] = POLICY
        return response

    async def asset(self, request: web.Request) -> web.Response:
        """Answer GET /-/VERSION/NAME and GET /NAME. No login is needed, because the files are the same for everyone."""
        asset = self._assets.get(request.match_info["name"])
        if asset is None or request.match_info["name"] == _INDEX:
            return messages.page(request, 404, "There is nothing here", code="not_found")
        # A page opened before an update requests an older version, and gets the current file.
        is_current = request.match_info.get("version") == self._version
        response = self._answer(request, asset, _FOR_GOOD if is_current else _ASK_FIRST)
        is_worker = request.match_info["name"] == _WORKER
        response.headers["Content-Security-Policy"] = _WORKER_POLICY if is_worker else SANDBOX
        return response

    def _with_files(self, worker: str, names: Iterable[str]) -> str:
        """Insert the version, so that browsers update, and the names of the files to cache into the service worker."""
        kept = sorted(name for name in names if Path(name).suffix in _KEPT and name != _WORKER)
        return worker.replace("const VERSION = '';", f"const VERSION = {json.dumps(self._version)};", 1).replace(
            "const FILES = [];", f"const FILES = {json.dumps(kept)};", 1
        )

    def _with_versions(self, html: str, names: frozenset[str]) -> str:
        def versioned(match: re.Match[str]) -> str:
            is_ours = match["name"] in names
            return f'{match["before"]}/-/{self._version}/{match["name"]}"' if is_ours else match[0]

        return _REFERENCE.sub(versioned, html)

    def _answer(self, request: web.Request, asset: _Asset, caching: str) -> web.Response:
        headers = {"ETag": asset.etag, "Cache-Control": caching, "Vary": "Accept-Encoding"}
        if asset.etag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        body = asset.body
        if asset.is_compressible and "gzip" in request.headers.get("Accept-Encoding", ""):
            body = _compressed(body)
            headers["Content-Encoding"] = "gzip"
        headers["Content-Type"] = asset.content_type
        return web.Response(body=body, headers=headers)


def _asset(name: str, body: bytes) -> _Asset:
    suffix = Path(name).suffix
    content_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    if suffix in {".js", ".css", ".html", ".svg", ".json"}:
        content_type = {".js": "text/javascript"}.get(suffix, content_type) + "; charset=utf-8"
    return _Asset(body, suffix in _COMPRESSED, content_type, f'"{hashlib.sha256(body).hexdigest()[:16]}"')


@functools.cache
def _compressed(body: bytes) -> bytes:
    # Without a timestamp, so that all bridges produce the same bytes.
    return gzip.compress(body, 9, mtime=0)
