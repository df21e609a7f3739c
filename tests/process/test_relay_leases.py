"""A relay with leases, over a real sprite: sprite ownership, and page redirects to the owner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from bridge.cluster.leases import Leases
from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.wakeups.waker import DueDates, Waker
from sprite.protocol.replication import Lease
from sprite.workspace.database import open_workspace
from tests.harness import Sprite, running_sprite
from tests.inspection import eventually
from tests.relay_stage import Stage, Street, stage

IDLE = {"idle_seconds": 0.0}


def died() -> None:
    raise AssertionError("a task died")


@asynccontextmanager
async def bridge(
    database: Database, name: str, sprite: Sprite, **options: float
) -> AsyncIterator[tuple[Leases, Stage]]:
    host = Street(sprite.port, sprite.token)
    async with (
        Leases(database, f"http://{name}", died, owner=name) as leases,
        stage(host, ownership=leases, **options) as relay,
    ):
        yield leases, relay


async def taken_by(leases: Leases, database: Database) -> Lease:
    """Move the lease to this owner in one statement; the old owner would renew a lapsed lease at once."""
    passed = "UPDATE leases SET owner = ?, epoch = epoch + 1, expires_at = db_now() + 60"
    await database.statement(passed, (leases.owner,))
    return await leases.own("local")


async def newest(workspace: Path) -> Lease | None:
    async with open_workspace(workspace / ".os/workspace.db") as store:
        return await store.lease()


async def test_page_after_lease_loss_resumes_at_owner(
    tmp_path: Path,
) -> None:
    """The old bridge closes the page; the new owner resumes it without a missed event."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with open_database(tmp_path / "bridge.db") as database, running_sprite(workspace, None) as sprite:
        async with bridge(database, "a", sprite) as (a, first), bridge(database, "b", sprite) as (b, second):
            async with first.page() as page:
                await page.link("ready")
                welcome = (await page.receive("auth_ok"))["payload"]
                # The other bridge takes the lease between two heartbeats; its notification arrives first.
                assert await taken_by(b, database) == Lease("b", 2)
                a.moved("local:2")
                assert await page.closed() == aiohttp.WSCloseCode.SERVICE_RESTART
            resume = {"epoch": welcome["epoch"], "last_seq": welcome["last_seq"]}
            async with second.page(**resume) as page:
                await page.link("ready")
                assert (await page.reply(await page.send("system", {"action": "status"})))["type"] == "status"
            # A page at the wrong bridge is sent to the owner.
            async with first.page() as page:
                assert await page.closed() == aiohttp.WSCloseCode.SERVICE_RESTART
        await sprite.stop()
    assert await newest(workspace) == Lease("b", 2)


async def test_relay_with_reset_database_raises_lease_epoch(tmp_path: Path) -> None:
    """A sprite that has seen epoch 50 accepts a bridge with an empty database."""
    workspace = tmp_path / "workspace"
    (workspace / ".os").mkdir(parents=True)
    async with open_workspace(workspace / ".os/workspace.db") as store:
        await store.keep_lease(Lease("of the old database", 50))
    async with (
        open_database(tmp_path / "bridge.db") as database,
        running_sprite(workspace, None) as sprite,
        bridge(database, "a", sprite) as (a, relay),
        relay.page() as page,
    ):
        await page.link("ready")
        assert (await page.reply(await page.send("system", {"action": "status"})))["type"] == "status"
        epoch = a.epoch("local")
        assert epoch is not None
        assert epoch > 50


async def test_page_of_sleeping_sprite_moves_to_owner(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with (
        open_database(tmp_path / "bridge.db") as database,
        running_sprite(workspace, None) as sprite,
        bridge(database, "a", sprite, **IDLE) as (a, relay),
        Leases(database, "http://b", died, owner="b") as b,
        relay.page() as page,
    ):
        await page.link("ready")
        await page.receive("state_sync")
        await sprite.stop()
        asleep = await page.link("ready")
        assert "Asleep" in asleep["detail"]
        await taken_by(b, database)
        a.moved("local:2")
        assert await page.closed() == aiohttp.WSCloseCode.SERVICE_RESTART


async def test_lease_lookup_failure_closes_pages(tmp_path: Path) -> None:
    """If only this bridge has lost the database, pages can reconnect to another one."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with (
        open_database(tmp_path / "bridge.db") as database,
        running_sprite(workspace, None) as sprite,
        bridge(database, "a", sprite, unasked_seconds=0.5) as (a, relay),
    ):
        async with relay.page() as page:
            await page.link("ready")
            await page.receive("state_sync")
            await database.statement("ALTER TABLE leases RENAME TO away")
            a.moved("local:2")
            await page.until(lambda m: m["type"] == "link" and "The database is unreachable" in m["payload"]["detail"])
            assert await page.closed() == aiohttp.WSCloseCode.SERVICE_RESTART
        await database.statement("ALTER TABLE away RENAME TO leases")
        async with relay.page() as page:
            await page.link("ready")


async def test_due_wakeup_survives_killed_owner(
    tmp_path: Path,
) -> None:
    """Another bridge checks the pending wake-up of a killed bridge after its lease expires."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with open_database(tmp_path / "bridge.db") as database, running_sprite(workspace, None) as sprite:
        # The owner was killed in the middle of a wake-up.
        await database.statement("INSERT INTO waking VALUES ('local', 1, 1, 1)")
        await database.statement("INSERT INTO leases VALUES ('local', 'gone', 'http://gone', 4, db_now() + 2)")

        async def may(_sprite: str) -> bool:
            return True

        host = Street(sprite.port, sprite.token)
        async with (
            Leases(database, "http://b", died, owner="b") as b,
            DueDates(database, died, b) as due,
            stage(host, observers=[due], ownership=b, linger_seconds=0.1) as relay,
        ):
            async with Waker(relay.relay, due, may, died) as waker:
                await eventually(lambda: waker.wakes["looked"] == 1, "the sprite is not checked")
            assert waker.wakes.total() == 1
        await sprite.stop()
    assert await newest(workspace) == Lease("b", 5)
