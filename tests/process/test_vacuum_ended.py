"""A canceled VACUUM in Postgres: the forget stays pending, and nothing else is delayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from bridge.db.open import open_database
from bridge.proxy.budgets import Limits
from bridge.replicas import tables as shelves
from bridge.replicas.keys import fixed_keys
from bridge.replicas.replicator import standing
from bridge.replicas.store import StoreError
from tests.accounts import accounts, let_in
from tests.harness import PATIENCE
from tests.process.test_follower import SPRITE, Followed, followed, ship
from tests.shipments import TURNS, append, new_keys, shipped, turn, words

_VACUUMS = "FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE 'VACUUM%'"
_CANCEL = f"SELECT pg_cancel_backend(pid) {_VACUUMS}"


@asynccontextmanager
async def no_vacuum(url: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Hold a lock that blocks only VACUUM, within the block. Yield an operator's connection."""
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as operator,
        await psycopg.AsyncConnection.connect(url) as holder,
    ):
        await holder.execute("LOCK TABLE stored_rows IN SHARE UPDATE EXCLUSIVE MODE")
        yield operator


async def until_found(connection: psycopg.AsyncConnection[Any], sql: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await (await connection.execute(sql.encode())).fetchall():  # noqa: ASYNC110 - a database has no events
            await asyncio.sleep(0.02)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await is_so():  # noqa: ASYNC110 - a database has no events
            await asyncio.sleep(0.02)


async def said(it: Followed, what: str) -> bool:
    return what in await it.trouble()


async def has(it: Followed, turns: list[str]) -> bool:
    return await words(it.store, SPRITE) == turns


async def is_wiped(it: Followed) -> bool:
    return not await it.store.wipe_is_due(SPRITE)


@pytest.mark.parametrize("ended_by", ["user request", "statement timeout"])
async def test_forget_waits_for_successful_vacuum(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, ended_by: str
) -> None:
    """Replication, other sprites and budgets continue meanwhile."""
    if ended_by == "statement timeout":
        monkeypatch.setattr(shelves, "_VACUUM_SECONDS", 0.2)
    async with followed(postgres_url) as it:
        visitor, _ = await it.asked()
        await ship(visitor, shipped(turn(1, "SECRET", 1), whole=True))
        assert await it.trouble() == ""
        async with no_vacuum(postgres_url) as operator:
            forget = ("tombstones", 1, {"rows": {TURNS: [1]}}, 3)
            await visitor.send(shipped(turn(1, "[forgotten]", 2), forget, whole=True))
            if ended_by == "user request":
                await until_found(operator, _CANCEL)
            await until(lambda: said(it, f"canceling statement due to {ended_by}"))
            status = await it.standing()
            assert status.trouble.startswith("forgotten data may still be on the database's disk; wiping it is retried")
            assert status.behind
            # A bridge without this sprite, or a command, reports it too.
            assert (await standing(it.store, SPRITE)).trouble.startswith("forgotten data may still be")
            # The VACUUM is retried, and blocked again.
            await until_found(operator, f"SELECT 1 {_VACUUMS}")
            # New rows of this sprite, other sprites and budgets are not blocked.
            await visitor.send(shipped(turn(2, "later", 4), whole=True))
            await until(lambda: has(it, ["[forgotten]", "later"]))
            await append(it.store, "bob", shipped(turn(1, "of bob", 1), whole=True))
            assert (await standing(it.store, "bob")).behind == 0
            async with accounts(postgres_url, Limits(1.0, 1.0)) as money:
                await let_in(money, 0.5)
            if ended_by == "statement timeout":
                monkeypatch.setattr(shelves, "_VACUUM_SECONDS", PATIENCE)
        # The forget was not acknowledged before; the first acknowledgment includes it.
        assert (await visitor.receive("ship_ack"))["payload"]["through"] == 4
        assert not await it.store.wipe_is_due(SPRITE)
        assert (await it.standing()).behind == 0
        assert await it.trouble() == ""


async def test_next_bridge_vacuums_after_interrupted_forget(postgres_url: str) -> None:
    keys = fixed_keys(new_keys())
    async with open_database(postgres_url):
        pass
    async with no_vacuum(postgres_url) as operator, followed(postgres_url, keys=keys) as it:
        visitor, _ = await it.asked()
        await visitor.send(shipped(turn(1, "one", 1), whole=True))
        await visitor.receive("ship_ack")
        await visitor.send(shipped(("tombstones", 1, {"rows": {TURNS: [1]}}, 2), whole=True))
        await until_found(operator, f"SELECT 1 {_VACUUMS}")
    async with followed(postgres_url, keys=keys) as it:
        assert (await standing(it.store, SPRITE)).trouble.startswith("forgotten data may still be")
        visitor, asked = await it.asked()
        assert asked["payload"]["after"] == 2
        await until(lambda: is_wiped(it))
        assert await ship(visitor, shipped(through=2, whole=True)) == 2
        assert await it.trouble() == ""


async def test_delete_without_vacuum_raises_store_error(postgres_url: str) -> None:
    async with followed(postgres_url) as it, no_vacuum(postgres_url) as operator:
        await append(it.store, "bob", shipped(turn(1, "of bob", 1), whole=True))
        deleting = asyncio.create_task(it.store.delete("bob"))
        await until_found(operator, _CANCEL)
        with pytest.raises(StoreError, match=r"The replica of bob is deleted.*VACUUM is run there"):
            await deleting
        assert await it.store.sprites() == []
