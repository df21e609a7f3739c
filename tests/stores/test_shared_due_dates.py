"""Due dates in a shared database: one bridge serves each sprite, also after a kill."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bridge.cluster.leases import LeaseBook, Leases
from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.wakeups.waker import DueDate, DueDates, stored
from sprite.protocol.frames import ServerMessage
from sprite.protocol.messages import NextDue, ScheduleUpdate
from tests.looks import eventually


@pytest.fixture
async def database(database_at: Path | str) -> AsyncIterator[Database]:
    async with open_database(database_at) as opened:
        yield opened


def died() -> None:
    raise AssertionError("a task died")


@asynccontextmanager
async def bridge(database: Database, name: str) -> AsyncIterator[tuple[Leases, DueDates]]:
    # The clock stands still, so that no idle lease is released.
    async with (
        Leases(database, f"http://{name}", died, owner=name, book=LeaseBook(lambda: 0.0)) as leases,
        DueDates(database, died, leases) as due,
    ):
        yield leases, due


async def put(database: Database, sprite: str, at: float | None, *, is_open: bool = False) -> None:
    await database.statement("INSERT INTO waking VALUES (?, ?, 1, ?)", (sprite, at, int(is_open)))


async def killed_owner(database: Database, sprite: str, left: float) -> None:
    """Insert a lease whose owner died without releasing it."""
    values = (sprite, "gone", "http://gone", 4, left)
    await database.statement("INSERT INTO leases VALUES (?, ?, ?, ?, db_now() + ?)", values)


def says(at: float | None) -> ServerMessage:
    return ServerMessage("schedule_update", "", ScheduleUpdate(None if at is None else NextDue(7, at)))


async def test_lookup_lists_only_unowned_sprites_due_soon(database: Database) -> None:
    now = time.time()
    await put(database, "due", now - 5)
    await put(database, "soon", now + 5)
    await put(database, "tomorrow", now + 86_400)
    await put(database, "never", None)
    await put(database, "open", None, is_open=True)
    await put(database, "owned", now - 5)
    await killed_owner(database, "owned", 60)
    async with bridge(database, "a") as (_, due):
        await due._poll()
        assert set(due.dates) == {"due", "soon", "open"}
        assert due.left_open == {"open"}


async def test_killed_owners_sprite_passes_after_lease_end(database: Database) -> None:
    await put(database, "ada", time.time() - 5, is_open=True)
    await killed_owner(database, "ada", 60)
    async with bridge(database, "a") as (_, due):
        await due._poll()
        assert due.dates == {}
        await database.statement("UPDATE leases SET expires_at = db_now()")
        due.changed.clear()
        # By its own polls, every few seconds.
        await eventually(lambda: "ada" in due.dates, "the sprite was not found due")
        assert "ada" in due.left_open


async def test_owner_without_news_keeps_stored_due_date(database: Database) -> None:
    await put(database, "ada", 5e9)
    async with bridge(database, "a") as (leases, due):
        due.opened("ada")
        assert not due.rows.is_behind
        await leases.own("ada")
        await eventually(lambda: not due.rows.is_behind, "the due date was not stored")
        assert (await stored(database))["ada"] == DueDate(5e9, 1.0, is_open=True)
        due.closed("ada", at_rest=True)
        await eventually(lambda: not due.rows.is_behind, "the due date was not stored")
        assert (await stored(database))["ada"] == DueDate(5e9, 1.0, is_open=False)
        due.opened("ada")
        due.heard("ada", says(None))
        await eventually(lambda: not due.rows.is_behind, "the due date was not stored")
        found = (await stored(database))["ada"]
        assert (found.at, found.is_open) == (None, True)


async def test_bridge_without_lease_stops_writing_due_dates(database: Database) -> None:
    async with bridge(database, "a") as (leases, due):
        await leases.own("ada")
        due.opened("ada")
        due.heard("ada", says(5e9))
        await eventually(lambda: not due.rows.is_behind, "the due date was not stored")
        leases.moved("ada:2")
        assert "ada" not in due.dates
        due.heard("ada", says(6e9))
        due.closed("ada", at_rest=True)
        assert not due.rows.is_behind
        found = (await stored(database))["ada"]
        assert (found.at, found.is_open) == (5e9, True)


async def test_idle_sprite_of_stopped_bridge_stays_untouched(database: Database) -> None:
    async with bridge(database, "a") as (leases, due):
        await leases.own("ada")
        due.opened("ada")
        due.heard("ada", says(5e9))
        due.closed("ada", at_rest=True)
        await due.rows.flush()
        await leases.give_all_back()
        assert (await stored(database))["ada"].is_open is False
    async with bridge(database, "b") as (_, due):
        await due._poll()
        assert due.dates == {}
