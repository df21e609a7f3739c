"""Login over a real listener: links, cookies, tokens, Origin and Host, as an unauthenticated client would try them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from itsdangerous import TimestampSigner

from bridge.admin import control
from bridge.app import Bridge, running
from bridge.auth.people import login_link
from bridge.config import Settings
from tests.harness import PATIENCE, start_in_thread
from tests.ports import free_port

HTML = {"Accept": "text/html,application/xhtml+xml"}


class Visitor:
    """A browser that keeps its cookies by hand, so that a test can tamper with them."""

    def __init__(self, bridge: Bridge, settings: Settings) -> None:
        self.bridge = bridge
        self.settings = settings
        self.session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=PATIENCE)
        )

    async def get(self, path: str, cookie: str | None = None, **headers: str) -> tuple[int, dict[str, str], str]:
        return await self._request("GET", path, cookie, headers)

    async def post(self, path: str, cookie: str | None = None, **headers: str) -> tuple[int, dict[str, str], str]:
        return await self._request("POST", path, cookie, headers)

    async def _request(
        self, method: str, path: str, cookie: str | None, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], str]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie is not None:
            sent["Cookie"] = cookie
        url = path if path.startswith("http") else self.bridge.url + path
        async with self.session.request(method, url, headers=sent, allow_redirects=False) as response:
            return response.status, dict(response.headers), await response.text()

    async def login(self, token: str | None = None) -> str:
        """Return the Cookie header after opening a login link."""
        status, headers, text = await self.get(f"/login?token={token or self.bridge.login_token}")
        assert status == 303, text
        assert headers["Location"] == "/"
        return headers["Set-Cookie"].partition(";")[0]

    async def may_enter(self, cookie: str | None = None, **headers: str) -> bool:
        status, _, _ = await self.get("/", cookie, **headers)
        assert status in {200, 401, 404}
        return status != 401

    @asynccontextmanager
    async def socket(self, cookie: str | None = None, **headers: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie is not None:
            sent["Cookie"] = cookie
        async with self.session.ws_connect(self.bridge.url + "/ws", headers=sent) as websocket:
            await websocket.send_str('{"type":"resume","id":"1","timestamp":0,"payload":{}}')
            yield websocket

    async def refused(self, cookie: str | None = None, **headers: str) -> int:
        """Return the status with which a WebSocket is refused."""
        with pytest.raises(aiohttp.WSServerHandshakeError) as error:
            async with self.socket(cookie, **headers):
                pass
        return error.value.status

    async def operator(self, method: str, path: str) -> Any:
        async with control.control_session(self.settings.run) as session:
            return await control.ask(session, method, path)

    def sql(self, statement: str, *parameters: object) -> list[Any]:
        with closing(sqlite3.connect(self.settings.database)) as database:
            rows = database.execute(statement, parameters).fetchall()
            database.commit()
            return rows


def settings(tmp_path: Path) -> Settings:
    import os

    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "SPRITE"))}
    environment |= {"HOME": str(tmp_path), "IS_SANDBOX": "1", "SPRITE_PREWARM_SECONDS": "0"}
    return Settings(data=tmp_path / "data", port=0, permissions="bypass", environment=environment)


@asynccontextmanager
async def visiting(chosen: Settings) -> AsyncIterator[Visitor]:
    async with running(chosen, asyncio.Event().set, start_sprite=start_in_thread) as bridge:
        visitor = Visitor(bridge, chosen)
        async with visitor.session:
            yield visitor


@pytest.fixture
async def visitor(tmp_path: Path) -> AsyncIterator[Visitor]:
    async with visiting(settings(tmp_path)) as visitor:
        yield visitor


# --- links ---


async def test_printed_link_logs_in_once(visitor: Visitor) -> None:
    assert not await visitor.may_enter()
    cookie = await visitor.login()
    assert await visitor.may_enter(cookie)
    status, headers, text = await visitor.get(f"/login?token={visitor.bridge.login_token}", **HTML)
    assert status == 401
    assert "used already" in text
    assert "users link local" in text
    assert "Set-Cookie" not in headers
    # A browser that is logged in goes straight to the page.
    status, headers, _ = await visitor.get(f"/login?token={visitor.bridge.login_token}", cookie)
    assert (status, headers["Location"]) == (303, "/")
    link = (await visitor.operator("POST", "/users/local/link"))["link"].rpartition("=")[2]
    status, headers, _ = await visitor.get(f"/login?token={link}", cookie)
    assert (status, headers["Location"]) == (303, "/")


async def test_concurrent_link_use_creates_one_session(visitor: Visitor) -> None:
    path = f"/login?token={visitor.bridge.login_token}"
    answers = await asyncio.gather(*(visitor.get(path) for _ in range(8)))
    assert sorted(status for status, _, _ in answers) == [303] + [401] * 7


async def test_unknown_link_explains_how_to_get_another(visitor: Visitor) -> None:
    for token in ("", "wrong", "x" * 5000, "%00", "%F0%9F%8D%B5", "' OR 1=1 --"):
        status, headers, text = await visitor.get(f"/login?token={token}", **HTML)
        assert status == 401, token
        assert "login link is unknown" in text
        assert "users link" in text
        assert headers["Cache-Control"] == "no-store"
        assert "script" not in headers["Content-Security-Policy"]
        assert not token or token not in text
    async with visitor.session.get(visitor.bridge.url + "/login?token=wrong") as response:
        error = (await response.json())["error"]
    assert error["code"] == "link_unknown"
    assert "users link" in error["message"]


async def test_expired_link_is_rejected(visitor: Visitor) -> None:
    visitor.sql("UPDATE login_links SET expires_at = 1")
    status, _, text = await visitor.get(f"/login?token={visitor.bridge.login_token}", **HTML)
    assert status == 401
    assert "has expired" in text


async def test_prefetch_does_not_use_up_link(visitor: Visitor) -> None:
    path = f"/login?token={visitor.bridge.login_token}"
    assert (await visitor.get(path, Sec_Purpose="prefetch;prerender"))[0] == 503
    async with visitor.session.head(visitor.bridge.url + path) as response:
        assert response.status == 404
    await visitor.login()


async def test_wrong_links_do_not_block_valid_one(visitor: Visitor) -> None:
    statuses = [(await visitor.get("/login?token=guess"))[0] for _ in range(12)]
    statuses.append((await visitor.post("/login?token=guess", Origin=visitor.bridge.url))[0])
    assert set(statuses) == {401}
    assert await visitor.may_enter(await visitor.login())


# --- another person's link ---


async def test_other_persons_link_asks_for_confirmation(visitor: Visitor) -> None:
    """The question does not use up the link."""
    ada = await visitor.operator("POST", "/users/ada")
    path = f"/login?token={ada['link'].rpartition('=')[2]}"
    cookie = await visitor.login()
    for _ in range(2):
        status, headers, text = await visitor.get(path, cookie, **HTML)
        assert status == 409
        assert "<code>local</code>" in text
        assert "<code>ada</code>" in text
        assert "Set-Cookie" not in headers
        assert "form-action 'self'" in headers["Content-Security-Policy"]
        # With "no-referrer", browsers send the form with the Origin "null".
        assert headers["Referrer-Policy"] == "same-origin"
        assert path not in text
    status, _, text = await visitor.get(path, cookie)
    assert (status, json.loads(text)["error"]["code"]) == (409, "other_person")
    assert await visitor.may_enter(cookie)
    status, headers, _ = await visitor.post(path, cookie, Origin=visitor.bridge.url)
    assert (status, headers["Location"]) == (303, "/")
    hers = headers["Set-Cookie"].partition(";")[0]
    assert await visitor.may_enter(hers)
    # One browser, one person: the old session ends, as after a logout.
    assert not await visitor.may_enter(cookie)
    assert visitor.sql("SELECT person FROM sessions") == [("ada",)]


async def test_other_site_cannot_switch_or_log_out(visitor: Visitor) -> None:
    ada = await visitor.operator("POST", "/users/ada")
    path = f"/login?token={ada['link'].rpartition('=')[2]}"
    cookie = await visitor.login()
    for origin in ("https://evil.example", "null"):
        assert (await visitor.post(path, cookie, Origin=origin))[0] == 403
    assert (await visitor.post(path, cookie))[0] == 403
    assert visitor.sql("SELECT used_at FROM login_links WHERE person = 'ada'") == [(None,)]
    assert await visitor.may_enter(cookie)
    for sent in ({"Origin": "https://evil.example"}, {}):
        assert (await visitor.post("/logout", cookie, **sent))[0] == 403
    assert await visitor.may_enter(cookie)


async def test_switching_person_closes_old_pages(visitor: Visitor) -> None:
    ada = await visitor.operator("POST", "/users/ada")
    cookie = await visitor.login()
    async with visitor.socket(cookie, Origin=visitor.bridge.url) as page:
        path = f"/login?token={ada['link'].rpartition('=')[2]}"
        assert (await visitor.post(path, cookie, Origin=visitor.bridge.url))[0] == 303
        assert await close_code(page) == 1008


async def test_restart_replaces_printed_link(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    async with visiting(chosen) as visitor:
        first = visitor.bridge.login_token
    async with visiting(chosen) as visitor:
        assert (await visitor.get(f"/login?token={first}"))[0] == 401
        await visitor.login()


# --- sessions ---


async def test_cookie_is_http_only_and_same_site(visitor: Visitor) -> None:
    _, headers, _ = await visitor.get(f"/login?token={visitor.bridge.login_token}")
    (cookie,) = SimpleCookie(headers["Set-Cookie"]).values()
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert cookie["path"] == "/"
    assert not cookie["domain"]
    # Browsers never send a Secure cookie back over plain http.
    assert not cookie["secure"]


async def test_https_cookie_is_secure_and_host_bound(tmp_path: Path) -> None:
    async with visiting(replace(settings(tmp_path), public_url="https://sprite.example.org")) as visitor:
        _, headers, _ = await visitor.get(
            f"/login?token={visitor.bridge.login_token}", Host="sprite.example.org", X_Forwarded_For="203.0.113.9"
        )
        (cookie,) = SimpleCookie(headers["Set-Cookie"]).values()
        assert cookie.key.startswith("__Host-")
        assert cookie["secure"]
        assert "Strict-Transport-Security" in headers
        sent = f"{cookie.key}={cookie.value}"
        assert (await visitor.refused(sent, Host="sprite.example.org", Origin="http://sprite.example.org:81")) == 403
        async with visitor.socket(sent, Host="sprite.example.org", Origin="https://sprite.example.org"):
            pass


async def test_session_survives_bridge_restart(tmp_path: Path) -> None:
    chosen = replace(settings(tmp_path), port=free_port())
    async with visiting(chosen) as visitor:
        cookie = await visitor.login()
    async with visiting(chosen) as visitor:
        assert await visitor.may_enter(cookie)


async def test_active_session_is_extended(visitor: Visitor) -> None:
    cookie = await visitor.login()
    assert "Set-Cookie" not in (await visitor.get("/", cookie))[1]
    visitor.sql("UPDATE sessions SET expires_at = expires_at - 25 * 24 * 3600")
    (soon,) = visitor.sql("SELECT expires_at FROM sessions")[0]
    assert (await visitor.get("/", cookie))[1]["Set-Cookie"].startswith(cookie.partition(".")[0])
    (later,) = visitor.sql("SELECT expires_at FROM sessions")[0]
    assert later > soon + 24 * 24 * 3600
    visitor.sql("UPDATE sessions SET expires_at = 1")
    assert not await visitor.may_enter(cookie)


async def test_tampered_cookie_is_rejected(visitor: Visitor) -> None:
    cookie = await visitor.login()
    name, _, value = cookie.partition("=")
    session, _, rest = value.partition(".")
    forged = TimestampSigner("guessed", salt="bridge session", digest_method=hashlib.sha256).sign(session).decode()
    for wrong in ("", session, f"{session}x.{rest}", value[:-1], forged, "\u00ff" * 9, "." * 50, "a" * 4000):
        assert not await visitor.may_enter(f"{name}={wrong}")
    # A signed cookie without its session is rejected, too.
    assert await visitor.may_enter(cookie)
    visitor.sql("DELETE FROM sessions")
    assert not await visitor.may_enter(cookie)


async def test_logout_ends_session_and_closes_pages(visitor: Visitor) -> None:
    cookie = await visitor.login()
    other = await visitor.login((await visitor.operator("POST", "/users/local/link"))["link"].rpartition("=")[2])
    async with (
        visitor.socket(cookie, Origin=visitor.bridge.url) as page,
        visitor.socket(other, Origin=visitor.bridge.url) as elsewhere,
    ):
        status, headers, _ = await visitor.post("/logout", cookie, Origin=visitor.bridge.url)
        assert status == 303
        assert "Max-Age=0" in headers["Set-Cookie"]
        assert await close_code(page) == 1008
        assert not elsewhere.closed
    assert not await visitor.may_enter(cookie)
    assert await visitor.may_enter(other)


# --- Origin and Host ---


async def test_cross_origin_socket_is_refused(visitor: Visitor) -> None:
    """The cookie alone opens no socket. Other `Authorization` schemes are refused: browsers send them for proxies."""
    cookie = await visitor.login()
    for origin in (
        "https://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://127.0.0.1.evil.example",
        "null",
        "http://[",
        "file://",
    ):
        assert await visitor.refused(cookie, Origin=origin) == 403, origin
    assert await visitor.refused(cookie) == 403
    assert await visitor.refused(Origin=visitor.bridge.url) == 401
    for authorization in ("Basic bG9jYWw6bG9jYWw=", "Negotiate x", "x", "", "Bearer guessed", "Bearer"):
        for sent in ({"Origin": "https://evil.example"}, {}):
            assert await visitor.refused(cookie, Authorization=authorization, **sent) in {401, 403}, authorization
    for authorization in ("Bearer bridge-person-guessed", "Bearer"):
        assert await visitor.refused(Authorization=authorization) == 401
    assert await visitor.refused(Authorization="Basic bG9jYWw6bG9jYWw=", Origin=visitor.bridge.url) == 401


async def test_cookie_is_ignored_when_token_is_sent(visitor: Visitor) -> None:
    added = await visitor.operator("POST", "/users/ada")
    cookie = await visitor.login()
    guessed = {"Authorization": "Bearer guessed"}
    assert await visitor.refused(cookie, Origin=visitor.bridge.url, **guessed) == 401
    assert not await visitor.may_enter(cookie, **guessed)
    hers = {"Authorization": f"Bearer {added['token']}"}
    async with visitor.socket(cookie, **hers) as terminal:
        # The socket does not belong to the browser's session, so the logout keeps it open.
        assert (await visitor.post("/logout", cookie, Origin=visitor.bridge.url))[0] == 303
        await terminal.send_str("no message")
        assert json.loads(await said(terminal, "error"))["payload"]["code"] == "bad_frame"


async def test_logout_with_foreign_token_ends_browser_session(visitor: Visitor) -> None:
    """The `Authorization` header does not change whose session ends."""
    added = await visitor.operator("POST", "/users/ada")
    cookie = await visitor.login()
    async with visitor.socket(cookie, Origin=visitor.bridge.url) as page:
        hers = {"Authorization": f"Bearer {added['token']}"}
        assert (await visitor.post("/logout", cookie, Origin=visitor.bridge.url, **hers))[0] == 303
        assert await close_code(page) == 1008


async def test_rebound_host_reaches_only_probes(visitor: Visitor) -> None:
    cookie = await visitor.login()
    for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "[", ""):
        for path in ("/", "/metrics", f"/login?token={visitor.bridge.login_token}"):
            status, _, text = await visitor.get(path, cookie, Host=host)
            assert status in {400, 421}, host
            assert "bridge_http" not in text
    assert (await visitor.get("/healthz", Host="10.1.2.3:8080"))[0] == 200
    assert (await visitor.get("/readyz", Host="10.1.2.3:8080"))[0] == 200


# --- people ---


async def test_added_person_enters_by_link_and_token(visitor: Visitor) -> None:
    added = await visitor.operator("POST", "/users/ada")
    assert added["link"].startswith(f"{visitor.bridge.url}/login?token=")
    assert await visitor.may_enter(await visitor.login(added["link"].rpartition("=")[2]))
    assert await visitor.may_enter(Authorization=f"Bearer {added['token']}")
    async with visitor.socket(Authorization=f"Bearer {added['token']}"), asyncio.timeout(PATIENCE):
        # The bridge writes `last_seen_at` in the background.
        while not (users := (await visitor.operator("GET", "/users"))["users"])[1]["last_seen_at"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert [(user["name"], user["sessions"]) for user in users] == [("local", 0), ("ada", 1)]
    assert users[1]["last_seen_at"] > users[1]["created_at"]


async def test_revoked_person_loses_all_access(visitor: Visitor) -> None:
    added = await visitor.operator("POST", "/users/ada")
    other = await visitor.operator("POST", "/users/bob")
    link = (await visitor.operator("POST", "/users/ada/link"))["link"].rpartition("=")[2]
    cookie = await visitor.login(added["link"].rpartition("=")[2])
    async with (
        visitor.socket(cookie, Origin=visitor.bridge.url) as page,
        visitor.socket(Authorization=f"Bearer {added['token']}") as terminal,
        visitor.socket(Authorization=f"Bearer {other['token']}") as bystander,
    ):
        await visitor.operator("DELETE", "/users/ada")
        assert await close_code(page) == 1008
        assert await close_code(terminal) == 1008
        assert not bystander.closed
    assert not await visitor.may_enter(cookie)
    assert not await visitor.may_enter(Authorization=f"Bearer {added['token']}")
    assert (await visitor.get(f"/login?token={link}"))[0] == 401
    assert await visitor.may_enter(Authorization=f"Bearer {other['token']}")


async def test_revoked_name_is_not_reused(visitor: Visitor) -> None:
    """The operator can restore the person instead."""
    first = await visitor.operator("POST", "/users/ada")
    await visitor.operator("DELETE", "/users/ada")
    with pytest.raises(control.ControlError, match="memory still exist"):
        await visitor.operator("POST", "/users/ada")
    with pytest.raises(control.ControlError, match="was revoked"):
        await visitor.operator("POST", "/users/ada/link")
    again = await visitor.operator("POST", "/users/ada/restore")
    assert await visitor.may_enter(Authorization=f"Bearer {again['token']}")
    assert not await visitor.may_enter(Authorization=f"Bearer {first['token']}")


async def test_unsafe_person_name_is_refused(visitor: Visitor) -> None:
    for name in ("Ada", "a" * 40, "1a", "-", "a_b", "a.b", "local", "%2e%2e", "a%2fb", "\u00e4"):
        with pytest.raises(control.ControlError):
            await visitor.operator("POST", f"/users/{name}")


async def test_data_folder_contains_no_secret(visitor: Visitor) -> None:
    added = await visitor.operator("POST", "/users/ada")
    cookie = await visitor.login(added["link"].rpartition("=")[2])
    session = cookie.partition("=")[2].partition(".")[0]
    secrets = [str(visitor.bridge.login_token), added["token"], added["link"].rpartition("=")[2], session]
    files = [path for path in visitor.settings.data.rglob("*") if path.is_file()]
    assert visitor.settings.database in files
    for path in files:
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in content], path
    assert visitor.settings.database.stat().st_mode & 0o077 == 0
    assert visitor.settings.run.stat().st_mode & 0o077 == 0


async def test_open_pages_per_person_are_limited(visitor: Visitor) -> None:
    added = await visitor.operator("POST", "/users/ada")
    headers = {"Authorization": f"Bearer {added['token']}"}
    async with asyncio.timeout(PATIENCE):
        # All at once: a page counts from the moment it is admitted.
        pages = await asyncio.gather(
            *(visitor.session.ws_connect(visitor.bridge.url + "/ws", headers=headers) for _ in range(40)),
            return_exceptions=True,
        )
    refused = [page.status for page in pages if isinstance(page, aiohttp.WSServerHandshakeError)]
    assert refused == [429] * 8
    for page in pages:
        if isinstance(page, aiohttp.ClientWebSocketResponse):
            await page.close()


async def said(websocket: aiohttp.ClientWebSocketResponse, type_: str) -> str:
    """Return the next frame of a type."""
    async with asyncio.timeout(PATIENCE):
        while f'"type":"{type_}"' not in (frame := await websocket.receive_str()):
            pass
    return frame


async def close_code(websocket: aiohttp.ClientWebSocketResponse) -> int | None:
    """Return the close code from the close frame; the library overwrites its own attribute after a late answer."""
    async with asyncio.timeout(PATIENCE):
        while not websocket.closed:
            message = await websocket.receive()
            if message.type is aiohttp.WSMsgType.CLOSE:
                return int(message.data)
    return websocket.close_code


def test_login_link_matches_contract() -> None:
    assert login_link("http://127.0.0.1:8080", "T") == "http://127.0.0.1:8080/login?token=T"


async def test_cluster_address_is_allowed_host(tmp_path: Path) -> None:
    public, address = "https://sprite.example.org", "http://10.1.2.3:8080"
    async with visiting(replace(settings(tmp_path), public_url=public, address=address)) as visitor:
        assert (await visitor.get("/", Host="10.1.2.3:8080"))[0] == 401
        assert (await visitor.get("/", Host="10.1.2.4:8080"))[0] == 421
