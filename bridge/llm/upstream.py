"""Where model calls go: the address, the real key, and which headers pass in each direction.

The address is the operator's and never anything of a request's; the bridge's key goes there and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import ClientResponse, web
from multidict import CIMultiDict
from yarl import URL

from bridge.llm.errors import RefusedError

#: Of one connection only (RFC 9110, 7.6.1), or said anew for the next one.
_HOP_BY_HOP = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    "upgrade".split()
)
#: The sprite's word, what would show where it is, and what the next request says for itself.
_KEPT_BACK = _HOP_BY_HOP | frozenset(
    "authorization x-api-key cookie host content-length expect accept-encoding forwarded via x-real-ip".split()
)
#: What holds for the upstream's origin only, not for the bridge's.
_NOT_PASSED_ON = _HOP_BY_HOP | frozenset("set-cookie alt-svc strict-transport-security".split())
_PLAIN_QUERY = re.compile(r"[A-Za-z0-9_.~=&%+,:-]{0,512}")


@dataclass(frozen=True, slots=True)
class Upstream:
    """The API that answers. `api_key` goes as `x-api-key`, else `auth_token` as a Bearer token.

    `base_url` may have a path: `/v1/messages` is added to it.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    auth_token: str | None = field(default=None, repr=False)

    def url(self, path: str, query: str) -> URL:
        """The address for one of our own `path`s, with the request's raw query. RefusedError for an odd one."""
        if _PLAIN_QUERY.fullmatch(query) is None:
            raise RefusedError(400, "The address has a query that cannot be passed on.")
        address = self.base_url.rstrip("/") + path
        return URL(f"{address}?{query}" if query else address, encoded=True)

    def request_headers(self, request: web.Request) -> CIMultiDict[str]:
        """What the upstream is told: the client's headers but its credentials, and the real key."""
        passed = _passed(request.headers, _KEPT_BACK)
        # Bytes pass as they are, and usage is read from them on the way.
        passed["Accept-Encoding"] = "identity"
        if self.api_key is not None:
            passed["X-Api-Key"] = self.api_key
        elif self.auth_token is not None:
            passed["Authorization"] = f"Bearer {self.auth_token}"
        return passed


def response_headers(response: ClientResponse) -> CIMultiDict[str]:
    """What the client is told of the upstream's headers."""
    return _passed(response.headers, _NOT_PASSED_ON)


def _passed(headers: Mapping[str, str], kept_back: frozenset[str]) -> CIMultiDict[str]:
    named = headers.get("Connection", "")
    if named and named.lower() not in {"keep-alive", "close"}:
        kept_back |= {name.strip().lower() for name in named.split(",")}
    return CIMultiDict(
        (name, value)
        for name, value in headers.items()
        if (lower := name.lower()) not in kept_back and not lower.startswith("x-forwarded-")
    )
