"""`bridge status`: an overview of all sprites, collected from other modules; wakes none."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from bridge.auth.people import People, Person
from bridge.cluster.ownership import Holder
from bridge.hub.room import Seen
from bridge.providers.provider import Host, HostError, HostState, printable
from bridge.proxy.calls import Spend
from bridge.replicas.replicator import Standing
from bridge.wakeups.waker import DueDate
from sprite.protocol.shapes import SlowWork, counted, oldest, slow, slow_words

#: Total time limit for all states, so that a host that does not answer does not delay the others.
_STATE_SECONDS = 3.0
#: Sprites handled at a time; other work of the bridge runs in between.
_AT_ONCE = 25
_FAR_SECONDS = 1000 * 86400.0
_FILES_SECONDS = 5.0


class Row(msgspec.Struct):
    """One sprite in the status; times are in Unix seconds, costs in US dollars for the current UTC day and month.

    `link` is the relay's state, `clients` counts the open pages and terminals. `last_seen_at` is the time of the
    sprite's last message or, without one since the bridge started, of its person's last visit. `next_due` is when it
    wants to be woken. `estimated_usd` is the part of today's cost that the API did not report. `unpriced` calls have no
    known price and are in no sum.

    The replica lacks the last `store_behind` seconds (null: there is none), and changes of files since the scan
    `files_seen` seconds ago (null: no replication). The last complete check was at `store_checked_at` and found
    `store_damaged` damaged or missing pieces. If bridges share a database, `bridge` has the sprite (null: none), for
    `bridge_seconds` more without renewal. `slow` is work that takes longer than a minute.
    """

    sprite: str
    state: str
    version: str | None
    link: str | None
    detail: str
    clients: int
    last_seen_at: float | None
    today_usd: float
    month_usd: float
    total_usd: float
    unpriced: int
    estimated_usd: float = 0.0
    next_due: float | None = None
    store_behind: float | None = None
    store_trouble: str = ""
    files_seen: float | None = None
    store_checked_at: float | None = None
    store_damaged: int = 0
    bridge: str | None = None
    bridge_seconds: float | None = None
    slow: list[SlowWork] = []


@dataclass(frozen=True, slots=True)
class Running:
    """State of a running bridge: the relay's sprites, troubles, and the start of each oldest model call in flight."""

    host: Host
    seen: Callable[[], Sequence[Seen]]
    trouble: Callable[[str], str]
    calls: Callable[[], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Overview:
    """Collect the rows of `bridge status`; `held` returns the lease holders. Without `running` states are unknown."""

    people: People
    spend: Callable[[], Awaitable[list[Spend]]]
    due: Callable[[], Awaitable[Mapping[str, DueDate]]]
    standing: Callable[[str], Awaitable[Standing]]
    held: Callable[[], Awaitable[Mapping[str, Holder]]] | None
    running: Running | None = None

    async def rows(self) -> list[Row]:
        """Return a status row for each person with access, oldest person first."""
        return await self.rows_of([person for person in await self.people.everyone() if person.revoked_at is None])

    async def rows_of(self, people: Sequence[Person]) -> list[Row]:
        """Return a status row for each of these people; only their sprites' hosts are queried."""
        running = self.running
        seen = {} if running is None else {one.sprite: one for one in running.seen()}
        spent = {one.sprite: one for one in await self.spend()}
        due, slow = await self.due(), slow_by_sprite(seen.values(), running.calls() if running else {})
        held = {} if self.held is None else await self.held()
        rows = []
        async with asyncio.TaskGroup() as group:
            states = await self._begin_states(group, people)
            # In steps: other requests are served in between.
            for first in range(0, len(people), _AT_ONCE):
                some = people[first : first + _AT_ONCE]
                standings = await asyncio.gather(*(self.standing(person.name) for person in some))
                for person, standing in zip(some, standings, strict=True):
                    name = person.name
                    row = self._row(person, await states[name], standing, seen.get(name), spent.get(name))
                    row.next_due = due[name].at if name in due else None
                    row.slow = slow.get(name, [])
                    if (holder := held.get(name)) is not None:
                        row.bridge, row.bridge_seconds = holder.address, holder.seconds
                    rows.append(row)
                await asyncio.sleep(0)
        return rows

    async def _begin_states(
        self, group: asyncio.TaskGroup, people: Sequence[Person]
    ) -> dict[str, asyncio.Task[HostState]]:
        until = asyncio.get_running_loop().time() + _STATE_SECONDS
        states = {}
        for number, person in enumerate(people, start=1):
            name = person.name
            states[name] = group.create_task(self._state(name, until), name=f"state of {name}")
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return states

    def _row(self, person: Person, state: HostState, standing: Standing, seen: Seen | None, spent: Spend | None) -> Row:
        return Row(
            sprite=person.name,
            state=state.state,
            version=state.version or (seen.version if seen else None),
            link=seen.state if seen else None,
            detail=state.detail
            or (seen.detail if seen else "")
            or (self.running.trouble(person.name) if self.running else ""),
            clients=seen.clients if seen else 0,
            last_seen_at=(seen.last_seen_at if seen else None) or person.last_seen_at,
            today_usd=spent.today if spent else 0.0,
            month_usd=spent.month if spent else 0.0,
            total_usd=spent.total if spent else 0.0,
            unpriced=spent.unpriced if spent else 0,
            estimated_usd=spent.estimated if spent else 0.0,
            store_behind=standing.behind,
            store_trouble=standing.trouble,
            files_seen=standing.files_seen,
            store_checked_at=standing.health.checked_at,
            store_damaged=standing.health.damaged,
        )

    async def _state(self, sprite: str, until: float) -> HostState:
        if self.running is None:
            return HostState("unknown", detail="no bridge runs here")
        try:
            async with asyncio.timeout_at(until):
                return await self.running.host.state(sprite)
        except HostError as error:
            return HostState("unknown", detail=str(error))
        except TimeoutError:
            return HostState("unknown", detail="its host does not answer")


def slow_by_sprite(seen: Iterable[Seen], calls: Mapping[str, float]) -> dict[str, list[SlowWork]]:
    """Return the work of each sprite that takes longer than a minute, known to rooms and the model proxy."""
    found = {one.sprite: list(one.slow) for one in seen if one.slow}
    for sprite, since in calls.items():
        if waiting := slow([SlowWork("model_call", since)], time.time()):
            found[sprite] = oldest([*found.get(sprite, []), *waiting])
    return found


def drawn(rows: Sequence[Row], now: float, *, shows_bridges: bool = False) -> str:
    """Return the rows as a text table; `now` in Unix seconds. `shows_bridges` adds the lease holders."""
    if not rows:
        return "Nobody yet: start the bridge, or add people with `python -m bridge users add NAME`."
    head: tuple[str, ...] = (
        *("sprite", "state", "version", "clients", "last seen", "next due", "stored", "checked"),
        *("today", "month", "in all"),
        *(("bridge",) if shows_bridges else ()),
    )
    cells = [
        (
            row.sprite,
            row.state,
            printable(row.version or "-"),
            str(row.clients),
            ago(row.last_seen_at, now),
            until(row.next_due, now),
            stored(row),
            "-" if row.store_checked_at is None else ago(row.store_checked_at, now),
            f"${row.today_usd:.2f}",
            f"${row.month_usd:.2f}",
            f"${row.total_usd:.2f}",
            *((held_by(row),) if shows_bridges else ()),
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (head, *cells)) for column in range(len(head))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in (head, *cells)
    ]
    for number, row in enumerate(rows, start=1):
        unpriced = f"{row.unpriced} calls without a known price" if row.unpriced else ""
        estimated = f"of today's {estimate(row.estimated_usd)}" if row.estimated_usd else ""
        long, damaged = slow_words(row.slow, now), damaged_words(row)
        if notes := ", ".join(filter(None, (row.detail, *long, estimated, unpriced, row.store_trouble, damaged))):
            lines[number] += f"  ({' '.join(printable(notes).split())})"
    return "\n".join(lines)


def damaged_words(row: Row) -> str:
    """Return a description of the damaged pieces of a replica, "" if there are none."""
    pieces = counted(row.store_damaged, "damaged or missing piece")
    advice = f"the agent sends them again while it is connected (python -m bridge store verify {printable(row.sprite)})"
    return f"{pieces} of the replica: {advice}" if row.store_damaged else ""


def estimate(usd: float) -> str:
    """Describe in words the part of a cost that is estimated for calls that were cut off."""
    return f"${usd:.2f} is estimated"


def held_by(row: Row) -> str:
    """Return the bridge that has a sprite, and the remaining time of its lease."""
    return "nobody" if row.bridge is None else f"{printable(row.bridge)}, {row.bridge_seconds or 0:.0f} s"


def stored(row: Row) -> str:
    """Describe how complete a replica is: nothing ("-"), all but the newest seconds, or all that was scanned."""
    if row.store_behind is None:
        return "-"
    if row.store_behind:
        return f"{_age(row.store_behind)} behind"
    if row.files_seen is None or row.files_seen < _FILES_SECONDS:
        return "all"
    return f"all, files scanned {_age(row.files_seen)} ago"


def _age(seconds: float) -> str:
    return in_units(seconds) or f"{seconds:.0f} s"


def in_units(seconds: float) -> str:
    """Return a duration in whole days, hours or minutes, in the largest unit that fits; "" below a minute."""
    units = (("d", 86400), ("h", 3600), ("min", 60))
    return next((f"{seconds // size:.0f} {unit}" for unit, size in units if seconds >= size), "")


def until(then: float | None, now: float) -> str:
    """Return the time from `now` to a later time in words; both in Unix seconds."""
    if then is None:
        return "-"
    if then <= now:
        return "now"
    if then - now > _FAR_SECONDS:
        return "in years"
    return f"in {in_units(then - now) or '1 min'}"


def ago(then: float | None, now: float) -> str:
    """Return the time from an earlier time to `now` in words; both in Unix seconds."""
    if then is None:
        return "never"
    age = in_units(now - then)
    return f"{age} ago" if age else "now"
