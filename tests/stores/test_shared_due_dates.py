"""What is due where several bridges share the database: each sprite is looked after by one, also after a kill."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bridge.cluster.leases import LeaseBook, Leases
from bridge.db.open import Database, open_database
from bridge.wakeups.due_dates import DueDate, SharedDueDates, stored
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
async def bridge(database: Database, name: str) -> AsyncIterator[tuple[Leases, SharedDueDates]]:
    # By a clock that stands still nothing is given back because nobody has used it for some seconds.
    async with (
        Leases(database, f"http://{name}", died, owner=name, book=LeaseBook(lambda: 0.0)) as leases,
        SharedDueDates(database, leases, died) as due,
    ):
        yield leases, due


async def put(database: Database, sprite: str, at: float | None, *, is_open: bool = False) -> None:
    await database.statement("INSERT INTO waking VALUES (?, ?, 7, 1, ?)", (sprite, at, int(is_open)))


async def killed_owner(database: Database, sprite: str, left: float) -> None:
    """A lease whose owner is gone without having given it back."""
    values = (sprite, "gone", "http://gone", 4, left)
    await database.statement("INSERT INTO leases VALUES (?, ?, ?, ?, db_now() + ?)", values)


def says(at: float | None) -> ServerMessage:
    return ServerMessage("schedule_update", "", ScheduleUpdate(None if at is None else NextDue(7, at)))


async def test_only_what_is_due_soon_and_has_no_owner_is_known_of_others(database: Database) -> None:
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
        assert set(due.dates()) == {"due", "soon", "open"}
        assert due.take_left_open() == {"open"}
        assert due.take_left_open() == set()


async def test_what_a_killed_owner_left_is_anothers_once_the_lease_has_ended(database: Database) -> None:
    await put(database, "ada", time.time() - 5, is_open=True)
    await killed_owner(database, "ada", 60)
    async with bridge(database, "a") as (_, due):
        await due._poll()
        assert due.dates() == {}
        await database.statement("UPDATE leases SET expires_at = db_now()")
        due.changed.clear()
        # By its own polls, every few seconds.
        await eventually(lambda: "ada" in due.dates(), "the sprite is known to be due")
        assert "ada" in due.take_left_open()


async def test_an_owner_that_has_not_heard_its_sprite_keeps_the_date_that_is_there(database: Database) -> None:
    await put(database, "ada", 5e9)
    async with bridge(database, "a") as (leases, due):
        due.opened("ada")
        assert not due.is_behind
        await leases.own("ada")
        await eventually(lambda: not due.is_behind, "it is written")
        assert (await stored(database))["ada"] == DueDate(5e9, 7, 1.0, is_open=True)
        due.closed("ada", at_rest=True)
        await eventually(lambda: not due.is_behind, "it is written")
        assert (await stored(database))["ada"] == DueDate(5e9, 7, 1.0, is_open=False)
        due.opened("ada")
        due.heard("ada", says(None))
        await eventually(lambda: not due.is_behind, "it is written")
        found = (await stored(database))["ada"]
        assert (found.at, found.is_open) == (None, True)


async def test_a_bridge_that_lost_a_sprite_writes_nothing_more_about_it(database: Database) -> None:
    async with bridge(database, "a") as (leases, due):
        await leases.own("ada")
        due.opened("ada")
        due.heard("ada", says(5e9))
        await eventually(lambda: not due.is_behind, "it is written")
        leases.moved("ada:2")
        assert "ada" not in due.dates()
        due.heard("ada", says(6e9))
        due.closed("ada", at_rest=True)
        assert not due.is_behind
        found = (await stored(database))["ada"]
        assert (found.at, found.is_open) == (5e9, True)


async def test_what_was_at_rest_when_its_bridge_ended_is_looked_at_by_nobody(database: Database) -> None:
    async with bridge(database, "a") as (leases, due):
        await leases.own("ada")
        due.opened("ada")
        due.heard("ada", says(5e9))
        due.closed("ada", at_rest=True)
        await due.flush()
        await leases.give_all_back()
        assert (await stored(database))["ada"].is_open is False
    async with bridge(database, "b") as (_, due):
        await due._poll()
        assert due.dates() == {}
