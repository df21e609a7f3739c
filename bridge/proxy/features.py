"""API features that the operator enabled, and the request headers that are forwarded.

Unknown headers and betas are dropped: at a gateway a header may select another address, and a beta may reach other
hosts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bridge.config import DEFAULT_MODEL_EXITS
from sprite.common.prices import PRICES, Price, price_of, undated

_HEADERS = frozenset(
    "accept user-agent anthropic-version anthropic-beta anthropic-dangerous-direct-browser-access x-app "
    "x-client-request-id x-claude-code-session-id x-claude-code-agent-id x-claude-code-parent-agent-id "
    "x-claude-code-agent-type x-claude-code-prompt-id x-claude-code-request-class x-claude-code-auxiliary-type "
    "x-claude-code-compaction x-claude-code-context-compacted".split()
)
#: Headers in which an SDK describes itself.
_HEADER_PREFIX = "x-stainless-"
_BETAS = frozenset(
    "claude-code interleaved-thinking context-management per-turn-control mid-conversation-tool-changes "
    "mid-conversation-system mid-conversation-system-clear-at thinking-token-count effort thinking-display-updates "
    "thinking-binding-controls redact-thinking prompt-caching prompt-caching-scope prompt-caching-evict "
    "extended-cache-ttl structured-outputs token-counting token-efficient-tools fine-grained-tool-streaming "
    "tool-search-tool advanced-tool-use tool-examples context-1m context-hint output-128k max-tokens task-budgets "
    "cache-diagnosis timing tool-provenance claude-code-side-query computer-use pdfs".split()
)
_EXIT_BETAS = {
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
    """Features that the operator enabled: names of `MODEL_EXITS`."""

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
        return (found is not None and name in _BETAS) or _EXIT_BETAS.get(name) in self.opened


_FREE = Price(0.0, 0.0, 0.0, 0.0, 0.0)


class Models:
    """Allow-list of models.

    `allowed` holds names or patterns (`claude-*`); if it is empty, each model with a price is allowed. `is_free` is
    for the built-in offline model, which answers to any name and costs nothing.
    """

    def __init__(self, *, allowed: tuple[str, ...] = (), is_free: bool = False) -> None:
        self._allowed = allowed
        self._is_free = is_free

    def price(self, model: str) -> Price | None:
        """Return the price of a model, dated names included; None if it is not known."""
        return _FREE if self._is_free else price_of(model)

    def allows(self, model: str) -> bool:
        """Return whether a sprite may use the model."""
        if not self._allowed:
            return price_of(model) is not None
        return any(fnmatchcase(name, pattern) for name in (model, undated(model)) for pattern in self._allowed)

    def names(self) -> list[str]:
        """Return the names of the allowed models that have a price."""
        return [name for name in PRICES if self.allows(name)]
