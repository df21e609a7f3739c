"""Connections as they come in: how many there may be, who gives way to whom, and a machine without descriptors.

Who has not said yet who they are is a stranger, and anybody can be one: strangers have a small part of the room, and
the one that has been silent for longest gives way to the next. So no number of them keeps anybody out who has a word
to say. Nor does anybody who is known: each name has a part of the room.

Each of the two programs has this file (see tasks.py); a test keeps the two alike.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Generic, NoReturn, TypeVar

log = logging.getLogger(__name__)
_T = TypeVar("_T")

#: This part of the descriptors is for connections; files, databases and other processes have the rest.
_PART_OF_DESCRIPTORS = 1 / 2
_PART_OF_STRANGERS = 1 / 4
#: Where a connection cannot be taken, it waits in the kernel's queue for so long.
_AGAIN_SECONDS = 0.1
#: It goes on for as long as somebody wants it to, so it is said this often at most.
_COMPLAINT_SECONDS = 60.0


def room(most: int) -> tuple[int, int]:
    """How many connections may be open at once, up to `most`, and how many of them strangers'."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = most if soft == resource.RLIM_INFINITY else min(most, int(soft * _PART_OF_DESCRIPTORS))
    return connections, max(1, int(connections * _PART_OF_STRANGERS))


class Arrivals(Generic[_T]):
    """Who is connected. Pure: who has to give way is the caller's to send away."""

    def __init__(
        self,
        most: int,
        most_strangers: int,
        is_busy: Callable[[_T], bool] = lambda _: False,
        *,
        most_each: int | None = None,
    ) -> None:
        self._most = most
        self._most_strangers = most_strangers
        #: Of one name.
        self._most_each = most if most_each is None else most_each
        self._is_busy = is_busy
        #: Oldest first; so are those of each name.
        self._strangers: dict[_T, None] = {}
        self._known: dict[_T, str] = {}
        self._of: dict[str, dict[_T, None]] = {}

    def enter(self, stranger: _T) -> _T | None:
        """One more is here. Returns who has to leave for it: itself, where nobody but known ones are here."""
        gone = None
        if len(self._strangers) >= self._most_strangers or len(self._strangers) + len(self._known) >= self._most:
            gone = self.give_way()
            if gone is None:
                return stranger
        self._strangers[stranger] = None
        return gone

    def welcome(self, one: _T, name: str) -> _T | None:
        """It is known by now, and gives way to nobody else any more. One that has left already stays away.

        Returns who has to leave where those of its name are too many: the oldest that is silent, else itself.
        """
        if one not in self._strangers:
            return None
        del self._strangers[one]
        own = self._of.setdefault(name, {})
        gone = None
        if len(own) >= self._most_each:
            gone = next((other for other in own if not self._is_busy(other)), one)
        if gone is not one:
            self._known[one] = name
            own[one] = None
        if gone is not None:
            self.leave(gone)
        return gone

    def leave(self, one: _T) -> None:
        """It is gone; as often as called."""
        self._strangers.pop(one, None)
        if (name := self._known.pop(one, None)) is not None:
            self._of[name].pop(one)
            if not self._of[name]:
                del self._of[name]

    def give_way(self) -> _T | None:
        """Takes out the stranger that is to be sent away next: the oldest of the silent ones, else the oldest."""
        oldest = next(iter(self._strangers), None)
        gone = next((one for one in self._strangers if not self._is_busy(one)), oldest)
        if gone is not None:
            del self._strangers[gone]
        return gone


async def accept_for_ever(
    listener: socket.socket, take: Callable[[socket.socket], Awaitable[None]], make_room: Callable[[], None]
) -> NoReturn:
    """Takes every connection that comes, one after another; OSError where the listener itself is gone.

    Where none can be taken, since there is no descriptor left, `make_room` is called and it is tried again soon.
    (asyncio's own loop tries as often as the backlog is long, and logs a traceback each time.)
    """
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    failures, said_at = 0, float("-inf")
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
        except OSError as error:
            if listener.fileno() < 0:
                raise
            failures += 1
            if time.monotonic() - said_at > _COMPLAINT_SECONDS:
                log.warning("connections cannot be taken: %s (%d times)", error.strerror, failures)
                failures, said_at = 0, time.monotonic()
            make_room()
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        try:
            await take(connection)
        except OSError:
            # It was gone before it was here.
            connection.close()
