"""The page's files, and their caching and security headers.

Only files found below `web/` at start-up are served; no request path reaches the disk. The page's modules import each
other by relative paths. So they are served below `/-/VERSION/` and cached forever, and a new version has new URLs. The
service worker has one fixed URL, and gets the version and the list of files to cache.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import mimetypes
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from bridge.http import messages
from bridge.routes.files import SANDBOX

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
    """The page's files as read from disk at creation. `offline_model` marks the page."""

    def __init__(self, folder: Path = _WEB, *, offline_model: bool = False) -> None:
        bodies = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix in _SERVED
        }
        digest = hashlib.sha256()
        for name, body in bodies.items():
            digest.update(f"{name}\0{len(body)}\0".encode() + body)
        self._version = digest.hexdigest()[:12]
        if (index := bodies.get(_INDEX)) is not None:
            html = self._with_versions(index.decode(), frozenset(bodies))
            if offline_model:
                html = html.replace("<html ", '<html data-model="offline" ', 1)
            bodies[_INDEX] = html.encode()
        if (worker := bodies.get(_WORKER)) is not None:
            bodies[_WORKER] = self._with_files(worker.decode(), bodies).encode()
        self._assets = {name: _asset(name, body) for name, body in bodies.items()}

    def index(self, request: web.Request) -> web.Response:
        """Answer GET / for a logged-in person."""
        if _INDEX not in self._assets:
            return messages.page(request, 404, "This bridge was installed without its page", code="no_page")
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
        """Insert the version and the files to cache into the worker.

        Any change of a file changes it, so browsers update.
        """
        kept = sorted(name for name in names if Path(name).suffix in _KEPT and name != _WORKER)
        return worker.replace("const VERSION = '';", f"const VERSION = {json.dumps(self._version)};", 1).replace(
            "const FILES = [];", f"const FILES = {json.dumps(kept)};", 1
        )

    def _with_versions(self, html: str, names: frozenset[str]) -> str:
        def versioned(match: re.Match[str]) -> str:
            if match["name"] not in names:
                return match[0]
            return f'{match["before"]}/-/{self._version}/{match["name"]}"'

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
