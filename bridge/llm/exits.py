"""API features that the operator enabled, and the request headers that are forwarded.

Unknown headers and betas are dropped: at a gateway a header may select another address, and a beta may reach other
hosts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bridge.llm.exit_names import DEFAULT_MODEL_EXITS

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
class Exits:
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
