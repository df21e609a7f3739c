"""The new session of a browser after a login by OIDC or passkey, and the end of its previous one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bridge.auth.login import Authenticator, return_path, way_in_of
from bridge.telemetry.logs import PERSON

if TYPE_CHECKING:
    from bridge.auth.open_sockets import OpenSockets
    from bridge.auth.people import People


class Arriving:
    """The last step of a login by OIDC or passkey."""

    def __init__(self, authenticator: Authenticator, people: People, open_sockets: OpenSockets) -> None:
        self._authenticator = authenticator
        self._people = people
        self._open_sockets = open_sockets

    async def logged_in(self, request: web.Request, person: str, response: web.Response) -> bool:
        """Give the browser a session with this response. Return False if the person was revoked."""
        left = await self._authenticator.browser(request)
        session = await self._people.new_session(person)
        if session is None:
            return False
        request[PERSON] = person
        self._authenticator.remember(response, session)
        if left is not None and left.session is not None:
            # No browser has its cookie any more.
            await self._people.end_session(left.session)
            await self._open_sockets.end_way_in(left.person, way_in_of(left.session))
        return True


def sent_to(path: str) -> web.Response:
    """Return a redirect to a path of this bridge, or to `/` for any other target."""
    return web.Response(status=303, headers={"Location": return_path(path), "Cache-Control": "no-store"})
