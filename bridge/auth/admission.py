"""Admission and revocation: the running requests of programs, the open WebSockets, and their end.

Programs send a person's token in the Authorization header only: foreign pages could send cookies, and URLs appear in
logs. A revocation ends this bridge's connections at once; other bridges poll the database and end theirs.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import WSCloseCode, web

from bridge.auth.login import bearer
from bridge.auth.tokens import Holder, PersonTokens, Scope
from bridge.cluster.forward import PASSED, ForwardedIdentity
from bridge.db.database import Database, DatabaseError, Transaction
from bridge.errors import BridgeError
from bridge.telemetry.logs import PERSON
from sprite.common.tasks import Service, owned_task

#: Concurrent requests of one person; streams last for minutes.
MAX_GUESTS_PER_PERSON = 32


class DoorError(BridgeError):
    """A program's request is refused; each endpoint has its own format. `retry_after` is in seconds."""

    def __init__(self, status: int, code: str, words: str, *, retry_after: int | None = None) -> None:
        super().__init__(words)
        self.status = status
        self.code = code
        self.retry_after = retry_after

    def headers(self) -> dict[str, str]:
        """Return the headers that belong to the refusal in any format."""
        headers = {"Cache-Control": "no-store"}
        if self.status == 401:  # noqa: PLR2004 - unauthorized
            headers["WWW-Authenticate"] = "Bearer"
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        return headers


class RevokedError(DoorError):
    """A program's token or its person was revoked during the request."""

    def __init__(self) -> None:
        super().__init__(401, "unauthorized", "This token was revoked.")


@dataclass(slots=True, eq=False)
class _Guest:
    holder: Holder
    until: asyncio.Timeout


class Admission:
    """Admit requests of programs, and end them when their token or person is revoked.

    Every endpoint uses `entered`. `is_open` returns whether the bridge accepts requests.
    """

    def __init__(self, tokens: PersonTokens, is_open: Callable[[], bool]) -> None:
        self._tokens = tokens
        self._is_open = is_open
        self._guests: set[_Guest] = set()
        self._revocations = 0

    @asynccontextmanager
    async def entered(self, request: web.Request, scope: Scope | None) -> AsyncIterator[Holder]:
        """Yield the holder of a token with `scope` (None: any) or raise DoorError; RevokedError once it is revoked."""
        try:
            async with asyncio.timeout(None) as until:
                guest = await self._admitted(request, scope, until)
                try:
                    request[PERSON] = guest.holder.person
                    await self._tokens.used(guest.holder)
                    yield guest.holder
                finally:
                    self._guests.discard(guest)
        except TimeoutError as error:
            if until.expired():
                raise RevokedError from error
            raise

    def revoked(self, key: bytes) -> None:
        """End the running requests of a revoked token; `key` is its hash."""
        self._end({guest for guest in self._guests if guest.holder.key == key})

    def end_person(self, person: str) -> None:
        """End the running requests of a person."""
        self._end({guest for guest in self._guests if guest.holder.person == person})

    def ways_in(self) -> set[tuple[str, str | None]]:
        """Return the persons and token hashes of the running API requests."""
        return {(guest.holder.person, guest.holder.key.hex()) for guest in self._guests}

    async def _admitted(self, request: web.Request, scope: Scope | None, until: asyncio.Timeout) -> _Guest:
        if not self._is_open():
            raise DoorError(503, "stopping", "The bridge is starting or stopping.", retry_after=2)
        token = bearer(request)
        while True:
            revocations = self._revocations
            holder = await self._holder(request, token)
            # Look up again: a revocation during the lookup would not end this request.
            if revocations == self._revocations:
                break
        if holder is None:
            why = "This token is unknown or was revoked."
            if token is None:
                why = "This address requires a token: `Authorization: Bearer ...`."
            raise DoorError(401, "unauthorized", f"{why} `python -m bridge users token NAME` makes one.")
        if scope is not None and not holder.may(scope):
            raise DoorError(
                403,
                "missing_scope",
                f"This token lacks the scope {scope}. `python -m bridge users token {holder.person} --scope {scope}` "
                "makes one that has.",
            )
        if sum(guest.holder.person == holder.person for guest in self._guests) >= MAX_GUESTS_PER_PERSON:
            raise DoorError(
                429,
                "too_many_requests",
                "Too many of your requests are in progress. Try again when one has ended.",
                retry_after=5,
            )
        guest = _Guest(holder, until)
        self._guests.add(guest)
        return guest

    async def _holder(self, request: web.Request, token: str | None) -> Holder | None:
        """Return the token's holder, as verified by the bridge that forwarded the request, if any."""
        if PASSED not in request:
            return await self._tokens.holder(token) if token else None
        passed = request[PASSED]
        if passed.by != "token" or passed.way_in is None:
            return None
        return Holder(passed.person, passed.label, passed.scopes, bytes.fromhex(passed.way_in))

    def _end(self, guests: set[_Guest]) -> None:
        self._revocations += 1
        self._guests -= guests
        now = asyncio.get_running_loop().time()
        for guest in guests:
            guest.until.reschedule(now)


#: A person has a few pages and a terminal open; each holds a queue of events.
MAX_SOCKETS_PER_PERSON = 32
_CLOSE_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class Visitor:
    """A WebSocket that is open or about to be, its person, and the hash of the session or token behind it."""

    person: str
    way_in: str | None
    socket: web.WebSocketResponse
    #: Set when it has to close, perhaps before it was open.
    is_ended: bool = False


class OpenSockets:
    """Track the open WebSockets of pages and terminals."""

    def __init__(self) -> None:
        self._of: defaultdict[str, set[Visitor]] = defaultdict(set)

    def counts(self) -> dict[str, int]:
        """Return the number of open WebSockets by person."""
        return {person: len(open_sockets) for person, open_sockets in self._of.items() if open_sockets}

    def ways_in(self) -> set[tuple[str, str | None]]:
        """Return the persons and credentials of the open WebSockets."""
        return {(visitor.person, visitor.way_in) for open_sockets in self._of.values() for visitor in open_sockets}

    def may_enter(self, person: str) -> bool:
        """Return whether the person may open one more WebSocket."""
        return len(self._of[person]) < MAX_SOCKETS_PER_PERSON

    @contextmanager
    def inside(self, person: str, way_in: str | None, socket: web.WebSocketResponse) -> Iterator[Visitor]:
        """Count a WebSocket, with the hash of its session or token. Enter before its handshake, to keep the limit."""
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


log = logging.getLogger(__name__)

#: Interval of polls for revocations by other bridges.
CHECK_SECONDS = 2.0
_AT_ONCE = 500

#: A person and their credential: the hash of a session or token, in hex, or None for the control socket.
WayIn = tuple[str, str | None]


class Revocations(Service):
    """Poll the shared database, and close connections whose credentials another bridge revoked."""

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

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(owned_task(self._check(), name="revocations", on_death=self._on_death))

    async def is_good(self, passed: ForwardedIdentity) -> bool:
        """Return whether a forwarded credential is still valid."""
        return not await self._gone({(passed.person, passed.way_in)})

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(self._check_seconds)
            try:
                gone = await self._gone({*self._open_sockets.ways_in(), *self._admission.ways_in()})
            except DatabaseError as error:
                log.warning("revocations cannot be looked up (%s)", error.code)
                continue
            for person, way_in in gone:
                await self._end(person, way_in)

    async def _gone(self, ways: set[WayIn]) -> set[WayIn]:
        """Return which of these pairs of a person and a credential are revoked."""
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
