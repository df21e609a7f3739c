"""Who comes through the doors for other programs: by a person's token in the Authorization header, and by nothing else.

Every such door asks here before it does anything. A cookie opens none of them, so no page elsewhere can have a browser
knock, and a token in an address would stand in logs. What goes on for a program ends at once when its token is revoked,
or its person: `entered` is left by RevokedError then, wherever its block waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.cluster.passed import PASSED, Passed
from bridge.door.login import bearer
from bridge.door.tokens import Holder
from bridge.errors import BridgeError
from bridge.observing.request_keys import PERSON

if TYPE_CHECKING:
    from aiohttp import web

    from bridge.door.tokens import PersonTokens, Scope

#: Requests of one person that are answered at the same time; streams last for minutes.
MAX_GUESTS_PER_PERSON = 32


class DoorError(BridgeError):
    """Why a program does not get what it asks for, in words; each door says them in its own shape.

    `status` is HTTP's, `code` for programs, `retry_after` in seconds.
    """

    def __init__(self, status: int, code: str, words: str, *, retry_after: int | None = None) -> None:
        super().__init__(words)
        self.status = status
        self.code = code
        self.retry_after = retry_after

    def headers(self) -> dict[str, str]:
        """What belongs to it in any shape."""
        headers = {"Cache-Control": "no-store"}
        if self.status == 401:  # noqa: PLR2004 - unauthorized
            headers["WWW-Authenticate"] = "Bearer"
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        return headers


class NotAdmittedError(DoorError):
    """This program may not come in."""


class RevokedError(NotAdmittedError):
    """The token was revoked meanwhile, or its person was."""

    def __init__(self) -> None:
        super().__init__(401, "unauthorized", "This token was revoked.")


@dataclass(slots=True, eq=False)
class _Guest:
    holder: Holder
    until: asyncio.Timeout


class Admission:
    """`async with admission.entered(request, scope) as holder:` around whatever a door does for a program.

    `is_open` says whether the bridge takes new visitors.
    """

    def __init__(self, tokens: PersonTokens, is_open: Callable[[], bool]) -> None:
        self._tokens = tokens
        self._is_open = is_open
        self._guests: set[_Guest] = set()
        self._revocations = 0

    @asynccontextmanager
    async def entered(self, request: web.Request, scope: Scope | None) -> AsyncIterator[Holder]:
        """Whose request it is, whose token has this scope (None: any), while the block answers it.

        NotAdmittedError where there is no such token; RevokedError from within the block as soon as it is revoked.
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
        """Ends what goes on with one token."""
        self._end({guest for guest in self._guests if guest.holder.key == key})

    def end_person(self, person: str) -> None:
        """Ends what goes on for a person."""
        self._end({guest for guest in self._guests if guest.holder.person == person})

    def ways_in(self) -> set[tuple[str, str | None]]:
        """Whoever is answered, and by which token."""
        return {(guest.holder.person, guest.holder.key.hex()) for guest in self._guests}

    def counts(self) -> dict[str, int]:
        """How many requests of each person are being answered."""
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
            # One that was revoked between the look and here would not be ended by that.
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


def _passed(passed: Passed) -> Holder | None:
    """Whose token another bridge has found; None where the request came without one."""
    if passed.by != "token" or passed.way_in is None:
        return None
    return Holder(passed.person, passed.label, passed.scopes, bytes.fromhex(passed.way_in))


def _no_token(token: str | None) -> str:
    how = "`python -m bridge users token NAME` makes one."
    if token is None:
        return f"This address wants a token: `Authorization: Bearer ...`. {how}"
    return f"This token is not known here, or was revoked. {how}"
