"""All API endpoints for programs: their routes and background tasks."""

from contextlib import AsyncExitStack

from aiohttp import web
from aiohttp.typedefs import Handler

from bridge.api.boot import Boot
from bridge.api.completions import Completions
from bridge.api.missions import Asking
from bridge.api.observations import Observations
from bridge.auth.admission import Admission
from bridge.auth.login import bearer
from bridge.auth.tokens import is_persons
from bridge.hub.hub import Relay
from sprite.common.tasks import Service


class Doors(Service):
    """Serve the HTTP API for programs: `async with Doors(admission, relay) as doors:`, while the relay is open."""

    def __init__(self, admission: Admission, relay: Relay) -> None:
        self._asking = Asking(relay)
        self._observations = Observations(admission, relay)
        self._boot = Boot(admission, relay)
        self._completions = Completions(admission, self._asking)

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._asking)
        await stack.enter_async_context(self._boot)

    def routes(self, models_of_sprites: Handler) -> list[web.RouteDef]:
        """Return the API's routes. They come before the model proxy's, whose clients also use `/v1/models`."""

        async def models(request: web.Request) -> web.StreamResponse:
            is_program = is_persons(bearer(request) or "")
            return await (self._completions.models if is_program else models_of_sprites)(request)

        return [
            *self._observations.table(),
            *self._boot.table(),
            *self._completions.table(),
            web.get("/v1/models", models, allow_head=False),
        ]
