"""A bridge on Postgres: it works as on a file, and reports the server's absence."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bridge.db.database import DatabaseAwayError, once_back
from bridge.db.postgres import Patience, open_postgres
from bridge.db.tables import MIGRATIONS
from tests.bridge_harness import Bridge, running_bridge
from tests.harness import PATIENCE
from tests.inspection import workspace_db
from tests.postgres import Server, own_server

_STORE_KEY = base64.b64encode(b"of this bridge " + b"." * 17).decode()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_server() as server:
        yield server


async def ready(bridge: Bridge) -> tuple[int, str]:
    async with bridge.http() as session, session.get("/readyz") as response:
        return response.status, await response.text()


async def becomes(bridge: Bridge, answer: tuple[int, str]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if await ready(bridge) == answer:
                return
            await asyncio.sleep(0.1)


async def test_bridge_recovers_after_postgres_outage(tmp_path: Path, server: Server) -> None:
    url = server.create().replace("sprite@", "sprite:planted-password@")
    shared: dict[str, Any] = {"BRIDGE_CLUSTER_SECRET": "kept-between-them", "BRIDGE_STORE_KEY": _STORE_KEY}
    async with running_bridge(tmp_path / "data", BRIDGE_DATABASE_URL=url, **shared) as bridge:
        cookie = await bridge.login()
        async with bridge.page(cookie) as page:
            await page.type("state_sync")
            server.stop()
            told = (await page.link("unavailable"))["payload"]["detail"]
            for words in ("The database is unreachable", "Nothing is lost", "What you type now is sent"):
                assert words in told
            await becomes(bridge, (503, "the database is unreachable\n"))
            async with bridge.http() as session, session.get("/", headers={"Cookie": cookie}) as response:
                assert response.status == 503
                assert "The database is unreachable" in await response.text()
            status, _, err = await bridge.run("users", "list")
            assert status != 0
            assert "The database is unreachable" in err
            note = {
                "action": "create_card",
                "title": "Tides",
                "blocks": [{"type": "text", "data": {"content": "noon"}}],
            }
            typed = await page.send("canvas_interaction", note)
            server.start()
            await page.link("ready")
            await becomes(bridge, (200, "ready\n"))
            assert (await page.reply(typed))["type"] == "ack"
        status, out, _ = await bridge.run("users", "add", "ada")
        assert status == 0
        await bridge.login(next(word for word in out.split() if "/login?token=" in word))
        await bridge.stop()
    assert [row["title"] for row in workspace_db(bridge.workspace, "SELECT title FROM cards")] == ["Tides"]
    assert not (tmp_path / "data/bridge.db").exists()
    assert "planted-password" not in bridge.log
    said = [line for line in bridge.log.splitlines() if "the database is" in line]
    assert len(said) == 2, said
    assert "the database is away" in said[0]
    assert "the database is back" in said[1]
    assert bridge.log.count("leases cannot be renewed") == 1
    assert bridge.log.count("leases are renewed again") == 1


async def test_probes_answer_while_postgres_hangs(tmp_path: Path, server: Server) -> None:
    async with (
        running_bridge(tmp_path / "data", BRIDGE_DATABASE_URL=server.create()) as bridge,
        bridge.http() as session,
    ):
        async with session.get("/metrics", headers=bridge.operator) as response:
            assert "bridge_websockets" in await response.text()
        await becomes(bridge, (200, "ready\n"))
        server.freeze()
        try:
            for _ in range(3):
                began = time.monotonic()
                assert await ready(bridge) == (503, "the database is unreachable\n")
                async with session.get("/metrics", headers=bridge.operator) as response:
                    text = await response.text()
                assert time.monotonic() - began < 2 * 1.0
                assert "bridge_websockets" in text
            began = time.monotonic()
            status, _, _ = await bridge.run("status")
            assert (status != 0, time.monotonic() - began < 7) == (True, True)
        finally:
            server.thaw()
        await becomes(bridge, (200, "ready\n"))


async def test_hanging_server_counts_as_away(server: Server) -> None:
    """The database is used again after the server answers."""
    url = server.create()
    async with open_postgres(url, MIGRATIONS, Patience(silence=2.0)) as database:
        await database.statement("SELECT 1")
        server.freeze()
        with pytest.raises(DatabaseAwayError):
            await database.statement("SELECT 1")
        server.thaw()
        async with asyncio.timeout(PATIENCE):
            await once_back(lambda: database.statement("SELECT 1"))


async def test_listener_reconnects_after_dead_connection(server: Server) -> None:
    url = server.create()
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def until_heard(news: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                server.run(f"NOTIFY news, '{news}'", url.rpartition("/")[2])
                await asyncio.sleep(0.1)
                while not heard.empty():
                    if heard.get_nowait() == news:
                        return

    async with open_postgres(url, MIGRATIONS, Patience(silence=1.0)) as database:

        async def listen() -> None:
            async for told in database.listen("news"):
                heard.put_nowait(told)

        listening = asyncio.create_task(listen())
        try:
            await until_heard("first")
            # The server's side of the connection stops without closing it.
            with psycopg.connect(url) as connection:
                others = (
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
                for (pid,) in connection.execute(others).fetchall():
                    os.kill(pid, signal.SIGSTOP)
            await until_heard("second")
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
