"""Revocations take effect at every bridge: at once by notification, or within seconds by polling.

The revoking bridge ends its own connections. It notifies the others (`tell_revoked` in tokens.py), and each also polls
the database for the credentials of its open connections.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from bridge.auth.tokens import REVOKED
from bridge.db.open import Database, DatabaseError, Transaction
from sprite.common.tasks import owned_task

if TYPE_CHECKING:
    from bridge.auth.admission import Admission
    from bridge.auth.open_sockets import OpenSockets
    from bridge.cluster.forward_header import ForwardedIdentity


log = logging.getLogger(__name__)

#: Interval of polls for missed revocations.
CHECK_SECONDS = 10.0
#: Longer than a forwarded request's signature is valid: revocations within this time are looked up again.
_RECENT_SECONDS = 90.0
_MOST_RECENT = 10_000
_AT_ONCE = 500

_WAY_IN = re.compile(r"(?:[0-9a-f]{2}){1,64}")

#: A person and their credential: the hash of a session or token, in hex; None for the control socket.
WayIn = tuple[str, str | None]


class Revocations:
    """Revocations of bridges that share a database: `async with Revocations(...) as revocations:`."""

    def __init__(
        self,
        database: Database,
        open_sockets: OpenSockets,
        admission: Admission,
        on_death: Callable[[], None],
        *,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self._database = database
        self._open_sockets = open_sockets
        self._admission = admission
        self._on_death = on_death
        self._check_seconds = check_seconds
        #: Time of each person's latest revocation, oldest first.
        self._recent: OrderedDict[str, float] = OrderedDict()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for task in (
            owned_task(self._listen(), name="revocations", on_death=self._on_death),
            owned_task(self._check(), name="revocations that were missed", on_death=self._on_death),
        ):
            await self._stack.enter_async_context(task)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def is_good(self, passed: ForwardedIdentity) -> bool:
        """Return whether a forwarded credential is still valid. Looked up only after a recent revocation."""
        revoked_at = self._recent.get(passed.person)
        if revoked_at is None or time.monotonic() - revoked_at > _RECENT_SECONDS:
            return True
        return not await self._gone({(passed.person, passed.way_in)})

    async def _listen(self) -> None:
        async for told in self._database.listen(REVOKED):
            await self.heard(told)

    async def heard(self, told: str) -> None:
        """Handle a notification of REVOKED: a person, or a person and a credential.

        Untrusted: any database client can send it.
        """
        person, _, way_in = told.partition(" ")
        if way_in and _WAY_IN.fullmatch(way_in) is None:
            return
        self._note(person)
        await self._end(person, way_in or None)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(self._check_seconds)
            try:
                gone = await self._gone({*self._open_sockets.ways_in(), *self._admission.ways_in()})
            except DatabaseError as error:
                log.warning("whether somebody was revoked cannot be asked (%s)", error.code)
                continue
            for person, way_in in gone:
                self._note(person)
                await self._end(person, way_in)

    async def _gone(self, ways: set[WayIn]) -> set[WayIn]:
        """Return the credentials that are revoked."""
        if not ways:
            return set()

        def find(db: Transaction) -> set[WayIn]:
            people = {person for person, _ in ways}
            may_come = {row[0] for row in _found(db, "name FROM people WHERE revoked_at IS NULL AND name", people)}
            keys = {bytes.fromhex(way_in) for _, way_in in ways if way_in is not None}
            good = {bytes(row[0]).hex() for row in _found(db, "id_sha256 FROM sessions WHERE id_sha256", keys)}
            tokens = _found(db, "token_sha256 FROM person_tokens WHERE token_sha256", keys)
            good |= {bytes(row[0]).hex() for row in tokens}
            return {way for way in ways if way[0] not in may_come or (way[1] is not None and way[1] not in good)}

        return await self._database.read(find)

    def _note(self, person: str) -> None:
        self._recent[person] = time.monotonic()
        self._recent.move_to_end(person)
        if len(self._recent) > _MOST_RECENT:
            self._recent.popitem(last=False)

    async def _end(self, person: str, way_in: str | None) -> None:
        if way_in is None:
            self._admission.end_person(person)
            await self._open_sockets.end_person(person)
        else:
            self._admission.revoked(bytes.fromhex(way_in))
            await self._open_sockets.end_way_in(person, way_in)


def _found(db: Transaction, what: str, keys: Iterable[str | bytes]) -> list[Any]:
    found: list[Any] = []
    every = list(keys)
    for some in (every[begin : begin + _AT_ONCE] for begin in range(0, len(every), _AT_ONCE)):
        marks = ", ".join("?" * len(some))
        found += db.execute(f"SELECT {what} IN ({marks})", some).fetchall()
    return found
