"""Who is connected right now: the open WebSockets of each person, how many they may be, and how they are ended.

Knows nothing of what travels over them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aiohttp import WSCloseCode, web

#: A person has a few pages and a terminal open; each holds a queue of events.
MAX_SOCKETS_PER_PERSON = 32
_CLOSE_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class Visitor:
    """An open WebSocket, or one that is about to be."""

    person: str
    way_in: str | None
    socket: web.WebSocketResponse
    #: It was to be closed, perhaps before it was open.
    is_ended: bool = False


class Visitors:
    """The open WebSockets."""

    def __init__(self) -> None:
        self._of: defaultdict[str, set[Visitor]] = defaultdict(set)

    def counts(self) -> dict[str, int]:
        """How many each person has open."""
        return {person: len(visitors) for person, visitors in self._of.items() if visitors}

    def ways_in(self) -> set[tuple[str, str | None]]:
        """Whoever is here, and what they came in by."""
        return {(visitor.person, visitor.way_in) for visitors in self._of.values() for visitor in visitors}

    def may_enter(self, person: str) -> bool:
        """Whether the person may open one more."""
        return len(self._of[person]) < MAX_SOCKETS_PER_PERSON

    @contextmanager
    def inside(self, person: str, way_in: str | None, socket: web.WebSocketResponse) -> Iterator[Visitor]:
        """Counts a WebSocket while the block runs; `way_in` is the hash of a browser's session or of a token, if any.

        From before its handshake on, or any number could be let in at once.
        """
        visitor = Visitor(person, way_in, socket)
        self._of[person].add(visitor)
        try:
            yield visitor
        finally:
            self._of[person].discard(visitor)

    async def end_person(self, person: str) -> None:
        """Closes what a person has open, who may no longer come in."""
        await _close(self._of[person], WSCloseCode.POLICY_VIOLATION, b"revoked")

    async def end_way_in(self, person: str, way_in: str) -> None:
        """Closes what one browser has open, which has logged out, or what a token opened, which was revoked."""
        gone = {visitor for visitor in self._of[person] if visitor.way_in == way_in}
        await _close(gone, WSCloseCode.POLICY_VIOLATION, b"logged out")

    async def end_all(self) -> None:
        """Closes everything, since the bridge stops; pages know to come back (1001)."""
        everyone = {visitor for visitors in self._of.values() for visitor in visitors}
        await _close(everyone, WSCloseCode.GOING_AWAY, b"the bridge stops")


async def _close(visitors: set[Visitor], code: int, reason: bytes) -> None:
    for visitor in visitors:
        visitor.is_ended = True
    closing = [
        asyncio.create_task(visitor.socket.close(code=code, message=reason), name=f"close {visitor.person}")
        for visitor in visitors
        if visitor.socket.prepared
    ]
    if closing:
        # A peer that does not answer is not waited for: its connection ends with the server's.
        _, waiting = await asyncio.wait(closing, timeout=_CLOSE_SECONDS)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*closing, return_exceptions=True)
