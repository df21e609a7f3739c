"""The page's files and the person's files: content types, caching and path traversal."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tests.bridge_harness import Bridge, running_bridge
from tests.harness import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    """One bridge for all tests: none of them changes it."""
    async with running_bridge(tmp_path_factory.mktemp("pages") / "data") as bridge:
        yield bridge


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cookie(bridge: Bridge) -> str:
    return await bridge.login()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def documents(bridge: Bridge) -> Path:
    """The local person's workspace with some files."""
    workspace = bridge.workspace
    for folder in ("documents/sub", "artifacts", ".os/run"):
        (workspace / folder).mkdir(parents=True, exist_ok=True)
    (workspace / "documents/report.html").write_text("<script>alert(1)</script>")
    (workspace / "documents/sub/R\u00e9sum\u00e9 \u201dx\u201d.txt").write_text("caf\u00e9")
    (workspace / "artifacts/big.bin").write_bytes(bytes(3_000_000))
    (workspace / "artifacts/empty").touch()
    (workspace / ".os/run/token").write_text("the-sprites-own-token")
    (workspace / "documents/link").symlink_to(workspace / ".os/run/token")
    (workspace / "documents/way").symlink_to("/etc")
    return workspace


async def raw(bridge: Bridge, path: str, cookie: str | None = None) -> tuple[int, bytes]:
    """Send a GET with an unmodified path; libraries would normalize it."""
    host, port = bridge.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    sent = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n"
    writer.write((sent + (f"Cookie: {cookie}\r\n" if cookie else "") + "\r\n").encode())
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    writer.close()
    return int(answer.split()[1]), answer


async def get(
    bridge: Bridge, path: str, cookie: str | None = None, **headers: str
) -> tuple[aiohttp.ClientResponse, bytes]:
    sent = {"Accept-Encoding": "identity"} | {name.replace("_", "-"): value for name, value in headers.items()}
    if cookie is not None:
        sent["Cookie"] = cookie
    async with bridge.http(auto_decompress=False) as session, session.get(path, headers=sent) as response:
        return response, await response.read()


# --- the page ---


async def test_page_without_login_explains_login(bridge: Bridge) -> None:
    response, body = await get(bridge, "/", Accept="text/html")
    assert response.status == 401
    assert b"Please log in" in body
    assert b"users link" in body


async def test_page_policy_forbids_foreign_and_inline_code(bridge: Bridge, cookie: str) -> None:
    response, body = await get(bridge, "/", cookie, Accept="text/html")
    assert response.status == 200
    policy = dict(part.strip().split(" ", 1) for part in response.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cache-Control"] == "no-cache"
    assert "aiohttp" not in response.headers["Server"]
    assert b"http://" not in body.replace(b"http://www.w3.org", b"")


async def test_versioned_modules_are_immutable(bridge: Bridge, cookie: str) -> None:
    _, body = await get(bridge, "/", cookie)
    names = re.findall(r'(?:src|href)="(/-/[0-9a-f]{12}/[^"]+)"', body.decode())
    assert names
    for name in names:
        response, content = await get(bridge, name, Accept_Encoding="gzip")
        assert response.status == 200, name
        assert "immutable" in response.headers["Cache-Control"]
        if response.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        again, nothing = await get(bridge, name, If_None_Match=response.headers["ETag"])
        assert (again.status, nothing) == (304, b"")
        plain, same = await get(bridge, name, Accept_Encoding="identity")
        assert "Content-Encoding" not in plain.headers
        assert same == content
        # An older page gets the current file, but does not cache it under the old name.
        older, _ = await get(bridge, re.sub(r"/-/[0-9a-f]+/", "/-/000000000000/", name))
        assert (older.status, older.headers["Cache-Control"]) == (200, "no-cache")


@pytest.mark.parametrize(
    "path",
    [
        "/index.html",
        "/../config.py",
        "/-/x/../../config.py",
        "/-/x/..%2f..%2fconfig.py",
        "/-/x/%2e%2e/%2e%2e/config.py",
        "/-/x//etc/passwd",
        "/-/x/vendor/README.md",
        "/vendor",
        "/-/x/",
        "/%00",
        "/-/x/\\..\\config.py",
        "/.git/config",
    ],
)
async def test_only_page_files_are_served(bridge: Bridge, cookie: str, path: str) -> None:
    status, answer = await raw(bridge, path, cookie)
    assert status in {400, 404}
    assert b"import" not in answer


# --- downloads ---


async def test_download_is_served_as_attachment(bridge: Bridge, cookie: str, documents: Path) -> None:
    response, body = await get(bridge, "/files/documents/report.html", cookie)
    assert response.status == 200
    assert body == (documents / "documents/report.html").read_bytes()
    assert response.headers["Content-Type"] == "application/octet-stream"
    assert response.headers["Content-Disposition"].startswith("attachment")
    assert "sandbox" in response.headers["Content-Security-Policy"]
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cache-Control"] == "no-store"


async def test_download_keeps_name_and_content(bridge: Bridge, cookie: str, documents: Path) -> None:
    response, body = await get(bridge, "/files/documents/sub/R%C3%A9sum%C3%A9%20%E2%80%9Dx%E2%80%9D.txt", cookie)
    assert body.decode() == "caf\u00e9"
    assert response.content_disposition is not None
    assert response.content_disposition.filename == "R\u00e9sum\u00e9 \u201dx\u201d.txt"
    _, big = await get(bridge, "/files/artifacts/big.bin", cookie)
    assert big == (documents / "artifacts/big.bin").read_bytes()
    empty, nothing = await get(bridge, "/files/artifacts/empty", cookie)
    assert (empty.status, nothing) == (200, b"")


@pytest.mark.usefixtures("documents")
@pytest.mark.parametrize(
    "path",
    [
        "/files/documents/nothing",
        "/files/documents",
        "/files/documents/",
        "/files/documents/sub",
        "/files/.os/run/token",
        "/files/documents/../.os/run/token",
        "/files/documents/%2e%2e/.os/run/token",
        "/files/documents/..%2f.os%2frun%2ftoken",
        "/files/documents//etc/passwd",
        "/files//etc/passwd",
        "/files/documents/link",
        "/files/documents/way/passwd",
        "/files/documents/a%00b",
        "/files/documents/a%0d%0aSet-Cookie:%20x",
        "/files/ocr/x",
        "/files/%F0%9F%8D%B5",
        "/files/documents/" + "a" * 300,
    ],
)
async def test_path_traversal_is_refused(bridge: Bridge, cookie: str, path: str) -> None:
    status, answer = await raw(bridge, path, cookie)
    assert status in {400, 404}
    assert b"the-sprites-own-token" not in answer
    assert b"root:" not in answer
    assert b"\r\nSet-Cookie" not in answer


# --- previews ---


@pytest.mark.parametrize(
    ("name", "content", "content_type"),
    [
        ("report.html", b"<script>alert(1)</script>", "text/plain; charset=utf-8"),
        ("drawing.svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", "text/plain; charset=utf-8"),
        ("report.xhtml", b"<html/>", "text/plain; charset=utf-8"),
        ("notes.md", "caf\u00e9".encode(), "text/plain; charset=utf-8"),
        ("old.csv", "caf\u00e9 au lait".encode("latin-1"), "text/plain; charset=windows-1252"),
        ("from-excel.csv", "a;b".encode("utf-16"), "text/plain; charset=utf-16"),
        ("photo.JPG", b"<script>alert(1)</script>", "image/jpeg"),
        ("scan.pdf", b"%PDF-1.4", "application/pdf"),
        ("not-a.pdf", b"<script>alert(1)</script>", "text/plain; charset=utf-8"),
    ],
)
async def test_preview_uses_harmless_content_type(
    bridge: Bridge, cookie: str, documents: Path, name: str, content: bytes, content_type: str
) -> None:
    for folder in ("documents", "artifacts", "ocr", "extractions") if name == "scan.pdf" else ("documents",):
        (documents / folder).mkdir(exist_ok=True)
        (documents / folder / name).write_bytes(content)
        response, body = await get(bridge, f"/files/{folder}/{name}?preview", cookie, Accept="text/html")
        assert (response.status, body) == (200, content)
        assert response.headers["Content-Type"] == content_type
        assert response.headers["Content-Disposition"] == "inline"
        policy = [part.strip() for part in response.headers["Content-Security-Policy"].split(";")]
        assert {"default-src 'none'", "sandbox", "frame-ancestors 'self'"} <= set(policy)
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"


async def test_svg_preview_is_image_or_text(bridge: Bridge, cookie: str, documents: Path) -> None:
    (documents / "artifacts/drawing.svg").write_bytes(b"<svg/>")
    for destination, content_type in (("image", "image/svg+xml"), ("document", "text/plain; charset=utf-8")):
        response, _ = await get(bridge, "/files/artifacts/drawing.svg?preview", cookie, Sec_Fetch_Dest=destination)
        assert response.headers["Content-Type"] == content_type
        assert "sandbox" in response.headers["Content-Security-Policy"]


async def test_long_text_preview_is_truncated(bridge: Bridge, cookie: str, documents: Path) -> None:
    (documents / "artifacts/long.log").write_bytes(b"0123456789abcde\n" * 100_000)
    _, body = await get(bridge, "/files/artifacts/long.log?preview", cookie)
    assert len(body) == 256 * 1024


@pytest.mark.usefixtures("documents")
async def test_binary_file_has_no_preview(bridge: Bridge, cookie: str) -> None:
    response, _ = await get(bridge, "/files/artifacts/big.bin?preview", cookie)
    assert response.status == 415
    assert (await get(bridge, "/files/documents/link?preview", cookie))[0].status == 404
    assert (await get(bridge, "/files/documents/report.html?preview"))[0].status == 401


@pytest.mark.usefixtures("documents")
async def test_downloads_are_private_to_person(bridge: Bridge) -> None:
    assert (await get(bridge, "/files/documents/report.html"))[0].status == 401
    _, out, _ = await bridge.run("users", "add", "eve")
    token = out.split("token")[-1].split()[0]
    response, _ = await get(bridge, "/files/documents/report.html", Authorization=f"Bearer {token}")
    assert response.status == 404
