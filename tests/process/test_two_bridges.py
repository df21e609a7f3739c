"""Two bridges that share one Postgres: one owns the sprite, and the other takes over after its loss."""

from __future__ import annotations

import asyncio
import base64
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.cluster.leases import Leases
from bridge.db.database import Database
from bridge.db.open import open_database
from tests.bridge_harness import (
    BridgeProcess,
    PageClient,
    bridge_environment,
    bridge_process,
    run_bridge,
    running_bridge,
)
from tests.chaos_proxy import ChaosProxy
from tests.harness import PATIENCE, Message, rows
from tests.ports import free_port

#: Shared by all bridges.
_STORE_KEY = base64.b64encode(b"between them " + b"." * 19).decode()

NOTE = {"action": "create_card", "title": "Tides", "blocks": [{"type": "text", "data": {"content": "noon"}}]}


@asynccontextmanager
async def bridge(folder: Path, url: str) -> AsyncIterator[tuple[BridgeProcess, str]]:
    """Run a bridge with its own data folder on this database. Yield it with the local person's cookie."""
    async with bridge_process(
        folder / "data",
        forks_sprites=True,
        BRIDGE_DATABASE_URL=url,
        BRIDGE_CLUSTER_SECRET="kept-between-them",
        BRIDGE_STORE_KEY=_STORE_KEY,
    ) as running:
        yield running, await running.login()


async def lease(database: Database) -> tuple[str, int, float]:
    """Return owner, epoch and remaining seconds of the only lease."""
    found = await database.statement("SELECT owner, epoch, expires_at - db_now() AS left_over FROM leases")
    assert len(found) == 1
    return found[0]["owner"], found[0]["epoch"], found[0]["left_over"]


async def position(page: PageClient) -> Message:
    """Return the resume position of a page."""
    welcome = next(m for m in page.received if m["type"] == "auth_ok")["payload"]
    return {"epoch": welcome["epoch"], "last_seq": max([welcome["last_seq"], *seqs(page)])}


def seqs(page: PageClient) -> list[int]:
    return [message["seq"] for message in page.received if "seq" in message]


def titles(workspace: Path) -> list[str]:
    """Return the titles of all cards."""
    return [row["title"] for row in rows(workspace / ".os/workspace.db", "SELECT title FROM cards")]


async def draw(page: PageClient) -> None:
    """Put a note on the canvas; return once the page has received it."""
    await page.send("canvas_interaction", NOTE)
    await page.type("canvas_update")


@asynccontextmanager
async def taken_over(running: BridgeProcess, cookie: str, resume: Message | None = None) -> AsyncIterator[PageClient]:
    """Reconnect a page until this bridge owns the sprite."""
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(PATIENCE):
            while (page := await _served(stack, running, cookie, resume)) is None:  # noqa: ASYNC110 - as a page does
                await asyncio.sleep(0.1)
        yield page


async def _served(
    stack: AsyncExitStack, running: BridgeProcess, cookie: str, resume: Message | None
) -> PageClient | None:
    async with AsyncExitStack() as attempt:
        try:
            page = await attempt.enter_async_context(running.page(cookie, resume=resume))
        except aiohttp.WSServerHandshakeError as refused:
            # While the database does not answer, a page tries again, too.
            if refused.status != HTTPStatus.SERVICE_UNAVAILABLE:
                pytest.fail(f"the handshake was answered with {refused.status}", pytrace=False)
            return None
        while (message := await page.next()) is not None:
            if message["type"] == "link" and message["payload"]["state"] == "ready":
                stack.push_async_exit(attempt.pop_all())
                return page
    return None


async def test_suspended_bridge_loses_sprite_to_other_bridge(tmp_path: Path, postgres_url: str) -> None:
    """After the suspension its pages are closed; the new owner can be killed in turn."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(postgres_url))
        a, cookie_a = await stack.enter_async_context(bridge(tmp_path / "a", postgres_url))
        b, cookie_b = await stack.enter_async_context(bridge(tmp_path / "b", postgres_url))
        old = await stack.enter_async_context(a.page(cookie_a))
        await old.type("state_sync")
        a.process.send_signal(signal.SIGSTOP)
        try:
            # The message waits in the socket of a bridge that still believes it owns the sprite.
            typed = await old.send("canvas_interaction", NOTE)
            new = await stack.enter_async_context(taken_over(b, cookie_b))
            assert (await lease(database))[1] == 2
        finally:
            a.process.send_signal(signal.SIGCONT)
        assert await old.closed() == aiohttp.WSCloseCode.SERVICE_RESTART
        assert not [m for m in old.received if m.get("reply_to") == typed]
        assert titles(a.workspace) == []
        # A reconnected page sends its unacknowledged messages again.
        assert (await new.ask("canvas_interaction", NOTE, typed))["type"] == "ack"
        assert titles(a.workspace) == ["Tides"]
        assert (await lease(database))[1] == 2
        # After a kill, the other bridge takes over and the page resumes.
        await draw(new)
        left_off, owner = await position(new), await lease(database)
        await b.kill()
        async with taken_over(a, cookie_a, left_off) as page:
            await draw(page)
            found = seqs(page)
            assert found == sorted(set(found))
            assert min(found) == left_off["last_seq"] + 1
            taken = await lease(database)
        assert (taken[0] != owner[0], taken[1]) == (True, 3)
        assert not b.workspace.exists()
        # Ctrl-C releases the lease at once.
        assert await a.stop() == 0
        assert (await lease(database))[2] <= 0


async def test_forwarded_page_reconnects_after_network_cut(tmp_path: Path, postgres_url: str) -> None:
    """The bridges cannot reach each other for a while; both reach the database."""
    port = free_port()
    shared: dict[str, Any] = {"BRIDGE_DATABASE_URL": postgres_url, "BRIDGE_CLUSTER_SECRET": "kept-between-them"}
    async with ChaosProxy(port, 0, 0) as wire:
        address = f"http://127.0.0.1:{wire.port}"
        async with (
            running_bridge(
                tmp_path / "a/data", port=port, BRIDGE_ADDRESS=address, BRIDGE_STORE_KEY=_STORE_KEY, **shared
            ) as a,
            running_bridge(tmp_path / "b/data", BRIDGE_STORE_KEY=_STORE_KEY, **shared) as b,
        ):
            cookie = await b.login()
            async with a.page(cookie) as at_owner:
                await at_owner.type("state_sync")
                async with b.page(cookie) as passed_on:
                    await passed_on.type("state_sync")
                    with wire.silent():
                        assert await passed_on.closed() == aiohttp.WSCloseCode.GOING_AWAY
                async with b.page(cookie) as passed_on:
                    await passed_on.type("state_sync")
                assert (await at_owner.ask("system", {"action": "status"}))["type"] == "status"


async def test_offline_export_of_leased_sprite_fails(tmp_path: Path, postgres_url: str) -> None:
    environment = bridge_environment(BRIDGE_DATABASE_URL=postgres_url, BRIDGE_STORE_KEY=_STORE_KEY)
    data = tmp_path / "data"
    (data / "workspaces/ada/.os").mkdir(parents=True)
    (data / "workspaces/ada/.os/transcript.db").touch()
    export = ("export", "ada", str(tmp_path / "ada.zip"), "--data", str(data))
    async with open_database(postgres_url) as database:
        async with Leases(database, "http://10.0.0.2:8080", lambda: None) as other:
            await other.own("ada")
            status, _, err = await run_bridge(*export, environment=environment)
            assert status == 2
            assert "The bridge at http://10.0.0.2:8080 has this sprite at the moment" in " ".join(err.split())
            assert (await lease(database))[1] == 1
        # A free sprite is leased for the duration of the command.
        await run_bridge(*export, environment=environment)
        assert (await lease(database))[1] == 2
        assert (await lease(database))[2] <= 0
    assert not (tmp_path / "ada.zip").exists()
