"""The upstream of model calls: its address, the real key, and the headers that pass in each direction.

The address is the operator's and never depends on a request; the bridge's key is sent only there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from aiohttp import ClientResponse, web
from multidict import CIMultiDict
from yarl import URL

from bridge.proxy.errors import RefusedError
from bridge.proxy.features import ApiFeatures
from sprite.common import own_secrets

#: Response headers that clients use; others are between the upstream and the bridge.
_ANSWERED = frozenset(
    "content-type content-length cache-control retry-after retry-after-ms x-should-retry "
    "request-id x-request-id".split()
)
_ANSWERED_PREFIX = "anthropic-ratelimit-"
_REQUEST_IDS = ("request-id", "x-request-id")
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_PLAIN_QUERY = re.compile(r"[A-Za-z0-9_.~=&%+,:-]{0,512}")
#: The only query parameter that clients send; a gateway may interpret others itself.
_BETA_QUERY = "beta=true"


@dataclass(frozen=True)
class Upstream:
    """Address and credentials of the API. `api_key` is sent as `x-api-key`, otherwise `auth_token` as a Bearer token.

    `base_url` may have a path: `/v1/messages` is appended to it.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    auth_token: str | None = field(default=None, repr=False)

    def url(self, path: str, query: str) -> URL:
        """Return the URL for one of our own `path`s, with the allowed part of the request's raw query.

        Raise RefusedError for a malformed query.
        """
        if _PLAIN_QUERY.fullmatch(query) is None:
            raise RefusedError(400, "The address has a query that cannot be passed on.")
        address = self.base_url.rstrip("/") + path
        return URL(f"{address}?{_BETA_QUERY}" if _BETA_QUERY in query.split("&") else address, encoded=True)

    def request_headers(self, request: web.Request, exits: ApiFeatures) -> CIMultiDict[str]:
        """Return the headers for the upstream: the client's allowed headers and the real key."""
        passed = CIMultiDict(
            (name, value) for name, value in request.headers.items() if exits.passes_header(name.lower())
        )
        betas = exits.betas_of(",".join(passed.popall("anthropic-beta", ())))
        if betas:
            passed["anthropic-beta"] = betas
        # The upstream must parse the body as it was parsed here.
        passed["Content-Type"] = "application/json"
        # Usage and errors are read from the forwarded bytes.
        passed["Accept-Encoding"] = "identity"
        if self.api_key is not None:
            passed["X-Api-Key"] = self.api_key
        elif self.auth_token is not None:
            passed["Authorization"] = f"Bearer {self.auth_token}"
        return passed

    def response_headers(self, response: ClientResponse) -> CIMultiDict[str]:
        """Return the upstream's headers that the client receives."""
        passed = CIMultiDict(
            (name, own_secrets.without(value))
            for name, value in response.headers.items()
            if (lower := name.lower()) in _ANSWERED or lower.startswith(_ANSWERED_PREFIX)
        )
        if "Content-Encoding" in response.headers:
            passed.popall("Content-Length", None)
        return passed

    def request_id(self, response: ClientResponse) -> str | None:
        """Return the upstream's id of this exchange, for the log and the ledger."""
        for name in _REQUEST_IDS:
            value = response.headers.get(name, "")
            if _REQUEST_ID.fullmatch(value) and own_secrets.without(value) == value:
                return value
        return None
