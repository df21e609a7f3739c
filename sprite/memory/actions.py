"""Changes and queries of the action list, for people, the agent and the scheduler.

Each change is checked, logged as a row of kind `action`, and applied under one lock. Times are Unix seconds. Due times
and repeats use the user's zone (`set_zone`) unless another one is named; a new zone affects later actions only.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from typing import cast

from msgspec import UNSET, UnsetType

from sprite.common.due_times import moment_words, parse_due, repeat_words
from sprite.common.recurrence import DEFAULT_ZONE, LEAST_GAP_SECONDS, first_after, known_zone, next_after, rule_of
from sprite.errors import PeerError
from sprite.memory import action_rows as rows
from sprite.memory.database import MemoryDB
from sprite.memory.decision import MADE_IDS, Action, Change
from sprite.memory.projection import Projection
from sprite.memory.words import said
from sprite.privacy.redaction import discreet
from sprite.protocol.framing import on_one_line
from sprite.protocol.messages import NextDue

#: Limit of open timed actions created in scheduled turns, so that schedules cannot multiply.
MOST_BY_SCHEDULES = 5
#: Accept a due time this far in the past: it may just have been typed.
GRACE_SECONDS = 60.0
#: Redaction takes time, so text beyond this length is cut or rejected first.
_FAR_TOO_LONG = 2 * rows.MAX_ACTION_CHARS


class Actions:
    """List, add, change and resolve actions. `announce` receives each change; `discreet` redacts secrets."""

    def __init__(
        self,
        projection: Projection,
        memory: MemoryDB,
        announce: Callable[[Change], None] = lambda _change: None,
        clock: Callable[[], float] = time.time,
        discreet: Callable[[str], str] = discreet,
    ) -> None:
        self._projection = projection
        self._memory = memory
        self._announce = announce
        self._clock = clock
        self._discreet = discreet

    # --- queries ---

    async def action(self, action_id: int) -> Action:
        """Return one action. PeerError (`not_found`) if there is none."""
        action = await self._memory.action(action_id)
        if action is None:
            raise PeerError(f"There is no action {action_id}.", code="not_found")
        return action

    async def listed(self, status: str | None = None) -> list[Action]:
        """Return all actions, or those with a status, most urgent first."""
        return await self._memory.actions(status)

    async def scheduled(self) -> list[Action]:
        """Return the open actions with a due time, the earliest first, overdue ones included."""
        return await self._memory.scheduled()

    async def next_due(self) -> NextDue | None:
        """Return the open action that is due next, even if overdue, or None."""
        scheduled = await self._memory.scheduled()
        return next((NextDue(action.id, action.due) for action in scheduled if action.due is not None), None)

    async def zone(self) -> str:
        """Return the user's time zone as an IANA name; UTC until it is known."""
        return await self._memory.zone() or DEFAULT_ZONE

    # --- changes by people and the agent ---

    async def set_zone(self, tz: str) -> None:
        """Set the user's time zone. PeerError (`unknown_zone`)."""
        known_zone(tz)
        if tz != await self._memory.zone():

            async def decide() -> rows.AnyRecord:
                return rows.Zoned(tz)

            await self._log(decide)

    async def add(
        self,
        content: str,
        *,
        by: rows.Maker,
        due: float | str | None = None,
        rrule: str | None = None,
        tz: str | None = None,
        priority: int = 0,
        mission_id: str | None = None,
    ) -> Action:
        """Add an action, or return an equal open one with the same time and repeat.

        `due` as in `parse_due`; with a repeat alone, the rule gives the first due time. PeerError codes: `bad_request`
        (empty text or bad priority), `too_long`, `past` or `bad_due` (time), `unknown_zone`, `bad_repeat`, `too_often`,
        `never`, or `too_many` scheduled actions.
        """
        record = rows.Added(by=by, content=self._content(content), priority=_priority(priority), mission=mission_id)
        same: list[Action] = []

        async def decide() -> rows.AnyRecord | None:
            record.due, record.rrule, record.tz = await self._time(due, rrule, tz)
            same.extend(
                action
                for action in await self._memory.actions("open")
                if said(action.content) == said(record.content)
                and (action.due, action.rrule) == (record.due, record.rrule)
            )
            if same:
                return None
            if record.due is not None:
                await self._check_room()
                if by == "schedule":
                    await self._check_own(record.due, record.rrule)
            return record

        curation_id = await self._log(decide)
        return same[0] if curation_id is None else await self.action(MADE_IDS + curation_id)

    async def update(
        self,
        action_id: int,
        *,
        by: rows.Maker,
        content: str | None = None,
        due: float | str | None = None,
        rrule: str | None = None,
        tz: str | None = None,
        priority: int | None = None,
        seen: int | None = None,
    ) -> Action:
        """Change an action: None keeps a value, empty `due` or `rrule` removes it. Errors as in `add`, `resolve`."""

        async def change(action: Action) -> rows.AnyChange:
            record = rows.Updated(action=action_id, by=by)
            if content is not None:
                record.content = self._content(content)
            if priority is not None:
                record.priority = _priority(priority)
            if (due, rrule, tz) != (None, None, None):
                record.due, record.rrule, record.tz = await self._new_time(action, due, rrule, tz)
                if record.due is not None and action.status == "open" and action.due is None:
                    await self._check_room()
                if record.due is not None and by == "schedule":
                    await self._check_own(record.due, record.rrule)
            return record

        return await self._change(action_id, change, seen)

    async def resolve(
        self,
        action_id: int,
        status: str,
        *,
        by: rows.Maker,
        note: str = "",
        once: bool = False,
        mission_id: str | None = None,
        seen: int | None = None,
    ) -> Action:
        """Set the status: open, done, dismissed or failed. A closed action does not fire, even with a repeat.

        With `once`, a repeating action stays open: only this occurrence is done. PeerError for an unknown status or
        action. StaleActionError if the action's version is not the one in `seen`.
        """
        known = _status(status)

        async def change(action: Action) -> rows.AnyChange:
            if known == "open" and action.status != "open" and action.due is not None:
                await self._check_room()
            return rows.Resolved(
                action=action_id,
                by=by,
                status=known,
                note=self._discreet(note[:_FAR_TOO_LONG])[: rows.MAX_NOTE_CHARS],
                once=once and action.rrule is not None and action.status == "open",
                mission=mission_id,
            )

        return await self._change(action_id, change, seen)

    # --- changes by the scheduler ---

    async def fired(self, action_id: int, *, due: float, mission_id: str, late_by: float = 0.0) -> Action:
        """Log that an action's mission was accepted. Move `due` to the repeat's next time after now, or to None.

        Call it after the mission is in the inbox. After a crash in between, `due` still stands, and the inbox
        rejects the duplicate mission. A due time that was changed meanwhile stays. The status stays open.
        """

        async def change(action: Action) -> rows.AnyChange:
            return rows.Fired(
                action=action_id,
                by="sprite",
                due=due,
                next=rows.next_due(action, max(self._clock(), due)),
                late_by=max(0.0, late_by),
                mission=mission_id,
            )

        return await self._change(action_id, change)

    async def noted(
        self,
        action_id: int,
        what: str,
        *,
        status: rows.Status | UnsetType = UNSET,
        due: float | UnsetType | None = UNSET,
        mission_id: str | None = None,
    ) -> Action:
        """Add an entry to an action's history: how its mission ended, why it waits, when it is retried.

        `status` and `due` also set the action's own; the due time may lie in the past.
        """

        async def change(_action: Action) -> rows.AnyChange:
            words = self._discreet(what)[: rows.MAX_NOTE_CHARS]
            return rows.Noted(action=action_id, by="sprite", what=words, status=status, due=due, mission=mission_id)

        return await self._change(action_id, change)

    async def close_passed(self, under_way: Collection[int] = ()) -> None:
        """Close the passed reminders (`has_passed`), except those `under_way`, whose mission runs or waits."""
        for passed in await self._memory.actions("open"):
            if rows.has_passed(passed, self._clock()) and passed.id not in under_way:
                await self._change(passed.id, self._closing)

    # --- internals ---

    async def _closing(self, action: Action) -> rows.AnyChange | None:
        if not rows.has_passed(action, self._clock()):
            return None  # a person changed it meanwhile
        what = f"closed {rows.CLOSED_AFTER_DAYS} days after it was due"
        return rows.Noted(action=action.id, by="sprite", what=what, status="dismissed")

    async def _change(
        self, action_id: int, change: Callable[[Action], Awaitable[rows.AnyChange | None]], seen: int | None = None
    ) -> Action:
        """Log the change of an action that `change` returns, if any, and apply it. Return the action as it is then.

        The row also identifies the action across extractions (`Known`). StaleActionError if the action's
        version is not the one in `seen`.
        """

        async def decide() -> rows.AnyRecord | None:
            action = await self.action(action_id)
            if seen is not None and seen != action.version:
                raise StaleActionError(action)
            record = await change(action)
            if record is not None and not action.is_made and action.source_learning_id is not None:
                taught = await self._memory.learning(action.source_learning_id)
                record.of = None if taught is None else rows.Known(taught.content, taught.source_observation_id)
            return record

        await self._log(decide)
        return await self.action(action_id)

    async def _log(self, decide: Callable[[], Awaitable[rows.AnyRecord | None]]) -> int | None:
        curation_id, changes = await self._projection.log_action(decide)
        for change in changes:
            self._announce(change)
        return curation_id

    def _content(self, text: str) -> str:
        if len(text) > _FAR_TOO_LONG:
            raise PeerError(f"An action's text has at most {rows.MAX_ACTION_CHARS:,} characters.", code="too_long")
        content = self._discreet(" ".join(text.split()))
        if not content:
            raise PeerError("An action needs a text.")
        if len(content) > rows.MAX_ACTION_CHARS:
            raise PeerError(f"An action's text has at most {rows.MAX_ACTION_CHARS:,} characters.", code="too_long")
        return content

    async def _time(
        self, due: float | str | None, rrule: str | None, tz: str | None
    ) -> tuple[float | None, str | None, str | None]:
        """Parse the time of a new action to (due, repeat, zone); without a time, the zone is `tz` or None."""
        zone = known_zone(tz) if tz else await self.zone()
        now = self._clock()
        rule = rule_of(rrule) if rrule else None
        if due is None or due == "":
            if not rule:
                return None, None, zone if tz else None
            at = first_after(rule, zone, now)
            if at is None:
                raise PeerError(f"{rule[:80]!r} never fires.", code="never")
            return at, rule, zone
        at = parse_due(due, zone, now)
        if at < now - GRACE_SECONDS:
            raise PeerError(f"{moment_words(at, zone)} is in the past: give a future time.", code="past")
        if rule and next_after(rule, at, zone, at) is None:
            raise PeerError(f"{rule[:80]!r} never fires again after {moment_words(at, zone)}.", code="never")
        return at, rule, zone

    async def _new_time(
        self, action: Action, due: float | str | None, rrule: str | None, tz: str | None
    ) -> tuple[float | None, str | None, str | None]:
        """Parse a change of an action's time to (due, repeat, zone); None keeps the old value."""
        new_rule = action.rrule if rrule is None else rrule
        if due is None and action.due is not None and rrule is None:
            # A new zone or the same time keeps the moment, which may be near.
            return action.due, action.rrule, known_zone(tz) if tz else action.tz
        if due is None:
            # Count a new repeat from the current due time; if that has passed, from the rule's next time.
            due = action.due if action.due is not None and action.due > self._clock() else ""
        if due == "" and not rrule:
            new_rule = None
        return await self._time(due, new_rule, tz or action.tz)

    async def _check_room(self) -> None:
        if len(await self._memory.scheduled()) >= rows.MOST_SCHEDULED:
            raise PeerError(
                f"{rows.MOST_SCHEDULED} open actions have a due time already: finish or dismiss one first.",
                code="too_many",
            )

    async def _check_own(self, due: float, rrule: str | None) -> None:
        """Raise PeerError unless a scheduled turn may add this: few actions, without a repeat, some minutes ahead."""
        reason = ""
        if rrule:
            reason = "an action cannot repeat: offer the repeat to the person, who can set it up"
        elif due < self._clock() + LEAST_GAP_SECONDS:
            reason = f"an action is due in {LEAST_GAP_SECONDS // 60} minutes at the soonest"
        elif sum(action.origin == "schedule" for action in await self._memory.scheduled()) >= MOST_BY_SCHEDULES:
            reason = f"{MOST_BY_SCHEDULES} actions of schedules are open already"
        if reason:
            raise PeerError(f"In a turn that a schedule began: {reason}.", code="within_schedule")


class StaleActionError(PeerError):
    """The action changed since the caller read it; `action` is the current one."""

    def __init__(self, action: Action) -> None:
        super().__init__("The action has changed since you saw it: look at it again first.", code="conflict")
        self.action = action


def _priority(value: int) -> int:
    if not -rows.LARGEST_PRIORITY <= value <= rows.LARGEST_PRIORITY:
        raise PeerError(f"A priority must be from -{rows.LARGEST_PRIORITY} to {rows.LARGEST_PRIORITY}.")
    return value


def _status(status: str) -> rows.Status:
    if status not in rows.ACTION_STATUSES:
        raise PeerError("An action's status must be open, done, dismissed or failed.")
    return cast("rows.Status", status)


#: An action is overdue after this time; one that is just due is being fired.
OVERDUE_SECONDS = 300.0
#: The author, unless it is the usual one: a request that the user made in a conversation.
_MADE_BY = {
    "person": "written by the person",
    "agent": "you scheduled it",
    "schedule": "you scheduled it within a schedule's turn",
}


def action_line(action: Action, now: float, tz: str, *, with_status: bool = False) -> str:
    """Return `- [12] text (due Tue 2026-12-01 09:00 Europe/Berlin, every Monday; priority 2)` on one line.

    The time is shown in `tz`, the user's zone, and in the action's own zone if they differ.
    """
    repeat = repeat_words(action.rrule) if action.rrule else ""
    marks = [_when(action, now, tz), repeat, _MADE_BY.get(action.origin, "")]
    if action.priority:
        marks.append(f"priority {action.priority}")
    if action.status == "failed" or with_status:
        marks.append(action.status)
    told = "; ".join(mark for mark in marks if mark)
    return f"- [{action.id}] {on_one_line(action.content)}{f' ({told})' if told else ''}"


def _when(action: Action, now: float, tz: str) -> str:
    if action.due is None:
        return f"last {moment_words(action.fired_at, tz)}" if action.fired_at is not None else ""
    when = f"due {moment_words(action.due, tz)}"
    own = action.tz or DEFAULT_ZONE
    if action.rrule and own != tz:
        when += f" = {moment_words(action.due, own)}"
    is_overdue = action.status == "open" and now - action.due >= OVERDUE_SECONDS
    return f"{when}, OVERDUE" if is_overdue else when
