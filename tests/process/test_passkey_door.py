"""Passkey routes on a real listener: ownership, cross-site requests and rate limits."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from bridge.app import Bridge, running
from bridge.auth.passkey_store import party_of
from bridge.config import Settings
from tests.authenticator import Authenticator
from tests.harness import PATIENCE


def chosen(tmp_path: Path) -> Settings:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "SPRITE"))}
    return Settings(data=tmp_path / "data", port=0, environment={**environment, "HOME": str(tmp_path)})


@pytest.fixture
async def bridge(tmp_path: Path) -> AsyncIterator[Bridge]:
    async with running(chosen(tmp_path), asyncio.Event().set) as bridge:
        yield bridge


@asynccontextmanager
async def browser(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    jar, timeout = aiohttp.CookieJar(unsafe=True), aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(url, cookie_jar=jar, timeout=timeout, headers={"Origin": url}) as session:
        yield session


async def log_in(session: aiohttp.ClientSession, bridge: Bridge) -> None:
    async with session.get(f"/login?token={bridge.login_token}", allow_redirects=False) as response:
        assert response.status == 303


async def post(session: aiohttp.ClientSession, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    async with session.post(path, data=body, headers=headers, allow_redirects=False) as response:
        return response.status, await response.read()


def here(bridge: Bridge) -> str:
    return bridge.url.replace("127.0.0.1", "localhost")


async def test_passkey_is_added_and_logs_in(bridge: Bridge) -> None:
    url = here(bridge)
    device = Authenticator(origin=url)
    async with browser(url) as ada, browser(url) as anew:
        assert (await post(ada, "/passkeys/options"))[0] == 401
        await log_in(ada, bridge)
        _, options = await post(ada, "/passkeys/options")
        body = json.dumps({"answer": json.loads(device.made(options)), "label": "<i>Phone</i>"}).encode()
        # The cookie of the registration belongs to another browser.
        assert (await post(anew, "/passkeys", body))[0] == 401
        assert (await post(ada, "/passkeys", body, Origin="https://evil.example"))[0] == 403
        assert (await post(ada, "/passkeys", body))[0] == 201
        async with ada.get("/passkeys") as response:
            page = await response.text()
        assert "&lt;i&gt;Phone&lt;/i&gt;" in page
        assert "script-src 'self'" in response.headers["Content-Security-Policy"]

        _, options = await post(anew, "/login/passkey/options")
        answer = device.signed(options)
        assert (await post(anew, "/login/passkey", answer, Origin="https://evil.example"))[0] == 403
        async with browser(url) as thief:
            assert (await post(thief, "/login/passkey", answer))[0] == 400
        assert (await post(anew, "/login/passkey", answer))[0] == 204
        async with anew.get("/passkeys") as response:
            assert response.status == 200
        # A replayed answer is rejected.
        assert (await post(anew, "/login/passkey", answer))[0] == 400

        form = dict(re.findall(r'name="(token|passkey)" value="([^"]+)"', page))
        for change in ({"token": ""}, {"token": "x" * 64}):
            async with ada.post("/passkeys/remove", data={**form, **change}, allow_redirects=False) as response:
                assert response.status == 403
        async with ada.post("/passkeys/remove", data=form, allow_redirects=False) as response:
            assert response.status == 303
        _, options = await post(anew, "/login/passkey/options")
        status, said = await post(anew, "/login/passkey", device.signed(options))
        assert status == 400
        assert b"unknown here" in said


async def test_wrong_passkey_answers_are_refused(bridge: Bridge) -> None:
    async with browser(here(bridge)) as eve:
        statuses = []
        for body in (b"x" * 1_000_000, b"\xff", b"{}"):
            await post(eve, "/login/passkey/options")
            statuses.append((await post(eve, "/login/passkey", body))[0])
        assert statuses == [400] * 3


async def test_passkeys_are_offered_only_on_valid_origins(bridge: Bridge, tmp_path: Path) -> None:
    async with browser(bridge.url) as ada:
        async with ada.get("/login/passkey", headers={"Accept": "text/html"}) as response:
            text = await response.text()
        assert here(bridge) in text
        assert "passkey-login" not in text
    assert party_of("http://192.0.2.7:8080", 1) is None
    assert party_of("https://[::1]", 1) is None
    assert party_of("http://sprite.example.org", 1) is None
    assert party_of("http://localhost.example.org", 1) is None
    assert party_of("http://localhost:8080", 1) is not None
    # Every route explains why passkeys do not work on such an address.
    elsewhere = replace(chosen(tmp_path / "other"), public_url="http://sprite.example.org")
    async with running(elsewhere, asyncio.Event().set) as other, browser(other.url) as ada:
        for path in ("/passkeys", "/login/passkey"):
            async with ada.get(path, headers={"Accept": "text/html"}) as response:
                assert (response.status, "https proxy in front of it" in await response.text()) == (404, True)
        for path in ("/passkeys", "/passkeys/options", "/passkeys/remove", "/login/passkey", "/login/passkey/options"):
            assert b"no_passkeys" in (await post(ada, path))[1]
        async with ada.get("/", headers={"Accept": "text/html"}) as response:
            assert "passkey" not in await response.text()


def test_passkeys_are_bound_to_public_origin() -> None:
    for url in ("https://Sprite.example.org", "https://sprite.example.org:443"):
        party = party_of(url, 8080)
        assert party is not None
        assert (party.rp_id, party.origins) == ("sprite.example.org", ("https://sprite.example.org",))
        assert party.is_at("sprite.example.org")
        assert not party.is_at("sprite.example.org.evil.example")
    party = party_of("https://sprite.example.org:8443", 8080)
    assert party is not None
    assert party.origins == ("https://sprite.example.org:8443",)
