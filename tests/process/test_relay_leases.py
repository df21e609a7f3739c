"""A relay that has its sprites by leases, and a real sprite: who may speak to it, and where its pages go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from bridge.cluster.leases import Leases
from bridge.db.open import Database, open_database
from bridge.wakeups.due_dates import SharedDueDates
from bridge.wakeups.waker import Waker
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
    """As when the owner's lease ended and this one took it; in one step, since the owner takes what has ended again."""
    passed = "UPDATE leases SET owner = ?, epoch = epoch + 1, expires_at = db_now() + 60"
    await database.statement(passed, (leases.owner,))
    return await leases.own("local")


async def newest(workspace: Path) -> Lease | None:
    async with open_workspace(workspace / ".os/workspace.db") as store:
        return await store.lease()


async def test_a_page_of_a_bridge_that_lost_the_sprite_is_sent_to_the_next_one_and_misses_nothing(
    tmp_path: Path,
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with open_database(tmp_path / "bridge.db") as database, running_sprite(workspace, None) as sprite:
        async with bridge(database, "a", sprite) as (a, first), bridge(database, "b", sprite) as (b, second):
            async with first.page() as page:
                await page.link("ready")
                welcome = (await page.receive("auth_ok"))["payload"]
                # Between two beats another one has taken it, and the news of that comes first.
                assert await taken_by(b, database) == Lease("b", 2)
                a.moved("local:2")
                assert await page.closed() == aiohttp.WSCloseCode.SERVICE_RESTART
            resume = {"epoch": welcome["epoch"], "last_seq": welcome["last_seq"]}
            async with second.page(**resume) as page:
                await page.link("ready")
                assert (await page.reply(await page.send("system", {"action": "status"})))["type"] == "status"
            # Whoever comes to the wrong one is told so by being passed on.
            async with first.page() as page:
                assert await page.closed() == aiohttp.WSCloseCode.SERVICE_RESTART
        await sprite.stop()
    assert await newest(workspace) == Lease("b", 2)


async def test_a_sprite_that_has_seen_more_than_a_new_database_is_reached_all_the_same(tmp_path: Path) -> None:
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


async def test_a_page_before_a_sleeping_sprite_is_passed_on_when_another_bridge_has_it(tmp_path: Path) -> None:
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


async def test_pages_of_a_bridge_that_cannot_ask_who_has_the_sprite_are_let_go_after_a_while(tmp_path: Path) -> None:
    """The database may be away for this bridge alone: another one has the sprite then, and can be reached."""
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
            await page.until(lambda m: m["type"] == "link" and "The database is away" in m["payload"]["detail"])
            assert await page.closed() == aiohttp.WSCloseCode.SERVICE_RESTART
        await database.statement("ALTER TABLE away RENAME TO leases")
        async with relay.page() as page:
            await page.link("ready")


async def test_what_a_killed_bridge_left_open_is_looked_at_by_another_one_when_the_lease_has_ended(
    tmp_path: Path,
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with open_database(tmp_path / "bridge.db") as database, running_sprite(workspace, None) as sprite:
        # As it was in the middle of a wake-up when its owner was killed.
        await database.statement("INSERT INTO waking VALUES ('local', 1, 7, 1, 1)")
        await database.statement("INSERT INTO leases VALUES ('local', 'gone', 'http://gone', 4, db_now() + 2)")

        async def may(_sprite: str) -> bool:
            return True

        host = Street(sprite.port, sprite.token)
        async with (
            Leases(database, "http://b", died, owner="b") as b,
            SharedDueDates(database, b, died) as due,
            stage(host, observers=[due], ownership=b, linger_seconds=0.1) as relay,
        ):
            async with Waker(relay.relay, due, may, died, ownership=b) as waker:
                await eventually(lambda: waker.wakes["looked"] == 1, "it was woken")
            assert waker.wakes.total() == 1
        await sprite.stop()
    assert await newest(workspace) == Lease("b", 5)
