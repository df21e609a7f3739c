"""A logged-in person's own archive and tokens, for the page's settings."""

from aiohttp import web
from aiohttp.typedefs import Handler

from bridge.admin.operator_api import OperatorApi, explained
from bridge.auth.login import Authenticator


class OwnRoutes:
    """Serve the operators' handlers for the caller's own name. Tokens are not accepted, only a browser's session."""

    def __init__(self, authenticator: Authenticator, api: OperatorApi) -> None:
        self._authenticator = authenticator
        self._api = api

    def table(self) -> list[web.RouteDef]:
        """Return the routes; register them before the catch-all route for the web page's files."""
        return [
            web.get("/export", self._own(self._api.export), allow_head=False),
            web.get("/tokens", self._own(self._api.tokens), allow_head=False),
            web.post("/tokens", self._own(self._api.make_token, acts=True)),
            web.delete("/tokens/{label}", self._own(self._api.revoke_token, acts=True)),
        ]

    def _own(self, handler: Handler, *, acts: bool = False) -> Handler:
        admit = self._authenticator.who_acts if acts else self._authenticator.who_looks

        async def answer(request: web.Request) -> web.StreamResponse:
            request.match_info["name"] = (await admit(request)).person
            response = await explained(request, handler)
            if not response.prepared:
                response.headers["Cache-Control"] = "no-store"
            return response

        return answer
