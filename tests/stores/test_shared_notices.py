"""Notifications with several bridges on a Postgres: one bridge sends each, including those that another left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.notify.notifier import Notifier
from bridge.notify.rules import NotificationRules
from sprite.protocol.frames import ServerMessage
from sprite.protocol.shapes import ChatMessage
from tests.chat_stand_in import state_sync
from tests.in_thread import PATIENCE
from tests.looks import eventually

if TYPE_CHECKING:
    from bridge.notify.notice import Notice


class Pager:
    """A channel that records notices."""

    def __init__(self) -> None:
        self.titles: list[str] = []

    async def deliver(self, notice: Notice) -> None:
        self.titles.append(notice.title)


class Bridge:
    """One bridge's notification rules for Ada."""

    def __init__(self, notification_rules: NotificationRules, pager: Pager) -> None:
        self.notification_rules = notification_rules
        self.pager = pager

    def hear_state(self, *lines: ChatMessage) -> None:
        """Send the first state of a sprite to the bridge that takes it."""
        self.notification_rules.opened("ada")
        state = state_sync(chat=list(lines))
        self.notification_rules.heard("ada", ServerMessage(type="", id="", payload=state, timestamp=time.time() * 1000))


@asynccontextmanager
async def bridge(database: Database) -> AsyncIterator[Bridge]:
    async def yes(_: str) -> bool:
        return True

    pager = Pager()
    async with (
        Notifier(database, [pager], yes, yes, died, shared=True) as notifier,
        NotificationRules(database, notifier, died, shared=True) as notification_rules,
    ):
        yield Bridge(notification_rules, pager)


def died() -> None:
    raise AssertionError("a task died")


def ended(mission_id: str, at: float) -> ChatMessage:
    return ChatMessage(1, "assistant", f"What {mission_id} found", at, mission_id, "schedule", status="complete")


async def test_next_owner_continues_without_repeating_notices(postgres_url: str) -> None:
    now = time.time()
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(open_database(postgres_url)) for _ in range(2)]
        await first.statement("INSERT INTO told_until VALUES ('ada', ?)", (now - 1000,))
        here, there = [await stack.enter_async_context(bridge(database)) for database in (first, second)]
        lines = [ended(f"m{number}", now - 500 + 10 * number) for number in range(5)]
        here.hear_state(*lines)
        await eventually(lambda: len(here.pager.titles) == len(lines), "the notices did not arrive")
        marked = await _mark(first, lines[-1].at)
        assert marked >= lines[-1].at
        there.hear_state(*lines, ended("m9", now - 100))
        await eventually(lambda: there.pager.titles == ["What m9 found"], "the new event was not notified")
        assert len(here.pager.titles) == len(lines)


async def _mark(database: Database, at: float) -> float:
    """Return the stored delivery mark of Ada once it is that late."""
    async with asyncio.timeout(PATIENCE):
        while True:
            rows = await database.statement("SELECT at FROM told_until WHERE sprite = 'ada'")
            if rows[0]["at"] >= at:
                return float(rows[0]["at"])
            await asyncio.sleep(0.02)


async def test_notices_left_by_bridge_are_sent_once(postgres_url: str) -> None:
    now = time.time()
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(open_database(postgres_url)) for _ in range(2)]
        # One notice is claimed by a dead bridge, another by a bridge at this moment.
        for key, kept_at in (("left", now - 1000), ("in hand", now)):
            await first.statement(
                "INSERT INTO notices (sprite, key, kind, title, body, at, is_told, kept_at) "
                "VALUES ('ada', ?, 'ended', ?, '', ?, 0, ?)",
                (key, key, now - 1000, kept_at),
            )
        both = await asyncio.gather(*(stack.enter_async_context(bridge(database)) for database in (first, second)))
        await eventually(lambda: any(each.pager.titles for each in both), "the remaining notice did not arrive")
        # It is marked as sent once every channel has it.
        async with asyncio.timeout(PATIENCE):
            while (await first.statement("SELECT count(*) AS n FROM notices WHERE is_told = 0"))[0]["n"] > 1:  # noqa: ASYNC110 - another connection notes it
                await asyncio.sleep(0.02)
        assert [title for each in both for title in each.pager.titles] == ["left"]
