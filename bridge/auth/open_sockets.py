"""Track open WebSockets by person: their limit, and how they are closed. Independent of their messages."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from aiohttp import WSCloseCode, web

#: A person has a few pages and a terminal open; each holds a queue of events.
MAX_SOCKETS_PER_PERSON = 32
_CLOSE_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class Visitor:
    """A WebSocket that is open or about to be."""

    person: str
    way_in: str | None
    socket: web.WebSocketResponse
    #: Set when it has to close, perhaps before it was open.
    is_ended: bool = False


class OpenSockets:
    """The open WebSockets."""

    def __init__(self) -> None:
        self._of: defaultdict[str, set[Visitor]] = defaultdict(set)

    def counts(self) -> dict[str, int]:
        """Return the number of open WebSockets by person."""
        return {person: len(open_sockets) for person, open_sockets in self._of.items() if open_sockets}

    def ways_in(self) -> set[tuple[str, str | None]]:
        """Return the persons and credentials of the open WebSockets."""
        return {(visitor.person, visitor.way_in) for open_sockets in self._of.values() for visitor in open_sockets}

    def may_enter(self, person: str) -> bool:
        """Return whether the person may open one more."""
        return len(self._of[person]) < MAX_SOCKETS_PER_PERSON

    @contextmanager
    def inside(self, person: str, way_in: str | None, socket: web.WebSocketResponse) -> Iterator[Visitor]:
        """Count a WebSocket while the block runs; `way_in` is the hash of a session or token, if any.

        Starts before the handshake, because otherwise concurrent handshakes would exceed the limit.
        """
        visitor = Visitor(person, way_in, socket)
        self._of[person].add(visitor)
        try:
            yield visitor
        finally:
            self._of[person].discard(visitor)

    async def end_person(self, person: str) -> None:
        """Close the WebSockets of a revoked person."""
        await _close(self._of[person], WSCloseCode.POLICY_VIOLATION, b"revoked")

    async def end_way_in(self, person: str, way_in: str) -> None:
        """Close the WebSockets of a session that was logged out, or of a revoked token."""
        gone = {visitor for visitor in self._of[person] if visitor.way_in == way_in}
        await _close(gone, WSCloseCode.POLICY_VIOLATION, b"logged out")

    async def end_all(self) -> None:
        """Close all WebSockets because the bridge stops. Code 1001 tells pages to reconnect."""
        everyone = {visitor for open_sockets in self._of.values() for visitor in open_sockets}
        await _close(everyone, WSCloseCode.GOING_AWAY, b"the bridge stops")


async def _close(open_sockets: set[Visitor], code: int, reason: bytes) -> None:
    for visitor in open_sockets:
        visitor.is_ended = True
    closing = (visitor.socket.close(code=code, message=reason) for visitor in open_sockets if visitor.socket.prepared)
    # A peer that does not answer is not awaited: its connection ends with the server's.
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await asyncio.gather(*closing, return_exceptions=True)
