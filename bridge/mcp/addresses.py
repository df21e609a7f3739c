"""URLs of the MCP endpoint and of OAuth (pure).

OAuth is offered only where the connection cannot be intercepted: over https, or on this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from bridge.config import Settings


MCP: Final = "/mcp"
#: RFC 9728: followed by the resource's path, or (for some clients) without it.
RESOURCE_METADATA: Final = "/.well-known/oauth-protected-resource"
#: RFC 8414.
SERVER_METADATA: Final = "/.well-known/oauth-authorization-server"
AUTHORIZE: Final = "/mcp/authorize"
TOKEN: Final = "/mcp/token"  # noqa: S105 - an address
REGISTER: Final = "/mcp/register"
REVOKE: Final = "/mcp/revoke"
CONSENT: Final = "/mcp/consent"
_HERE: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class Addresses:
    """The bridge's URLs as seen by programs; `port` is its listening port."""

    def __init__(self, settings: Settings, port: int) -> None:
        self._public = None if settings.public_url is None else settings.public_url.rstrip("/")
        self._port = port

    def base(self, host: str) -> str | None:
        """Return scheme, host and port for a request to `host`; None if OAuth is not offered."""
        if self._public is not None:
            return self._public if _is_private_way(self._public) else None
        base = f"http://{host}"
        return base if is_here(base) else None

    def metadata(self, host: str) -> str | None:
        """Return the URL that tells a rejected program how to get access, or None."""
        base = self.base(host)
        return None if base is None else f"{base}{RESOURCE_METADATA}{MCP}"

    def is_ours(self, resource: str) -> bool:
        """Return whether a resource indicator (RFC 8707) names this endpoint."""
        try:
            parts = urlsplit(resource)
            port = parts.port
        except ValueError:
            return False
        if parts.query or parts.fragment or parts.path.rstrip("/") not in {MCP, ""}:
            return False
        if self._public is not None:
            return f"{parts.scheme}://{parts.netloc}".lower() == self._public.lower()
        return parts.scheme == "http" and is_here(resource) and (port or 80) == self._port


def is_here(url: str) -> bool:
    """Return whether a URL is on this machine."""
    try:
        return urlsplit(url).hostname in _HERE
    except ValueError:
        return False


def _is_private_way(url: str) -> bool:
    return url.startswith("https://") or is_here(url)
