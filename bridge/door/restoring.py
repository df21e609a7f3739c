"""Restore of a lost agent from its replica: for its person at `POST /restore`, for operators at the control socket.

Everyone who has the sprite open sees the progress.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from aiohttp import web

from bridge.cluster.ownership import NotOwnedError, Ownership
from bridge.door import messages
from bridge.hosts.host import Host, HostError, Phase, Report
from bridge.observing.request_keys import PERSON
from bridge.store.export import Exported, Source, exported_as_owner
from bridge.store.restore import Asked, Restored, Restorer, RestoreRefusedError
from bridge.store.store import StoreError

if TYPE_CHECKING:
    from bridge.door.login import Doorkeeper
    from bridge.relay.relay import Relay


#: A person's choices, and the offer that each requires; see LinkState.
_OFFERED: Final = {"restore": None, "replace": "replace", "over": "choose", "keep": "choose"}


class Restoring:
    """Restores and exports of sprites, with the relay that reports progress and the ownership of sprites."""

    def __init__(self, restorer: Restorer, relay: Relay, ownership: Ownership) -> None:
        self._restorer = restorer
        self._relay = relay
        self._ownership = ownership

    async def exported(
        self, host: Host, sprite: str, source: Source | None, as_of: float | None, *, leave_out_damaged: bool
    ) -> Exported:
        """See `exported_as_owner`."""
        return await exported_as_owner(
            self._ownership,
            host,
            self._restorer,
            sprite,
            lambda *_: None,
            source=source,
            as_of=as_of,
            leave_out_damaged=leave_out_damaged,
        )

    async def kept_words(self, sprite: str) -> tuple[str, float] | None:
        """See Losses."""
        return await self._restorer.kept_words(sprite)

    def using(self, sprite: str) -> AbstractContextManager[None]:
        """Keep the sprite's lease, if this bridge has one, while the block runs."""
        return self._ownership.using(sprite)

    async def restore(self, sprite: str, asked: Asked, report: Report) -> Restored:
        """Restore a sprite; see Restorer. Raises NotOwnedError if another bridge owns it."""

        def tell(phase: Phase, words: str) -> None:
            report(phase, words)
            self._relay.report(sprite, phase, words)

        try:
            await self._ownership.own(sprite)
            with self._ownership.using(sprite):
                return await self._restorer.restore(sprite, asked, tell)
        finally:
            # Clients that wait for the sprite get it now, without waiting for the next attempt.
            self._relay.nudge(sprite)

    def door(self, doorkeeper: Doorkeeper) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return the handler of `POST /restore`: restores the person's newest replica, without replacing anything.

        `?how=` selects another way, accepted only while the person's page offers it. `replace` uses a new machine,
        `over` replaces the current agent, `keep` leaves the agent as it is.
        """

        async def answer(request: web.Request) -> web.StreamResponse:
            caller = await doorkeeper.known(request, acts=True)
            return await self.answer(request, caller.person)

        return answer

    async def asked_by(self, person: str, how: str, *, actor: str | None = None) -> Restored:
        """Do what the person, or `actor` for them, asked for.

        Raises RestoreRefusedError if it is not offered now.
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
        """Answer a restore request of an authenticated person; `actor` is the requester, if different."""
        request[PERSON] = person
        try:
            done = await self.asked_by(person, request.query.get("how", "restore"), actor=actor)
        except RestoreRefusedError as error:
            return messages.page(request, 409, "Nothing was restored", str(error), code="refused")
        except (HostError, StoreError, NotOwnedError) as error:
            return messages.page(request, 503, "It could not be restored", str(error), code="unavailable")
        said = {"message": done.words, "left_out": done.left_out}
        return web.json_response(said, headers={"Cache-Control": "no-store"})
