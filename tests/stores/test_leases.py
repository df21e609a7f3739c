"""Leases in the database: one bridge owns a sprite, by the database's clock, and each bridge knows its own leases."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from bridge.app import _ownership
from bridge.cluster.leases import CHANNEL, LeaseBook, Leases
from bridge.cluster.ownership import NotOwnedError, OwnedElsewhere, Owner, Ownership, holders
from bridge.config import Settings
from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.db.postgres import CONNECTIONS
from sprite.errors import FatalPeerError, StaleOwnerError
from sprite.gateway.connection import Leases as SpriteLeases
from sprite.protocol.replication import EPOCHS_AHEAD, Lease
from sprite.workspace.database import open_workspace
from tests.in_thread import PATIENCE
from tests.looks import eventually


@pytest.fixture
async def database(database_at: Path | str) -> AsyncIterator[Database]:
    async with open_database(database_at) as opened:
        yield opened


def died() -> None:
    raise AssertionError("a task died")


@asynccontextmanager
async def bridge(database: Database, name: str, book: LeaseBook | None = None) -> AsyncIterator[Leases]:
    async with Leases(database, f"http://{name}", died, owner=name, book=book) as leases:
        yield leases


async def expire(database: Database, sprite: str) -> None:
    """Expire the lease by the database's clock, as after a long absence of its owner."""
    await database.statement("UPDATE leases SET expires_at = db_now() - 1 WHERE sprite = ?", (sprite,))


async def row(database: Database, sprite: str) -> tuple[str, int, float]:
    rows = await database.statement(
        "SELECT owner, epoch, expires_at - db_now() AS left FROM leases WHERE sprite = ?", (sprite,)
    )
    return rows[0]["owner"], rows[0]["epoch"], rows[0]["left"]


async def expiry(database: Database, sprite: str) -> float:
    """Return the end of the lease by the database's clock."""
    rows = await database.statement("SELECT expires_at FROM leases WHERE sprite = ?", (sprite,))
    return float(rows[0]["expires_at"])


async def given_back(database: Database, sprite: str) -> None:
    """Wait until the lease is given back: the bridge's own beat may be doing so at this moment."""
    async with asyncio.timeout(PATIENCE):
        while await expiry(database, sprite) != 0:  # noqa: ASYNC110 - the server cannot set an event
            await asyncio.sleep(0.01)


async def test_lease_contender_learns_owners_address(database: Database) -> None:
    async with bridge(database, "a") as a, bridge(database, "b") as b:
        assert await a.own("ada") == Lease("a", 1)
        assert await a.own("ada") == Lease("a", 1)
        assert (a.holds("ada"), a.epoch("ada")) == (True, 1)
        held = await holders(database)
        assert {sprite: holder.address for sprite, holder in held.items()} == {"ada": "http://a"}
        with pytest.raises(OwnedElsewhere) as elsewhere:
            await b.own("ada")
        assert (elsewhere.value.address, elsewhere.value.epoch) == ("http://a", 1)
        assert (b.holds("ada"), b.epoch("ada")) == (False, None)
        assert await b.owner_of("ada") == Owner("http://a", 1)
        assert await a.owner_of("ada") is None
        assert await b.owner_of("nobody's") is None
        owner, epoch, left = await row(database, "ada")
        assert (owner, epoch) == ("a", 1)
        assert 0 < left <= 6


async def test_lease_epoch_rises_with_each_new_owner(database: Database) -> None:
    async with bridge(database, "a") as a, bridge(database, "b") as b:
        await a.own("ada")
        await expire(database, "ada")
        assert await b.own("ada") == Lease("b", 2)
        await expire(database, "ada")
        assert (await row(database, "ada"))[:2] == ("b", 2)
    async with bridge(database, "b") as again:
        assert await again.own("ada") == Lease("b", 2)


async def test_race_for_lease_has_one_winner(database: Database) -> None:
    async with bridge(database, "a") as a, bridge(database, "b") as b:
        winners = []

        async def tries(leases: Leases, sprite: str) -> bool:
            try:
                await leases.own(sprite)
            except OwnedElsewhere:
                return False
            return True

        for number in range(40):
            sprite = f"s{number}"
            won = await asyncio.gather(tries(a, sprite), tries(b, sprite))
            assert sum(won) == 1, sprite
            assert (a.holds(sprite), b.holds(sprite)) == tuple(won)
            winners.append(won.index(True))
    rows = await database.statement("SELECT count(*) AS count FROM leases WHERE epoch = 1")
    assert rows[0]["count"] == 40


async def test_lease_renewal_is_batched_and_reports_losses(database: Database) -> None:
    async with bridge(database, "a") as a, bridge(database, "b") as b:
        changed: list[str] = []
        for sprite in ("ada", "bob", "cyd"):
            await a.own(sprite)
        a.add_listener(changed.append)
        await expire(database, "bob")
        await b.own("bob")
        await expire(database, "cyd")
        before = await expiry(database, "ada")
        await a._beat()
        assert (a.holds("ada"), a.holds("bob"), a.holds("cyd")) == (True, False, False)
        assert {"bob", "cyd"} <= set(changed)
        assert "ada" not in changed
        assert await expiry(database, "ada") > before
        assert (await row(database, "bob"))[0] == "b"


async def test_paused_owner_loses_lease_and_cannot_retake(database: Database) -> None:
    pause = 0.0
    async with (
        bridge(database, "a", LeaseBook(lambda: pause)) as a,
        bridge(database, "b") as b,
    ):
        changed: list[str] = []
        await a.own("ada")
        await a.own("bob")
        a.add_listener(changed.append)
        pause = 20.0
        assert not a.holds("ada")
        await expire(database, "ada")
        await expire(database, "bob")
        assert await b.own("ada") == Lease("b", 2)
        with pytest.raises(OwnedElsewhere):
            await a.own("ada")
        assert await a.own("bob") == Lease("a", 1)


async def test_known_owner_is_cached_for_two_seconds(database: Database) -> None:
    later = 0.0
    async with bridge(database, "b", LeaseBook(lambda: later)) as b:
        # No notification is sent, as when it is lost.
        await database.statement("INSERT INTO leases VALUES ('ada', 'a', 'http://a', 1, db_now() + 60)")
        assert await b.owner_of("ada") == Owner("http://a", 1)
        await expire(database, "ada")
        later = 1.5
        assert await b.owner_of("ada") == Owner("http://a", 1)
        later = 2.5
        assert await b.owner_of("ada") is None


async def test_released_lease_is_available_at_once(database: Database) -> None:
    async with bridge(database, "b") as b:
        async with bridge(database, "a") as a:
            lost: list[str] = []
            await a.own("ada")
            await a.own("bob")
            a.add_listener(lost.append)
        assert sorted(lost) == ["ada", "bob"]
        assert not a.holds("ada")
        assert await b.own("ada") == Lease("b", 2)
        assert await b.owner_of("bob") is None


async def test_unused_lease_is_released_used_one_kept(database: Database) -> None:
    later = 0.0
    async with bridge(database, "a", LeaseBook(lambda: later)) as a:
        await a.own("ada")
        await a.own("bob")
        with a.using("bob"):
            later = 4.5
            await a._beat()
            await a._give_back(a._book.unused())
            assert (a.holds("ada"), a.holds("bob")) == (False, True)
            await given_back(database, "ada")
            assert (await row(database, "bob"))[2] > 0


async def test_refused_epoch_is_raised_by_owner_only(database: Database) -> None:
    """A sprite that knows a newer epoch makes its registered owner raise the epoch."""
    async with bridge(database, "a") as a, bridge(database, "b") as b:
        await a.own("ada")
        await a.refused("ada", 1)
        assert not a.holds("ada")
        raised = (await a.own("ada")).epoch
        assert raised > 1_000_000_000
        await a.refused("ada", raised)
        assert (await a.own("ada")).epoch == raised + 1
        # An old refusal does not affect the current lease.
        await a.refused("ada", 1)
        assert a.epoch("ada") == raised + 1
        await b.refused("ada", raised + 1)
        assert (await row(database, "ada"))[:2] == ("a", raised + 1)


async def test_bridge_recovers_from_forged_lease_epoch(database: Database, tmp_path: Path) -> None:
    async with bridge(database, "a") as a, open_workspace(tmp_path / "workspace.db") as workspace:
        sprite = SpriteLeases(workspace, None)
        lease = await a.own("ada")
        await sprite.enter(lease, print)
        # The holder of the sprite's token forges the largest epoch that the sprite accepts.
        for far in (2**63 - 1, 2**62, int(time.time()) + EPOCHS_AHEAD + 60):
            with pytest.raises(FatalPeerError, match="bridges count from 1"):
                await sprite.enter(Lease("thief", far), print)
        stolen = int(time.time()) + EPOCHS_AHEAD - 60
        await sprite.enter(Lease("thief", stolen), print)
        for _ in range(2):
            with pytest.raises(StaleOwnerError) as refused:
                await sprite.enter(await a.own("ada"), print)
            await a.refused("ada", lease.epoch, refused.value.newest)
            lease = await a.own("ada")
            assert lease.epoch == stolen + 1
            await sprite.enter(lease, print)
            # It also recovers after each restart.
            sprite = SpriteLeases(workspace, await workspace.lease())
            stolen = lease.epoch + 5
            await sprite.enter(Lease("thief", stolen), print)


async def test_forged_refusal_does_not_block_replacement_sprite(database: Database, tmp_path: Path) -> None:
    async with bridge(database, "a") as a, open_workspace(tmp_path / "workspace.db") as workspace:
        for said in (2**63 - 1, 10**300, -1):
            await a.refused("ada", (await a.own("ada")).epoch, said)
        await SpriteLeases(workspace, None, lambda: time.time() + 60).enter(await a.own("ada"), print)


async def test_impossible_stored_epoch_is_discarded(tmp_path: Path) -> None:
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        await workspace.keep_lease(Lease("thief", 2**63 - 1))
        await SpriteLeases(workspace, await workspace.lease()).enter(Lease("a", 7), print)
        assert await workspace.lease() == Lease("a", 7)
        # A machine whose clock is not set yet.
        await SpriteLeases(workspace, await workspace.lease(), lambda: 0.0).enter(Lease("b", int(time.time())), print)


async def test_newer_owner_notice_ends_lease_other_notices_ignored(database: Database) -> None:
    async with bridge(database, "a") as a:
        await a.own("ada")
        for text in ("ada:1", "ada:0", "ada:", "ada", ":", "ada:x", "ada:-5", f"ada:{'9' * 400}", "ada:²", "bob:9"):
            a.moved(text)
            assert a.holds("ada"), text
        a.moved("ada:2")
        assert not a.holds("ada")


#: Makes each heartbeat wait after its statement has begun, and before it reads any row.
STALLED_BEATS = """
CREATE FUNCTION stall() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF current_query() LIKE '%RETURNING sprite, epoch%' THEN PERFORM pg_advisory_xact_lock(1); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER stalled BEFORE UPDATE ON leases FOR EACH STATEMENT EXECUTE FUNCTION stall();
SELECT pg_advisory_lock(1);
"""


@pytest.mark.parametrize("chosen_server", ["postgres"], indirect=True)
@pytest.mark.parametrize("is_all", [True, False], ids=["all", "one"])
async def test_late_heartbeat_does_not_renew_released_lease(
    database_at: str, database: Database, *, is_all: bool
) -> None:
    """The heartbeat began earlier: by its clock, a lease that ends now has not ended."""

    async def until_stalled() -> None:
        waiting = "SELECT count(*) AS count FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        async with asyncio.timeout(PATIENCE):
            while (await database.statement(waiting))[0]["count"] == 0:  # noqa: ASYNC110 - the server cannot set an event
                await asyncio.sleep(0.01)

    async with bridge(database, "a") as a:
        await a.own("ada")
        with psycopg.connect(database_at, autocommit=True) as other:
            other.execute(STALLED_BEATS)
            beating = asyncio.create_task(a._beat())
            await until_stalled()
            if is_all:
                await a.give_all_back()
            else:
                a._book.drop("ada")
                await a._give_back(["ada"])
        await beating
        async with bridge(database, "b") as b:
            assert await b.own("ada") == Lease("b", 2)
        assert not a.holds("ada")


@pytest.mark.parametrize("chosen_server", ["postgres"], indirect=True)
async def test_only_owner_changes_are_announced(database: Database) -> None:
    told: list[str] = []

    async def listen() -> None:
        async for text in database.listen(CHANNEL):
            told.append(text)
            heard.set()

    async def until(last: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while last not in told:
                heard.clear()
                await database.statement("SELECT db_notify(?, ?)", (CHANNEL, last))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await heard.wait()

    heard = asyncio.Event()
    listening = asyncio.create_task(listen())
    try:
        await until("ready")
        async with bridge(database, "a") as a, bridge(database, "b") as b:
            await a.own("ada")
            await a._beat()
            await expire(database, "ada")
            await a._beat()
            await a.own("ada")
            # From here on, a heartbeat may also find that the lease is over.
            lost: asyncio.Queue[str] = asyncio.Queue()
            a.add_listener(lost.put_nowait)
            await expire(database, "ada")
            await b.own("bob")
            await b.own("ada")
            async with asyncio.timeout(PATIENCE):
                while await lost.get() != "ada":
                    pass
            assert not a.holds("ada")
        await until("end")
        assert [text for text in told if text not in {"ready", "end"}] == ["ada:1", "bob:1", "ada:2"]
    finally:
        listening.cancel()


async def test_database_outage_is_reported_and_leases_expire(tmp_path: Path) -> None:
    """No lease is held beyond its end by the local clock."""
    later = 0.0
    async with open_database(tmp_path / "bridge.db") as opened:
        book = LeaseBook(lambda: later)
        async with bridge(opened, "a", book) as a:
            await a.own("ada")
            await opened.statement("ALTER TABLE leases RENAME TO away")
            with pytest.raises(NotOwnedError, match="The database is unreachable"):
                await a.own("bob")
            assert not a.is_connected
            assert "Nothing is lost" in a.away
            assert a.holds("ada")
            later = 7.0
            assert not a.holds("ada")
            with pytest.raises(NotOwnedError, match="The database is unreachable"):
                await a.owner_of("ada")
            await opened.statement("ALTER TABLE away RENAME TO leases")
            assert await a.own("ada") == Lease("a", 1)
            assert (a.is_connected, a.away) == (True, "")


async def test_silent_database_is_reported_before_leases_expire(tmp_path: Path) -> None:
    go_on = threading.Event()
    async with open_database(tmp_path / "bridge.db") as opened, bridge(opened, "a") as a:
        await a.own("ada")
        stuck = asyncio.create_task(opened.write(lambda _: go_on.wait()))
        try:
            await eventually(lambda: bool(a.away), "the outage was not reported")
            assert "The database is unreachable" in a.away
        finally:
            go_on.set()
        await stuck
        await eventually(lambda: not a.away, "the end of the outage was not reported")


async def test_single_bridge_owns_everything_without_lease() -> None:
    alone = Ownership()
    assert await alone.own("ada") is None
    assert await alone.owner_of("ada") is None
    assert (alone.holds("ada"), alone.epoch("ada")) == (True, None)
    with alone.using("ada"):
        await alone.refused("ada", 1)
    assert alone.holds("ada")


async def test_bulk_release_keeps_leases_wanted_again(database: Database) -> None:
    later = 0.0
    async with bridge(database, "a", LeaseBook(lambda: later)) as a, bridge(database, "b") as b:
        for number in range(120):
            await a.own(f"s{number}")
        later = 4.5
        await a._beat()
        giving = asyncio.create_task(a._give_back(a._book.unused()), name="giving back")
        await asyncio.sleep(0)
        # During the release, a lease that is requested again stays.
        assert await a.own("s7") == Lease("a", 1)
        await giving
        assert a.holds("s7")
        with pytest.raises(OwnedElsewhere):
            await b.own("s7")
        assert not a.holds("s8")
        await given_back(database, "s119")
        assert await b.own("s119") == Lease("b", 2)


async def test_stopping_bridge_releases_all_and_acquires_none(database: Database) -> None:
    async with bridge(database, "a") as a, bridge(database, "b") as b:
        await a.own("ada")
        with a.using("ada"):
            await a.give_all_back()
            with pytest.raises(NotOwnedError, match="stopping"):
                await a.own("ada")
        assert await b.own("ada") == Lease("b", 2)


async def test_lease_operations_bypass_blocked_database_queue(postgres_url: str, tmp_path: Path) -> None:
    """Other queries of the bridge occupy every connection meanwhile."""
    settings, go_on = Settings(tmp_path, database_url=postgres_url), threading.Event()
    async with open_database(postgres_url) as database:
        try:
            waiting = [asyncio.create_task(database.read(lambda _: go_on.wait())) for _ in range(CONNECTIONS)]
            await asyncio.sleep(0)  # all of them are running
            async with (
                asyncio.timeout(PATIENCE),
                _ownership(settings, database, "http://here", died) as (ownership, due),
            ):
                assert (await ownership.own("ada")) is not None
                assert ownership.holds("ada")
                del due
                go_on.set()
        finally:
            go_on.set()
        await asyncio.gather(*waiting)
