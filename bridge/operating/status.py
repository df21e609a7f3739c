"""`bridge status`: every sprite at a glance, gathered from the parts that know; wakes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec

from bridge.cluster.holders import Holder
from bridge.door.people import People, Person
from bridge.hosts.host import (
    Host,
    HostError,
    HostState,
)
from bridge.hosts.output import printable
from bridge.llm.calls import Spend
from bridge.relay.relay import Seen
from bridge.store.follower import Standing
from bridge.waking.due_dates import DueDate
from sprite.protocol.shapes import SlowWork
from sprite.protocol.slow_work import oldest, slow, slow_words

#: A host that does not answer must not keep the others from being shown: all states together take this long at most.
_STATE_SECONDS = 3.0
#: So many are begun at a time; others' work goes on between.
_AT_ONCE = 25
_FAR_SECONDS = 1000 * 86400.0
_FILES_SECONDS = 5.0


class Row(msgspec.Struct):
    """One sprite. `link` is the relay's, `clients` are pages and terminals that are open now.

    `last_seen_at` is when the sprite answered last (before this start of the bridge: when its person was here last), in
    Unix seconds; `next_due` is when it wants to be woken, null where nothing is due. US dollars are counted by UTC days
    and months; `estimated_usd` is the part of today's that the API did not say, `unpriced` calls are in no sum. The
    store has all of the sprite but for the last `store_behind` seconds (null: it has nothing); `store_trouble` says
    what hinders it. While the store follows the sprite, the person's files were looked at `files_seen` seconds ago
    (null: it does not): what changed there since is not in it. All that is stored was checked last at
    `store_checked_at`, and `store_damaged` pieces were damaged or missing. Where several bridges share a database, the
    one at `bridge` has the sprite (null: none has), for `bridge_seconds` more unless it goes on. `slow` is work of the
    sprite's that takes longer than a minute.
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


class Overview:
    """Puts rows together; `held` says which bridge has what. Without a `host` (no bridge runs) states are unknown."""

    def __init__(
        self,
        people: People,
        host: Host | None,
        seen: Callable[[], Sequence[Seen]],
        spend: Callable[[], Awaitable[list[Spend]]],
        due: Callable[[], Awaitable[Mapping[str, DueDate]]],
        standing: Callable[[str], Awaitable[Standing]],
        trouble: Callable[[str], str] = lambda _: "",
        held: Callable[[], Awaitable[Mapping[str, Holder]]] | None = None,
        calls: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._people = people
        self._host = host
        self._seen = seen
        self._spend = spend
        self._due = due
        self._standing = standing
        self._trouble = trouble
        self._held = held
        #: When each sprite's oldest call of the model began that goes on.
        self._calls = calls

    async def rows(self) -> list[Row]:
        """A row for everybody who may come in, oldest first."""
        return await self.rows_of([person for person in await self._people.everyone() if person.revoked_at is None])

    async def rows_of(self, people: Sequence[Person]) -> list[Row]:
        """A row for each of these; their hosts are asked for no other's state."""
        seen = {one.sprite: one for one in self._seen()}
        spent = {one.sprite: one for one in await self._spend()}
        due, slow = await self._due(), slow_by_sprite(seen.values(), self._calls())
        held = {} if self._held is None else await self._held()
        rows = []
        async with asyncio.TaskGroup() as group:
            states = await self._begin_states(group, people)
            # In steps, however many there are: others are served in between.
            for first in range(0, len(people), _AT_ONCE):
                some = people[first : first + _AT_ONCE]
                standings = await asyncio.gather(*(self._standing(person.name) for person in some))
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
            detail=state.detail or (seen.detail if seen else "") or self._trouble(person.name),
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
        if self._host is None:
            return HostState("unknown", detail="no bridge runs here")
        try:
            async with asyncio.timeout_at(until):
                return await self._host.state(sprite)
        except HostError as error:
            return HostState("unknown", detail=str(error))
        except TimeoutError:
            return HostState("unknown", detail="its host does not answer")


def slow_by_sprite(seen: Iterable[Seen], calls: Mapping[str, float]) -> dict[str, list[SlowWork]]:
    """Return the work of each sprite that takes longer than a minute: what rooms and the model proxy know of."""
    found = {one.sprite: list(one.slow) for one in seen if one.slow}
    for sprite, since in calls.items():
        if waiting := slow([SlowWork("model_call", since)], time.time()):
            found[sprite] = oldest([*found.get(sprite, []), *waiting])
    return found


def drawn(rows: Sequence[Row], now: float, *, shows_bridges: bool = False) -> str:
    """The rows as a table of text; `now` in Unix seconds. `shows_bridges`: there may be several."""
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
            stored(row.store_behind, row.files_seen),
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
        unpriced = f"{row.unpriced} calls of unknown price" if row.unpriced else ""
        estimated = f"of today's {estimate(row.estimated_usd)}" if row.estimated_usd else ""
        long, damaged = slow_words(row.slow, now), damaged_words(row)
        if notes := ", ".join(filter(None, (row.detail, *long, estimated, unpriced, row.store_trouble, damaged))):
            lines[number] += f"  ({' '.join(printable(notes).split())})"
    return "\n".join(lines)


def damaged_words(row: Row) -> str:
    """Return what is damaged of what is stored, in words; "" where nothing is."""
    if not row.store_damaged:
        return ""
    name = printable(row.sprite)
    return (
        f"{row.store_damaged} piece(s) of the stored copy are damaged or missing: the agent ships them again while it "
        f"is connected (python -m bridge store verify {name})"
    )


def estimate(usd: float) -> str:
    """How much of a sum is what calls that were cut off cost at most, in words."""
    return f"${usd:.2f} is estimated"


def held_by(row: Row) -> str:
    """Which bridge has a sprite, and how long its lease lasts if nobody renews it."""
    return "nobody" if row.bridge is None else f"{printable(row.bridge)}, {row.bridge_seconds or 0:.0f} s"


def stored(behind: float | None, files_seen: float | None = None) -> str:
    """How much the store has of a sprite, in words: all, nothing ("-"), or all but the newest seconds.

    Of the person's files, `files_seen` seconds ago, where that is longer than a look takes.
    """
    if behind is None:
        return "-"
    if not behind:
        is_now = files_seen is None or files_seen < _FILES_SECONDS
        return "all" if is_now else f"all, files of {files_seen:.0f} s ago"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if behind >= size:
            return f"{behind // size:.0f} {unit} behind"
    return f"{behind:.0f} s behind"


def until(then: float | None, now: float) -> str:
    """In how long, in words; both in Unix seconds."""
    if then is None:
        return "-"
    if then <= now:
        return "now"
    if then - now > _FAR_SECONDS:
        return "in years"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if then - now >= size:
            return f"in {(then - now) // size:.0f} {unit}"
    return "in 1 min"


def ago(then: float | None, now: float) -> str:
    """How long ago, in words; both in Unix seconds."""
    if then is None:
        return "never"
    seconds = max(0.0, now - then)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "now"
