"""A person's files as downloads and as inert previews.

Both are streamed from the sprite. A download is never displayed. A preview has one of a few fixed content types,
without sniffing. Opened previews have an opaque origin, no scripts and no requests.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import PurePosixPath
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
    """Format of an answer: its content type, its largest size and its headers."""

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
            return messages.page(
                request, 415, "This file cannot be shown here", "Download it to open it.", code="no_preview"
            )
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
    headers = {
        "Content-Disposition": "inline",
        "Content-Security-Policy": _PREVIEW,
        "X-Frame-Options": "SAMEORIGIN",
    }
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
    """Guess a text's encoding from its first bytes; None for binary data."""
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
    response = web.StreamResponse(
        headers={"Content-Type": shown.content_type, "Cache-Control": "no-store", **shown.headers}
    )
    await response.prepare(request)
    left = shown.most_bytes
    chunk = file.first
    while chunk and left != 0:
        await response.write(chunk if left is None else chunk[:left])
        left = None if left is None else max(0, left - len(chunk))
        chunk = await anext(file.rest, b"")
    await response.write_eof()
    return response
