"""`bridge status`: every sprite at a glance, gathered from the parts that know; wakes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

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

#: A host that does not answer must not keep the others from being shown.
_STATE_SECONDS = 5.0
_FAR_SECONDS = 1000 * 86400.0
_FILES_SECONDS = 5.0


class Row(msgspec.Struct):
    """One sprite. `link` is the relay's, `clients` are pages and terminals that are open now.

    `last_seen_at` is when the sprite answered last (before this start of the bridge: when its person was here last), in
    Unix seconds; `next_due` is when it wants to be woken, null where nothing is due. US dollars are counted by UTC days
    and months; `estimated_usd` is the part of today's that the API did not say, `unpriced` calls are in no sum. The
    store has all of the sprite but for the last `store_behind` seconds (null: it has nothing); `store_trouble` says
    what hinders it. While the store follows the sprite, the person's files were looked at `files_seen` seconds ago
    (null: it does not): what changed there since is not in it. Where several bridges share a database, the one at
    `bridge` has the sprite (null: none has), for `bridge_seconds` more unless it goes on.
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
    bridge: str | None = None
    bridge_seconds: float | None = None


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
    ) -> None:
        self._people = people
        self._host = host
        self._seen = seen
        self._spend = spend
        self._due = due
        self._standing = standing
        self._trouble = trouble
        self._held = held

    async def rows(self) -> list[Row]:
        """A row for everybody who may come in, oldest first."""
        return await self.rows_of([person for person in await self._people.everyone() if person.revoked_at is None])

    async def rows_of(self, people: Sequence[Person]) -> list[Row]:
        """A row for each of these; their hosts are asked for no other's state."""
        seen = {one.sprite: one for one in self._seen()}
        spent = {one.sprite: one for one in await self._spend()}
        due = await self._due()
        rows = await asyncio.gather(
            *(
                self._row(person, seen.get(person.name), spent.get(person.name), due.get(person.name))
                for person in people
            )
        )
        if self._held is not None:
            held = await self._held()
            for row in rows:
                if (holder := held.get(row.sprite)) is not None:
                    row.bridge, row.bridge_seconds = holder.address, holder.seconds
        return list(rows)

    async def _row(self, person: Person, seen: Seen | None, spent: Spend | None, due: DueDate | None) -> Row:
        state, standing = await asyncio.gather(self._state(person.name), self._standing(person.name))
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
            next_due=due.at if due else None,
            store_behind=standing.behind,
            store_trouble=standing.trouble,
            files_seen=standing.files_seen,
        )

    async def _state(self, sprite: str) -> HostState:
        if self._host is None:
            return HostState("unknown", detail="no bridge runs here")
        try:
            async with asyncio.timeout(_STATE_SECONDS):
                return await self._host.state(sprite)
        except HostError as error:
            return HostState("unknown", detail=str(error))
        except TimeoutError:
            return HostState("unknown", detail="its host does not answer")


def drawn(rows: Sequence[Row], now: float, *, shows_bridges: bool = False) -> str:
    """The rows as a table of text; `now` in Unix seconds. `shows_bridges`: there may be several."""
    if not rows:
        return "Nobody yet: start the bridge, or add people with `python -m bridge users add NAME`."
    head: tuple[str, ...] = (
        *("sprite", "state", "version", "clients", "last seen", "next due", "stored", "today", "month", "in all"),
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
        if notes := ", ".join(filter(None, (row.detail, estimated, unpriced, row.store_trouble))):
            lines[number] += f"  ({' '.join(printable(notes).split())})"
    return "\n".join(lines)


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
