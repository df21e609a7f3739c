"""Authentication of programs: by a person's token in the Authorization header only.

Every API endpoint enters here first. Cookies do not count, so no foreign page can make a browser send a valid request.
Tokens in URLs do not count either, because URLs appear in logs. When a token or its person is revoked, running requests
end at once: `entered` raises RevokedError wherever its block waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.auth.login import bearer
from bridge.auth.tokens import Holder, PersonTokens, Scope
from bridge.cluster.forward_header import PASSED, ForwardedIdentity
from bridge.errors import BridgeError
from bridge.telemetry.logs import PERSON

if TYPE_CHECKING:
    from aiohttp import web


#: Concurrent requests of one person; streams last for minutes.
MAX_GUESTS_PER_PERSON = 32


class DoorError(BridgeError):
    """A program's request is refused; each endpoint uses its own format for the message.

    `status` is the HTTP status, `code` is for programs, `retry_after` is in seconds.
    """

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


class NotAdmittedError(DoorError):
    """The program is not authenticated or not authorized."""


class RevokedError(NotAdmittedError):
    """The token or its person was revoked during the request."""

    def __init__(self) -> None:
        super().__init__(401, "unauthorized", "This token was revoked.")


@dataclass(slots=True, eq=False)
class _Guest:
    holder: Holder
    until: asyncio.Timeout


class Admission:
    """Running requests of programs: `async with admission.entered(request, scope) as holder:` in every endpoint.

    `is_open` returns whether the bridge accepts requests.
    """

    def __init__(self, tokens: PersonTokens, is_open: Callable[[], bool]) -> None:
        self._tokens = tokens
        self._is_open = is_open
        self._guests: set[_Guest] = set()
        self._revocations = 0

    @asynccontextmanager
    async def entered(self, request: web.Request, scope: Scope | None) -> AsyncIterator[Holder]:
        """Authenticate a request that needs `scope` (None: any token) and yield the token's holder.

        Raises NotAdmittedError without such a token, and RevokedError inside the block as soon as it is revoked.
        """
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
        """End the running requests of one token."""
        self._end({guest for guest in self._guests if guest.holder.key == key})

    def end_person(self, person: str) -> None:
        """End the running requests of a person."""
        self._end({guest for guest in self._guests if guest.holder.person == person})

    def ways_in(self) -> set[tuple[str, str | None]]:
        """Return the persons and token hashes of the running requests."""
        return {(guest.holder.person, guest.holder.key.hex()) for guest in self._guests}

    def counts(self) -> dict[str, int]:
        """Return the number of running requests by person."""
        counts: dict[str, int] = {}
        for guest in self._guests:
            counts[guest.holder.person] = counts.get(guest.holder.person, 0) + 1
        return counts

    async def _admitted(self, request: web.Request, scope: Scope | None, until: asyncio.Timeout) -> _Guest:
        if not self._is_open():
            raise NotAdmittedError(503, "stopping", "The bridge is starting or stopping.", retry_after=2)
        token = bearer(request)
        while True:
            revocations = self._revocations
            holder = _passed(request[PASSED]) if PASSED in request else await self._found(token)
            # Look up again: a revocation during the lookup would not end this request.
            if revocations == self._revocations:
                break
        if holder is None:
            raise NotAdmittedError(401, "unauthorized", _no_token(token))
        if scope is not None and not holder.may(scope):
            raise NotAdmittedError(
                403,
                "missing_scope",
                f"This token has not the scope {scope}. `python -m bridge users token {holder.person} --scope {scope}` "
                "makes one that has.",
            )
        if self.counts().get(holder.person, 0) >= MAX_GUESTS_PER_PERSON:
            raise NotAdmittedError(
                429, "too_many_requests", "Too many requests of yours are being answered already.", retry_after=5
            )
        guest = _Guest(holder, until)
        self._guests.add(guest)
        return guest

    async def _found(self, token: str | None) -> Holder | None:
        return await self._tokens.holder(token) if token else None

    def _end(self, guests: set[_Guest]) -> None:
        self._revocations += 1
        self._guests -= guests
        now = asyncio.get_running_loop().time()
        for guest in guests:
            guest.until.reschedule(now)


def _passed(passed: ForwardedIdentity) -> Holder | None:
    """Return the token's holder as found by another bridge; None if the request had no token."""
    if passed.by != "token" or passed.way_in is None:
        return None
    return Holder(passed.person, passed.label, passed.scopes, bytes.fromhex(passed.way_in))


def _no_token(token: str | None) -> str:
    how = "`python -m bridge users token NAME` makes one."
    if token is None:
        return f"This address wants a token: `Authorization: Bearer ...`. {how}"
    return f"This token is not known here, or was revoked. {how}"
