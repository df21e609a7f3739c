"""Notifications for a person without an open page: background endings, pending questions and exhausted budgets.

Each is sent once, rate-limited, and also covers events while no bridge ran.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.notify import notice as wording
from bridge.notify.notice import Notice
from bridge.notify.notifier import AT_ONCE, Notifier
from bridge.notify.rules import NotificationRules
from bridge.proxy.accounts import Accounts
from bridge.proxy.budgets import BudgetError, Limits
from sprite.agent.rules import row_of
from sprite.protocol.events import Complete, Failed, Interrupted, Started
from sprite.protocol.frames import ServerMessage
from sprite.protocol.messages import (
    CHAT_LIMIT,
    Error,
    PermissionRequest,
    PermissionResolved,
    RuleOffered,
    Running,
    SessionUpdate,
)
from sprite.protocol.shapes import ChatMessage, Paused, SessionState
from tests.accounts import let_in, settled
from tests.chat_stand_in import state_sync
from tests.in_thread import PATIENCE
from tests.looks import eventually

if TYPE_CHECKING:
    from sprite.protocol.messages import ServerPayload
    from sprite.protocol.shapes import MissionStatus, Origin


@dataclass
class Pager:
    """A channel that records notices; it blocks until `flows`."""

    notices: list[Notice] = field(default_factory=list)
    is_broken: bool = False
    flows: asyncio.Event = field(default_factory=asyncio.Event)

    async def deliver(self, notice: Notice) -> None:
        await self.flows.wait()
        if self.is_broken:
            raise RuntimeError("a fault of the channel's")
        self.notices.append(notice)

    @property
    def titles(self) -> list[str]:
        return [notice.title for notice in self.notices]


class Desk:
    """A bridge's notification rules with one channel."""

    def __init__(self, notification_rules: NotificationRules, notifier: Notifier, pager: Pager) -> None:
        self.notification_rules = notification_rules
        self.notifier = notifier
        self.pager = pager

    def hear(self, *payloads: ServerPayload, sprite: str = "ada", at: float | None = None) -> None:
        for payload in payloads:
            stamp = (time.time() if at is None else at) * 1000
            self.notification_rules.heard(sprite, ServerMessage(type="", id="", payload=payload, timestamp=stamp))

    async def told(self, count: int) -> list[Notice]:
        """Wait for the given number of notices, then use one more to prove that no others came."""
        last = f"sentinel-{uuid.uuid4()}"
        self.notification_rules.budget_ended(last, "")
        await eventually(lambda: last in [n.person for n in self.pager.notices], "no more notices arrived")
        await eventually(lambda: len(self.pager.notices) > count, f"{count} notices: {self.pager.titles}")
        found = [notice for notice in self.pager.notices if not notice.person.startswith("sentinel")]
        assert len(found) == count, [notice.title for notice in found]
        return found


@asynccontextmanager
async def desk(
    database: Database,
    *,
    may_come: bool = True,
    words: bool = True,
    stuck: bool = False,
) -> AsyncIterator[Desk]:
    async def wants_words(_: str) -> bool:
        return words

    async def may(_: str) -> bool:
        return may_come

    pager = Pager()
    if not stuck:
        pager.flows.set()
    channels = [Pager(is_broken=True, flows=pager.flows), pager]
    notifier = Notifier(database, channels, wants_words, may, died)
    async with notifier, NotificationRules(database, notifier, died) as notification_rules:
        yield Desk(notification_rules, notifier, pager)


async def rows_are(database: Database, sql: str, wanted: list[Any]) -> None:
    """Wait until the first column has these values."""
    found: list[Any] = []
    async with asyncio.timeout(PATIENCE):
        while found != wanted:
            found = await database.read(lambda db: [row[0] for row in db.execute(sql).fetchall()])
            await asyncio.sleep(0.01)


def died() -> None:
    raise AssertionError("a task died")


@pytest.fixture
async def database(database_at: Path | str) -> AsyncIterator[Database]:
    async with open_database(database_at) as database:
        yield database


def done(mission_id: str, text: str = "Two things are left.") -> Complete:
    return Complete(mission_id, text=text, usage=None, cost_usd=None, duration_ms=1)


def question(request_id: str = "q1", tool: str = "Bash", **tool_input: Any) -> PermissionRequest:
    return PermissionRequest(request_id, "m1", tool, tool_input or {"command": "make install"})


def line(mission_id: str, at: float, origin: Origin = "schedule", status: MissionStatus = "complete") -> ChatMessage:
    return ChatMessage(1, "assistant", f"What {mission_id} found", at, mission_id, origin, status=status)


async def test_background_turn_end_notifies_but_persons_does_not(database: Database) -> None:
    async with desk(database) as at:
        at.hear(Started("m1", "schedule"), done("m1", "## Your **open** actions\n- milk\n- bread"))
        at.hear(Started("m2", "agent"), Failed("m2", "crashed", "It broke off.", retryable=True))
        at.hear(Started("m3", "schedule"), Failed("m3", "model", "No model answers.", retryable=True))
        at.hear(Started("m4", "person"), done("m4"))
        at.hear(Started("m5", "agent"), Interrupted("m5"))
        at.hear(done("m6"))
        notices = {notice.key: notice for notice in await at.told(3)}
        assert {(n.kind, n.person, n.sprite, n.request_id) for n in notices.values()} == {("ended", "ada", "ada", None)}
        assert (notices["m1"].title, notices["m1"].body) == ("Your open actions", "- milk - bread")
        assert notices["m2"].body == "It broke off."
        assert notices["m3"].title == "A scheduled message failed"


async def test_open_page_defers_question_notice_until_closed(database: Database) -> None:
    async with desk(database) as at:
        at.notification_rules.arrived("ada")
        at.hear(
            Started("m1", "schedule"), done("m1"), question("q1"), question("q2"), PermissionResolved("q1", "allow")
        )
        at.notification_rules.budget_ended("ada", "The day's budget is used up.")
        await at.told(0)
        at.notification_rules.left("ada")
        await eventually(lambda: len(at.pager.notices) > 1, "the question was not notified")
        notice = at.pager.notices[-1]
        assert (notice.kind, notice.key, notice.request_id) == ("permission", "q2", "q2")
        assert (notice.title, notice.body) == ("May Sprite run a command?", "make install")
        # The state at the start of the next connection repeats no notice.
        at.hear(state_sync(permissions=[question("q2")], chat=[line("m1", time.time())]))
        at.notification_rules.arrived("ada")
        at.notification_rules.left("ada")
        at.notification_rules.budget_ended("second sentinel", "")
        await eventually(lambda: "second sentinel" in [n.person for n in at.pager.notices], "no more notices arrived")
        assert [n.key for n in at.pager.notices if n.person == "ada"] == ["q2"]


async def test_repeated_event_notifies_once_across_bridges(database: Database) -> None:
    ended: list[ServerPayload] = [Started("m1", "schedule"), done("m1")]
    async with desk(database) as at:
        at.hear(*ended, question("q1"), *ended, question("q1"))
        at.hear(state_sync(permissions=[question("q1")], chat=[line("m1", time.time())]))
        await at.told(2)
        # A bridge that ends before it has noted a delivery repeats it.
        await rows_are(database, "SELECT is_told FROM notices WHERE kind <> 'budget'", [1, 1])
    async with desk(database) as at:
        at.hear(state_sync(permissions=[question("q1")], chat=[line("m1", time.time() + 5)]), *ended)
        await at.told(0)


async def test_ending_without_bridge_notifies_later(database: Database) -> None:
    now = time.time()
    async with desk(database) as at:
        # A sprite's past is not news when a bridge first connects to it.
        at.hear(state_sync(chat=[line("old", now - 100)]))
        await at.told(0)
    async with desk(database) as at:
        lines = [
            line("old", now - 100),
            line("m1", now + 10),
            line("m2", now + 11, origin="person"),
            line("m3", now + 12, status="running"),
        ]
        at.hear(state_sync(chat=lines))
        assert [notice.key for notice in await at.told(1)] == ["m1"]


async def test_lines_beyond_those_of_a_state_are_not_read(database: Database) -> None:
    """A compromised sprite may send any number; each costs the bridge's loop some time."""
    async with desk(database) as at:
        at.hear(state_sync())
        now = time.time() + 10
        at.hear(state_sync(chat=[line(f"m{number}", now + number) for number in range(CHAT_LIMIT + 1)]))
        assert [at.notifier.knows("ada", key) for key in ("m0", "m1", f"m{CHAT_LIMIT}")] == [False, True, True]


async def test_turn_running_at_connect_notifies_when_it_ends(database: Database) -> None:
    async with desk(database) as at:
        at.hear(state_sync(running=Running("m1", [Started("m1", "schedule")], "")), done("m1"))
        assert [notice.key for notice in await at.told(1)] == ["m1"]


async def test_undelivered_notices_pass_to_next_bridge(database: Database) -> None:
    """Their text is stored only until they are delivered."""
    async with desk(database, stuck=True) as at:
        at.hear(Started("m1", "schedule"), done("m1", "planted words"))
        await rows_are(database, "SELECT title FROM notices", ["planted words"])
    async with desk(database) as at:
        (notice,) = await at.told(1)
        assert (notice.key, notice.title) == ("m1", "planted words")
        await rows_are(database, "SELECT title FROM notices", ["", ""])
    async with desk(database) as at:
        at.notification_rules.budget_ended("other", "")
        await eventually(lambda: [n.person for n in at.pager.notices] == ["other"], "an old event was notified")


async def test_forget_removes_texts_of_queued_notices(database: Database) -> None:
    notices = [
        Notice(key, "ended", sprite, sprite, "About tea", "Tea.", time.time())
        for sprite, key in (("ada", "m1"), ("bo", "m2"))
    ]
    async with desk(database) as here:
        for notice in notices:
            here.notifier.tell(notice)
        await here.notifier.forget("ada")
        here.pager.flows.set()
        await eventually(lambda: len(here.pager.notices) == len(notices), "both notices")
        assert here.pager.titles == [wording.SHORT_TITLE, "About tea"]
        assert here.pager.notices[0].body == ""


async def test_person_without_text_consent_has_none_stored(database: Database) -> None:
    async with desk(database, words=False, stuck=True) as at:
        at.hear(Started("m1", "schedule"), done("m1", "planted words"))
        await rows_are(database, "SELECT title || body FROM notices", [""])


async def test_endless_endings_become_few_notices(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.notify.notifier._PER_SECOND", 1e-6)
    async with desk(database) as at:
        for number in range(1_000):
            at.hear(Started(f"m{number}", "agent"), done(f"m{number}"), question(f"q{number}"))
        found = await at.told(AT_ONCE)
        assert len({notice.key for notice in found}) == AT_ONCE
        rows = await database.read(lambda db: db.execute("SELECT * FROM notices WHERE sprite = 'ada'").fetchall())
        assert len(rows) == AT_ONCE


async def test_opening_page_cancels_pending_notices(database: Database) -> None:
    async with desk(database) as at:
        at.hear(Started("m1", "schedule"), done("m1"))
        at.notification_rules.arrived("ada")
        await at.told(0)


async def test_answered_question_does_not_notify(database: Database) -> None:
    async with desk(database) as at:
        at.hear(question("q1"), PermissionResolved("q1", "allow"))
        await at.told(0)


async def test_revoked_person_is_not_notified(database: Database) -> None:
    async with desk(database, may_come=False) as at:
        at.hear(Started("m1", "schedule"), done("m1"))
        await rows_are(database, "SELECT is_told FROM notices", [1])
        assert at.pager.notices == []


async def test_exhausted_budget_notifies_daily_with_refusal_text(database: Database) -> None:
    async with (
        desk(database) as at,
        Accounts(database, Limits(daily_usd=1.0), at.notification_rules.budget_ended) as money,
    ):
        call = await let_in(money, 0.9, 0.5)
        for usd in (None, 1.0):
            if usd is not None:
                money.settle(settled(call, usd))
                await money.flush()
            for _ in range(3):
                with pytest.raises(BudgetError):
                    await let_in(money, 0.9, 0.2)
        (notice,) = await at.told(1)
        assert notice.kind == "budget"
        assert "The day's budget of $1.00 is used up" in notice.body
        assert notice.raises


async def test_exhausted_month_offers_no_raise(database: Database) -> None:
    async with (
        desk(database) as at,
        Accounts(database, Limits(monthly_usd=1.0), at.notification_rules.budget_ended) as money,
    ):
        with pytest.raises(BudgetError):
            await let_in(money, 1.5, 1.2)
        (notice,) = await at.told(1)
        assert "The month's budget of $1.00 is used up" in notice.body
        assert not notice.raises


async def test_budget_thresholds_notify_once_each(database: Database) -> None:
    async with desk(database) as at, Accounts(database, Limits(daily_usd=1.0)) as money:
        money.warnings.listeners.append(at.notification_rules.budget_nears)
        for _ in range(4):
            money.settle(settled(await let_in(money, 0.25), 0.25))
            await money.flush()
        notices = await at.told(2)
        assert [notice.kind for notice in notices] == ["budget", "budget"]
        assert ["50%" in notices[0].body, "80%" in notices[1].body] == [True, True]


async def test_paused_agent_notifies_once_with_reason(database: Database) -> None:
    session = SessionState("s", 1.0, 1, None, 0, paused=Paused("Five turns in a row.", "turns", time.time()))
    spent = SessionState("s", 1.0, 1, None, 0, paused=Paused("No money.", "budget", time.time()))
    async with desk(database) as at:
        at.hear(SessionUpdate(session), SessionUpdate(session), state_sync(session=session), SessionUpdate(spent))
        (notice,) = await at.told(1)
        assert (notice.kind, notice.body) == ("paused", "Five turns in a row.")


async def test_offered_rule_notifies_once(database: Database) -> None:
    rule = row_of('stop when command "shred": Shred nothing.')
    accepted = msgspec.structs.replace(rule, id=2, status="active")
    async with desk(database) as at:
        at.hear(RuleOffered(accepted), RuleOffered(rule), RuleOffered(rule))
        (notice,) = await at.told(1)
        assert (notice.kind, notice.title, notice.body) == ("rule", "Make it a rule?", "Shred nothing.")
        at.notification_rules.arrived("ada")
        at.hear(RuleOffered(msgspec.structs.replace(rule, id=3)))
        assert len(await at.told(1)) == 1


async def test_exhausted_budget_notifies_through_one_bridge(database: Database) -> None:
    async with desk(database) as one, desk(database) as other:
        for at in (one, other, one):
            at.notification_rules.budget_ended("ada", "The day's budget is used up.")
        for at in (one, other):
            last = f"sentinel-{at is one}"
            at.notification_rules.budget_ended(last, "")
            await eventually(lambda: last in [n.person for n in at.pager.notices], "no more notices arrived")  # noqa: B023 - run at once
        told = [notice.person for at in (one, other) for notice in at.pager.notices]
        assert told.count("ada") == 1


async def test_budget_report_by_sprite_notifies_once(database: Database) -> None:
    words = "Action 7 waits until tomorrow: schedules have used their part of the day's budget."
    async with desk(database) as at:
        at.hear(Error("schedule_budget", words), Error("schedule_budget", "Action 8 waits."), Error("busy", "Later."))
        at.hear(Started("m1", "schedule"), Failed("m1", "budget_used_up", "The budget is used up.", retryable=True))
        (notice,) = await at.told(1)
        assert (notice.kind, notice.body) == ("budget", words)


async def test_nonsense_becomes_short_plain_text(database: Database) -> None:
    steering = "\x1b[2J\u202e\r\n" + "x" * 1_000_000
    async with desk(database) as at:
        at.hear(question("q1", tool=steering, command=steering))
        at.hear(question("x" * 1_000_000))
        at.hear(Started("", "agent"), done(""), Started("y" * 100_000, "agent"), done("y" * 100_000))
        at.hear(Started("m1", "agent"), done("m1", steering), at=float("inf"))
        at.hear(Started("m2", "agent"), done("m2", "  \n "), at=-1e300)
        for notice in await at.told(3):
            assert notice.title.isprintable()
            assert len(notice.title) <= 100
            assert len(notice.body) <= 400
            assert notice.title


def test_reply_first_line_becomes_title() -> None:
    assert wording.of_reply("# *Done*\n\nAll of `it`.") == ("Done", "All of `it`.")
    assert wording.of_reply("") == ("Sprite did something by itself", "")
    assert wording.of_question("mcp__x__add_row", {"n": 1}) == ("May Sprite use add row?", "")
    assert len(wording.line("wörter " * 100, 50)) <= 50
