"""Rules for notifying people without an open page, from events of their sprite and the bridge's budgets.

As an Observer this code never waits and keeps a bounded part of a sprite's messages. Turns that ended while the bridge
was not connected are found in the sprite's next state: those after the mark in the table `told_until`.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bridge.db.database import Database, DatabaseError, WriteBehind
from bridge.hub.room import Observer
from bridge.notify import notice as wording
from bridge.notify.notice import Notice, NoticeKind, is_seen_whole
from bridge.notify.notifier import Notifier
from sprite.common.tasks import Service, TaskSet
from sprite.protocol.events import Complete, Ending, Failed, Started
from sprite.protocol.frames import ServerMessage
from sprite.protocol.messages import (
    CHAT_LIMIT,
    Error,
    PermissionRequest,
    PermissionResolved,
    RuleOffered,
    SessionUpdate,
    StateSync,
)
from sprite.protocol.shapes import ChatMessage, Origin, RuleRow, SessionState

log = logging.getLogger(__name__)

#: Bounds for each sprite; further turns or questions are not tracked.
_MOST_TURNS, _MOST_QUESTIONS = 32, 32
#: A state and the messages after it, while the database is slow to answer.
_MOST_HELD_BACK = 1000
_LONGEST_ID = 200
#: The sprite's error codes: a turn ended because the budget is used up, or schedules have used their part.
_ENDED_BY_BUDGET, _SCHEDULES_BUDGET = "budget_used_up", "schedule_budget"
#: Events older than this are not news; a sprite's clock may be ahead by this much.
_NEWS_SECONDS, _AHEAD_SECONDS = 24 * 3600.0, 3600.0
#: A turn's chat line may be written a moment after its ending was sent.
_SAME_MOMENT_SECONDS = 1.0

_MARK = "INSERT INTO told_until VALUES (?, ?) ON CONFLICT (sprite) DO UPDATE SET at = excluded.at"


@dataclass(slots=True)
class _Sprite:
    """Known state of a sprite: its background turns, open questions, and the time up to which events were reported."""

    turns: dict[str, Origin] = field(default_factory=dict)
    questions: dict[str, Notice] = field(default_factory=dict)
    told_until: float | None = None
    is_watched: bool = False


class NotificationRules(Service, Observer):
    """Decide what to notify people of: `async with NotificationRules(database, notifier, on_death)`; an Observer."""

    def __init__(
        self, database: Database, notifier: Notifier, on_death: Callable[[], None], *, shared: bool = False
    ) -> None:
        self._database = database
        self._shared = shared
        #: Messages of a sprite that arrive while its mark is read again, because another bridge may have moved it.
        self._held_back: dict[str, deque[ServerMessage]] = {}
        self._reading = TaskSet()
        self._notifier = notifier
        self._sprites: dict[str, _Sprite] = {}
        self._marks = WriteBehind(database, _MARK, "marks of what was told", on_death)

    async def _open(self, stack: AsyncExitStack) -> None:
        rows = await self._database.read(lambda db: db.execute("SELECT * FROM told_until").fetchall())
        self._sprites = {row["sprite"]: _Sprite(told_until=row["at"]) for row in rows}
        await stack.enter_async_context(self._marks)
        await stack.enter_async_context(self._reading)

    def budget_nears(self, sprite: str, words: str) -> None:
        """Notify the person that a part of the day's budget is spent; once for each part and limit."""
        day = datetime.fromtimestamp(time.time(), UTC).date()
        part = words.partition(" (")[0]
        self._tell(sprite, f"budget-{day}-{part}", "budget", ("The budget is being used up", words), time.time())

    def budget_ended(self, sprite: str, words: str, can_raise: bool = False) -> None:
        """Notify the person that a budget is used up and something was refused or waits; once a day."""
        day = datetime.fromtimestamp(time.time(), UTC).date()
        title = "The budget is used up"
        self._tell(sprite, f"budget-{day}", "budget", (title, words), time.time(), raises=can_raise)

    # --- what the relay tells ---

    def opened(self, sprite: str) -> None:
        """Read which events were reported already: another bridge may have had this sprite meanwhile."""
        if self._shared and sprite not in self._held_back:
            self._held_back[sprite] = deque(maxlen=_MOST_HELD_BACK)
            self._reading.start(self._catch_up(sprite), "mark of what was told")

    async def _catch_up(self, sprite: str) -> None:
        try:
            rows = await self._database.statement("SELECT at FROM told_until WHERE sprite = ?", (sprite,))
            known = self._of(sprite)
            own = () if known.told_until is None else (known.told_until,)
            known.told_until = max((*own, *(row["at"] for row in rows)), default=None)
        except DatabaseError as error:
            log.warning(
                "the time of the last report to a person cannot be read (%s)", error.code, extra={"sprite": sprite}
            )
        finally:
            for message in self._held_back.pop(sprite):
                self.heard(sprite, message)

    def arrived(self, sprite: str) -> None:
        """Withdraw pending notifications, because the person sees the events in the page."""
        self._of(sprite).is_watched = True
        self._notifier.withdraw(sprite)

    def left(self, sprite: str) -> None:
        """Notify the person of questions that are still open, because no page shows them now."""
        known = self._of(sprite)
        known.is_watched = False
        for notice in known.questions.values():
            self._notifier.tell(notice)

    def heard(self, sprite: str, message: ServerMessage) -> None:
        """Apply the rules to a message of the sprite."""
        if (held_back := self._held_back.get(sprite)) is not None:
            held_back.append(message)
            return
        payload = message.payload
        if isinstance(payload, Started):
            self._began(sprite, payload)
        elif isinstance(payload, Ending):
            self._ended(sprite, payload, min(max(message.timestamp / 1000, 0.0), time.time() + _AHEAD_SECONDS))
        elif isinstance(payload, PermissionRequest):
            self._asked(sprite, payload)
        elif isinstance(payload, PermissionResolved):
            self._answered(sprite, payload.request_id)
        elif isinstance(payload, SessionUpdate):
            self._paused(sprite, payload.session)
        elif isinstance(payload, Error) and message.reply_to is None and payload.code == _SCHEDULES_BUDGET:
            self.budget_ended(sprite, wording.line(payload.message))
        elif isinstance(payload, RuleOffered):
            self._offered(sprite, payload.rule)
        elif isinstance(payload, StateSync):
            self._state(sprite, payload)

    def _of(self, sprite: str) -> _Sprite:
        return self._sprites.setdefault(sprite, _Sprite())

    def _began(self, sprite: str, event: Started) -> None:
        turns = self._of(sprite).turns
        if event.origin != "person" and event.mission_id and len(event.mission_id) <= _LONGEST_ID:
            turns[event.mission_id] = event.origin
            if len(turns) > _MOST_TURNS:
                del turns[next(iter(turns))]

    def _ended(self, sprite: str, event: Ending, at: float) -> None:
        origin = self._of(sprite).turns.pop(event.mission_id or "", None)
        if origin is None or event.mission_id is None:
            return
        if isinstance(event, Complete):
            self._tell(sprite, event.mission_id, "ended", wording.of_reply(event.text), at)
        elif isinstance(event, Failed) and event.code == _ENDED_BY_BUDGET:
            self.budget_ended(sprite, wording.line(event.message))
        elif isinstance(event, Failed):
            words = wording.of_failure(event.message, by_schedule=origin == "schedule")
            self._tell(sprite, event.mission_id, "ended", words, at)
        # The person who interrupted it knows.
        self._mark(sprite, at)

    def _asked(self, sprite: str, request: PermissionRequest) -> None:
        questions = self._of(sprite).questions
        if len(request.request_id) > _LONGEST_ID or len(questions) >= _MOST_QUESTIONS or request.redacted:
            return
        title, body = wording.of_question(request.tool, request.input)
        key = request.request_id
        is_whole = is_seen_whole(request, body)
        notice = Notice(key, "permission", sprite, sprite, title, body, time.time(), request_id=key, is_whole=is_whole)
        questions[key] = notice
        if not self._of(sprite).is_watched:
            self._notifier.tell(notice)

    def _answered(self, sprite: str, request_id: str) -> None:
        if self._of(sprite).questions.pop(request_id, None) is not None:
            self._notifier.withdraw(sprite, request_id)

    def _paused(self, sprite: str, session: SessionState) -> None:
        """Notify the person that the agent has paused. The bridge itself reports used-up budgets."""
        if (paused := session.paused) is not None and paused.by in {"turns", "cost"} and math.isfinite(paused.since):
            words = ("Sprite has paused", wording.line(paused.why))
            self._tell(sprite, f"paused-{paused.since:.3f}", "paused", words, min(paused.since, time.time()))

    def _offered(self, sprite: str, rule: RuleRow) -> None:
        if rule.status == "offered":
            words = ("Make it a rule?", wording.line(rule.reason or rule.words))
            self._tell(sprite, f"rule-{rule.id}", "rule", words, time.time())

    def _state(self, sprite: str, sync: StateSync) -> None:
        known = self._of(sprite)
        known.turns, known.questions = {}, {}
        for event in sync.running.events if sync.running is not None else ():
            if isinstance(event, Started):
                self._began(sprite, event)
        for request in sync.permissions:
            self._asked(sprite, request)
        self._paused(sprite, sync.session)
        if known.told_until is None:
            # Events from before the bridge knew this sprite are not news.
            self._mark(sprite, time.time())
        since = max(known.told_until or 0.0, time.time() - _NEWS_SECONDS)
        for line in _last_lines(sync.chat):
            if line.at > since and line.mission_id is not None:
                words = (
                    wording.of_failure(line.text, by_schedule=line.origin == "schedule")
                    if line.role == "error"
                    else wording.of_reply(line.text)
                )
                self._tell(sprite, line.mission_id, "ended", words, line.at)
                self._mark(sprite, line.at)

    def _tell(
        self, sprite: str, key: str, kind: NoticeKind, words: tuple[str, str], at: float, *, raises: bool = False
    ) -> None:
        if not self._of(sprite).is_watched:
            self._notifier.tell(Notice(key, kind, sprite, sprite, *words, at, raises=raises))

    # --- the mark ---

    def _mark(self, sprite: str, at: float) -> None:
        """Mark all events up to a time, by the sprite's clock, as reported or seen."""
        known = self._of(sprite)
        at = min(at + _SAME_MOMENT_SECONDS, time.time() + _AHEAD_SECONDS)
        if known.told_until is None or at > known.told_until:
            known.told_until = at
            self._marks.note(sprite, at)


def _last_lines(chat: list[ChatMessage]) -> list[ChatMessage]:
    """Return the last line of each background turn that ended, oldest first."""
    ended: dict[str, ChatMessage] = {}
    for line in chat[-CHAT_LIMIT:]:
        is_own = line.origin != "person" and line.role != "user" and line.status in {"complete", "error"}
        if is_own and line.mission_id is not None and len(line.mission_id) <= _LONGEST_ID:
            ended[line.mission_id] = line
    return list(ended.values())
