"""The operator page on a real listener: its content and who may see it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.admin import control
from bridge.app import Bridge, running
from bridge.config import Settings
from bridge.replicas.sealed_store import open_store
from tests.harness import PATIENCE, start_in_thread
from tests.mcp_server import server, serving
from tests.shipping_by_hand import ship


@dataclass
class Desk:
    """A bridge, and a browser session of the local person, who is an operator."""

    bridge: Bridge
    settings: Settings
    session: aiohttp.ClientSession

    async def open(self) -> str:
        async with self.session.get("/operator") as response:
            assert response.status == 200
            return await response.text()

    async def asked(self, method: str, path: str, body: object = None) -> Any:
        async with control.control_session(self.settings.run) as session:
            return await control.ask(session, method, path, body)

    @asynccontextmanager
    async def browser(self, link: str) -> AsyncIterator[aiohttp.ClientSession]:
        jar = aiohttp.CookieJar(unsafe=True)
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        headers = {"Accept": "text/html"}
        async with aiohttp.ClientSession(self.bridge.url, cookie_jar=jar, timeout=timeout, headers=headers) as session:
            async with session.get(link, allow_redirects=False) as response:
                assert response.status == 303
            yield session


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "SPRITE"))}
    environment |= {"HOME": str(tmp_path), "SPRITE_PREWARM_SECONDS": "0"}
    settings = Settings(data=tmp_path / "data", port=0, environment=environment)
    async with running(settings, asyncio.Event().set, start_sprite=start_in_thread) as bridge:
        desk = Desk(bridge, settings, aiohttp.ClientSession())
        await desk.session.close()
        async with desk.browser(bridge.address) as session:
            desk.session = session
            yield desk


async def test_operator_page_shows_people_and_audit(desk: Desk, curated: Path, tmp_path: Path) -> None:
    made = await desk.asked("POST", "/users/ada")
    shown = await desk.open()
    assert "<dt>Stored</dt><dd>nothing</dd>" in shown
    assert "users add ada" in shown
    assert made["token"] not in shown
    async with open_store(Settings(desk.settings.data), None) as store:
        await ship(store, "ada", shutil.copytree(curated, tmp_path / "curated"))
    assert "<dt>Stored</dt><dd>all</dd>" in await desk.open()
    # Connections on behalf of another person are in the audit log, once each.
    async with control.control_session(desk.settings.run) as session:
        for person in ("ada", "ada", "local"):
            async with session.ws_connect(f"/ws?person={person}"):
                pass
    entries = (await desk.asked("GET", "/audit"))["entries"]
    assert [f"{each['actor']} {each['action']} {each['subject']}" for each in entries] == [
        "cli users add ada",
        "cli chat as ada",
    ]


async def test_operator_page_shows_connections(desk: Desk) -> None:
    async with serving(server()) as url:
        await desk.asked("POST", "/users/local/connections", {"name": "loop", "url": url})
        assert "<dt>Connections</dt><dd>loop (ready, 0 calls today)</dd>" in await desk.open()


async def test_operator_page_rejects_other_people(desk: Desk) -> None:
    link = (await desk.asked("POST", "/users/bob"))["link"]
    async with desk.browser(link) as bob:
        async with bob.get("/operator") as response:
            assert response.status == 403
            assert "users role bob operator" in await response.text()
        async with bob.get("/operator", headers={"Cookie": ""}) as response:
            assert response.status in {401, 403}
        # A change of the role takes effect at the next request.
        for role, status in (("operator", 200), ("person", 403)):
            await desk.asked("PUT", "/users/bob/role", {"role": role})
            async with bob.get("/operator") as response:
                assert response.status == status


async def test_operator_page_has_no_scripts_or_cache(desk: Desk) -> None:
    async with desk.session.get("/operator?q=%22%3E%3Cscript%3E") as response:
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["Cache-Control"] == "no-store"
        assert "<script" not in await response.text()
    async with desk.session.get("/operator?q=local") as response:
        assert "1 person;" in await response.text()
