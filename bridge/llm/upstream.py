"""Where model calls go: the address, the real key, and which headers pass in each direction.

The address is the operator's and never anything of a request's; the bridge's key goes there and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from aiohttp import ClientResponse, web
from multidict import CIMultiDict
from yarl import URL

from bridge.llm.errors import RefusedError
from bridge.llm.exits import Exits
from sprite.common import own_secrets

#: The answer's headers that a client has a use for; the rest is between the upstream and the bridge.
_ANSWERED = frozenset(
    "content-type content-length cache-control retry-after retry-after-ms x-should-retry "
    "request-id x-request-id".split()
)
_ANSWERED_PREFIX = "anthropic-ratelimit-"
_REQUEST_IDS = ("request-id", "x-request-id")
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_PLAIN_QUERY = re.compile(r"[A-Za-z0-9_.~=&%+,:-]{0,512}")
#: The one thing that clients ask for in the address; a gateway may take others for its own.
_BETA_QUERY = "beta=true"


@dataclass(frozen=True)
class Upstream:
    """The API that answers. `api_key` goes as `x-api-key`, else `auth_token` as a Bearer token.

    `base_url` may have a path: `/v1/messages` is added to it.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    auth_token: str | None = field(default=None, repr=False)

    def url(self, path: str, query: str) -> URL:
        """The address for one of our own `path`s, with what may pass of the request's raw query.

        RefusedError for an odd one.
        """
        if _PLAIN_QUERY.fullmatch(query) is None:
            raise RefusedError(400, "The address has a query that cannot be passed on.")
        address = self.base_url.rstrip("/") + path
        return URL(f"{address}?{_BETA_QUERY}" if _BETA_QUERY in query.split("&") else address, encoded=True)

    def request_headers(self, request: web.Request, exits: Exits) -> CIMultiDict[str]:
        """What the upstream is told: of the client's headers those that may pass, and the real key."""
        passed = CIMultiDict(
            (name, value) for name, value in request.headers.items() if exits.passes_header(name.lower())
        )
        betas = exits.betas_of(",".join(passed.popall("anthropic-beta", ())))
        if betas:
            passed["anthropic-beta"] = betas
        # As the body was read here it is to be read there.
        passed["Content-Type"] = "application/json"
        # Usage and errors are read from the bytes on their way.
        passed["Accept-Encoding"] = "identity"
        if self.api_key is not None:
            passed["X-Api-Key"] = self.api_key
        elif self.auth_token is not None:
            passed["Authorization"] = f"Bearer {self.auth_token}"
        return passed

    def response_headers(self, response: ClientResponse) -> CIMultiDict[str]:
        """What the client is told of the upstream's headers."""
        passed = CIMultiDict(
            (name, own_secrets.without(value))
            for name, value in response.headers.items()
            if (lower := name.lower()) in _ANSWERED or lower.startswith(_ANSWERED_PREFIX)
        )
        if "Content-Encoding" in response.headers:
            passed.popall("Content-Length", None)
        return passed

    def request_id(self, response: ClientResponse) -> str | None:
        """What the upstream calls this exchange, for the log and the ledger."""
        for name in _REQUEST_IDS:
            value = response.headers.get(name, "")
            if _REQUEST_ID.fullmatch(value) and own_secrets.without(value) == value:
                return value
        return None
