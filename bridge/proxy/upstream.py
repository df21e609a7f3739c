"""The upstream of model calls: its address, the real key, and the headers that pass in each direction.

The address is the operator's and never depends on a request; the bridge's key is sent only there.
"""

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from aiohttp import ClientResponse, web
from multidict import CIMultiDict
from yarl import URL

from bridge.config import DEFAULT_MODEL_EXITS
from bridge.proxy.errors import RefusedError
from sprite.common import own_secrets
from sprite.common.prices import DEAREST, PRICES, Price, price_of, undated

_HEADERS = frozenset(
    "accept user-agent anthropic-version anthropic-beta anthropic-dangerous-direct-browser-access x-app "
    "x-client-request-id x-claude-code-session-id x-claude-code-agent-id x-claude-code-parent-agent-id "
    "x-claude-code-agent-type x-claude-code-prompt-id x-claude-code-request-class x-claude-code-auxiliary-type "
    "x-claude-code-compaction x-claude-code-context-compacted".split()
)
#: Headers in which an SDK describes itself.
_HEADER_PREFIX = "x-stainless-"
BETAS = frozenset(
    "claude-code interleaved-thinking context-management per-turn-control mid-conversation-tool-changes "
    "mid-conversation-system mid-conversation-system-clear-at thinking-token-count effort thinking-display-updates "
    "thinking-binding-controls redact-thinking prompt-caching prompt-caching-scope prompt-caching-evict "
    "extended-cache-ttl structured-outputs token-counting token-efficient-tools fine-grained-tool-streaming "
    "tool-search-tool advanced-tool-use tool-examples context-1m context-hint output-128k max-tokens task-budgets "
    "cache-diagnosis timing tool-provenance claude-code-side-query computer-use pdfs".split()
)
EXIT_BETAS = {
    "web-search": "web_search",
    "web-fetch": "web_fetch",
    "code-execution": "code_execution",
    "skills": "code_execution",
    "files-api": "files",
    "mcp-client": "mcp_servers",
    "mcp-servers": "mcp_servers",
}
_BETA = re.compile(r"([a-z0-9-]{1,80})-20\d\d-?\d\d-?\d\d")


@dataclass(frozen=True, slots=True)
class ApiFeatures:
    """Features of the model's API that the operator enabled: names of `MODEL_EXITS`."""

    opened: frozenset[str] = DEFAULT_MODEL_EXITS

    def passes_header(self, name: str) -> bool:
        """Return whether a request header (in lower case) is forwarded."""
        return name in _HEADERS or name.startswith(_HEADER_PREFIX)

    def betas_of(self, header: str) -> str:
        """Return the betas of an `anthropic-beta` header that are forwarded; empty for none."""
        return ",".join(beta for each in header.split(",") if self._passes_beta(beta := each.strip().lower()))

    def _passes_beta(self, beta: str) -> bool:
        found = _BETA.fullmatch(beta)
        name = found[1] if found else beta
        return (found is not None and name in BETAS) or EXIT_BETAS.get(name) in self.opened


_FREE = Price(0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Allow-list of models: names or patterns (`claude-*`); an empty one allows every model.

    `is_free` is for the built-in offline model, which answers to any name and costs nothing.
    """

    allowed: tuple[str, ...] = ()
    is_free: bool = False

    def price(self, model: str) -> Price:
        """Return the price of a model, dated names included; the dearest one, if it is not known."""
        return _FREE if self.is_free else price_of(model) or DEAREST

    def knows_price(self, model: str) -> bool:
        """Return whether a model's price is known."""
        return self.is_free or price_of(model) is not None

    def allows(self, model: str) -> bool:
        """Return whether a sprite may use the model."""
        names = (model, undated(model))
        return not self.allowed or any(fnmatchcase(name, pattern) for name in names for pattern in self.allowed)

    def names(self) -> list[str]:
        """Return the names of the allowed models that have a price."""
        return [name for name in PRICES if self.allows(name)]


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
            raise RefusedError(400, "The query of this address cannot be forwarded.")
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
