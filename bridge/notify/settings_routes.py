"""`GET` and `PUT /notify/settings`: a person's choice of notification texts, for the page and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from bridge.door.small_bodies import small_body
from bridge.notify.settings import NotifySettings, NotifySettingsStore

if TYPE_CHECKING:
    from bridge.door.login import Doorkeeper


class SettingsRoutes:
    """Both routes answer with the current choice: `{"words": false}`."""

    def __init__(self, doorkeeper: Doorkeeper, settings: NotifySettingsStore) -> None:
        self._doorkeeper = doorkeeper
        self._settings = settings

    def table(self) -> list[web.RouteDef]:
        """Return the routes; register them before the catch-all for the page's files."""
        return [
            web.get("/notify/settings", self._show, allow_head=False),
            web.put("/notify/settings", self._change),
        ]

    async def _show(self, request: web.Request) -> web.StreamResponse:
        caller = await self._doorkeeper.known(request)
        return _json(await self._settings.of(caller.person))

    async def _change(self, request: web.Request) -> web.StreamResponse:
        caller = await self._doorkeeper.known(request, acts=True)
        chosen = await small_body(request, NotifySettings, '{"words": true}')
        await self._settings.change(caller.person, chosen)
        return _json(chosen)


def _json(settings: NotifySettings) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(settings), content_type="application/json", headers={"Cache-Control": "no-store"}
    )
