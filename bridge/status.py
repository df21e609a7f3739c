"""`bridge status`: every sprite at a glance, asked of whoever knows each part; wakes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from bridge.hosts import Host, HostError, HostState
from bridge.people import People, Person

#: A host that does not answer must not keep the others from being shown.
_STATE_SECONDS = 5.0


class Spend(msgspec.Struct):
    """What a sprite's model calls cost, in US dollars; days and months are UTC's."""

    today_usd: float = 0.0
    month_usd: float = 0.0
    total_usd: float = 0.0


class Row(msgspec.Struct):
    """One sprite. `last_seen_at` is when its person was connected last, in Unix seconds; `clients` are open now."""

    sprite: str
    state: str
    version: str | None
    detail: str
    clients: int
    last_seen_at: float | None
    spend: Spend


class Overview:
    """Puts the rows together. Without a `host` (no bridge runs) states are unknown."""

    def __init__(
        self,
        people: People,
        host: Host | None,
        clients: Callable[[], dict[str, int]],
        spend: Callable[[str], Awaitable[Spend]],
    ) -> None:
        self._people = people
        self._host = host
        self._clients = clients
        self._spend = spend

    async def rows(self) -> list[Row]:
        """A row for everybody who may come in, oldest first."""
        people = [person for person in await self._people.everyone() if person.revoked_at is None]
        return list(await asyncio.gather(*(self._row(person) for person in people)))

    async def _row(self, person: Person) -> Row:
        state = await self._state(person.name)
        clients = self._clients().get(person.name, 0)
        return Row(
            sprite=person.name,
            state=state.state,
            version=state.version,
            detail=state.detail,
            clients=clients,
            last_seen_at=time.time() if clients else person.last_seen_at,
            spend=await self._spend(person.name),
        )

    async def _state(self, sprite: str) -> HostState:
        if self._host is None:
            return HostState("unknown", detail="no bridge runs")
        try:
            async with asyncio.timeout(_STATE_SECONDS):
                return await self._host.state(sprite)
        except HostError as error:
            return HostState("unknown", detail=str(error))
        except TimeoutError:
            return HostState("unknown", detail="its host does not answer")


def drawn(rows: Sequence[Row], now: float) -> str:
    """The rows as a table of text; `now` in Unix seconds."""
    if not rows:
        return "Nobody yet: start the bridge, or add people with `python -m bridge users add NAME`."
    head = ("sprite", "state", "version", "clients", "last seen", "today", "month", "in all")
    cells = [
        (
            row.sprite,
            row.state,
            row.version or "-",
            str(row.clients),
            _ago(row.last_seen_at, now),
            f"${row.spend.today_usd:.2f}",
            f"${row.spend.month_usd:.2f}",
            f"${row.spend.total_usd:.2f}",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (head, *cells)) for column in range(len(head))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in (head, *cells)
    ]
    for number, row in enumerate(rows, start=1):
        if row.detail:
            lines[number] += f"  ({row.detail})"
    return "\n".join(lines)


def _ago(then: float | None, now: float) -> str:
    if then is None:
        return "never"
    seconds = max(0.0, now - then)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "now"
