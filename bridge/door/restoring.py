"""A lost agent is made again of what is kept of it: for its person at `POST /restore`, for operators at their socket.

Everybody who looks at the sprite meanwhile is told how far it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from aiohttp import web

from bridge.cluster.ownership import NotOwnedError
from bridge.door import login, messages
from bridge.hosts.host import Host, HostError, Phase, Report
from bridge.observing.request_keys import PERSON
from bridge.store.export import Exported, Source, exported_as_owner
from bridge.store.restore import Asked, Restored, Restorer, RestoreRefusedError
from bridge.store.store import StoreError

if TYPE_CHECKING:
    from bridge.cluster.ownership import Ownership
    from bridge.door.login import Doorkeeper
    from bridge.relay.relay import Relay


#: What a person may ask for, and what has to be offered for that; see LinkState.
_OFFERED: Final = {"restore": None, "replace": "replace", "over": "choose", "keep": "choose"}


class Restoring:
    """A restorer, the relay that tells pages and terminals of it, and whether this bridge has the sprite."""

    def __init__(self, restorer: Restorer, relay: Relay, ownership: Ownership) -> None:
        self._restorer = restorer
        self._relay = relay
        self._ownership = ownership

    async def exported(
        self, host: Host, sprite: str, source: Source | None, as_of: float | None, *, leave_out_damaged: bool
    ) -> Exported:
        """See `exported_as_owner`."""
        return await exported_as_owner(
            *(self._ownership, host, self._restorer, sprite, lambda *_: None),
            source=source,
            as_of=as_of,
            leave_out_damaged=leave_out_damaged,
        )

    async def kept_words(self, sprite: str) -> tuple[str, float] | None:
        """See Losses."""
        return await self._restorer.kept_words(sprite)

    def using(self, sprite: str) -> AbstractContextManager[None]:
        """Keeps the sprite, where this bridge has it, while the block runs."""
        return self._ownership.using(sprite)

    async def restore(self, sprite: str, asked: Asked, report: Report) -> Restored:
        """See Restorer. NotOwnedError where another bridge has the sprite."""

        def tell(phase: Phase, words: str) -> None:
            report(phase, words)
            self._relay.report(sprite, phase, words)

        try:
            await self._ownership.own(sprite)
            with self._ownership.using(sprite):
                return await self._restorer.restore(sprite, asked, tell)
        finally:
            # Whoever waits for it does not wait for the next attempt.
            self._relay.nudge(sprite)

    def door(self, doorkeeper: Doorkeeper) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """`POST /restore`, for the person whose sprite it is: the newest that is kept, over nothing that is there.

        `?how=` says more, which is done only where the person's page offers it: `replace` puts it on a new machine,
        `over` in the place of what is there, `keep` leaves the agent as it is.
        """

        async def answer(request: web.Request) -> web.StreamResponse:
            if doorkeeper.is_forged(request):
                return login.foreign_origin(request)
            caller = await doorkeeper.caller(request)
            if caller is None:
                return doorkeeper.logged_out(request)
            return await self.answer(request, caller.person)

        return answer

    async def asked_by(self, person: str, how: str, *, actor: str | None = None) -> Restored:
        """What the person asked for, or `actor` for them, done.

        RestoreRefusedError where it is not what is offered now.
        """
        if how not in _OFFERED:
            raise RestoreRefusedError(f"how is {', '.join(_OFFERED)}, or is not said.")
        offered = _OFFERED[how]
        if offered is not None and self._relay.offer(person) != offered:
            raise RestoreRefusedError("Your agent does not need that at the moment, and nothing was changed.")
        if how == "keep":
            return Restored(await self._restorer.go_on(person, actor or person))
        asked = Asked(actor or person, over=offered is not None, anew=how == "replace")
        return await self.restore(person, asked, lambda _phase, _words: None)

    async def answer(self, request: web.Request, person: str, *, actor: str | None = None) -> web.StreamResponse:
        """The same, for a person who is known by now; `actor` is who asks for it, where that is another."""
        request[PERSON] = person
        try:
            done = await self.asked_by(person, request.query.get("how", "restore"), actor=actor)
        except RestoreRefusedError as error:
            return messages.page(request, 409, "Nothing was restored", str(error), code="refused")
        except (HostError, StoreError, NotOwnedError) as error:
            return messages.page(request, 503, "It could not be restored", str(error), code="unavailable")
        said = {"message": done.words, "left_out": done.left_out}
        return web.json_response(said, headers={"Cache-Control": "no-store"})
