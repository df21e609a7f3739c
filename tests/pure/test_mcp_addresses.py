"""OAuth addresses of the MCP server: where it is offered, its resources, and its redirect targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config import Settings
from bridge.mcp.mount import Addresses


def known_as(public_url: str | None) -> Addresses:
    return Addresses(Settings(data=Path("/nowhere"), public_url=public_url), 8080)


@pytest.mark.parametrize(
    ("public", "host", "base"),
    [
        (None, "127.0.0.1:8080", "http://127.0.0.1:8080"),
        (None, "localhost:8080", "http://localhost:8080"),
        (None, "[::1]:8080", "http://[::1]:8080"),
        (None, "192.168.0.5:8080", None),
        (None, "[::1", None),
        ("https://sprite.example/", "127.0.0.1:8080", "https://sprite.example"),
        ("http://sprite.lan:8080", "sprite.lan:8080", None),
        ("http://127.0.0.1:8080", "127.0.0.1:8080", "http://127.0.0.1:8080"),
    ],
)
def test_oauth_base_requires_https_or_loopback(public: str | None, host: str, base: str | None) -> None:
    assert known_as(public).base(host) == base
    metadata = None if base is None else f"{base}/.well-known/oauth-protected-resource/mcp"
    assert known_as(public).metadata(host) == metadata


@pytest.mark.parametrize(
    ("public", "resource", "is_ours"),
    [
        (None, "http://127.0.0.1:8080/mcp", True),
        (None, "http://localhost:8080/mcp/", True),
        (None, "http://localhost:8080", True),
        (None, "http://localhost:8081/mcp", False),
        (None, "https://localhost:8080/mcp", False),
        (None, "http://127.0.0.1.evil.example:8080/mcp", False),
        (None, "http://127.0.0.1:8080/mcp?x", False),
        (None, "http://127.0.0.1:8080/other", False),
        (None, "http://127.0.0.1:99999999/mcp", False),
        ("https://sprite.example", "https://sprite.example/mcp", True),
        ("https://sprite.example", "https://SPRITE.example/mcp", True),
        ("https://sprite.example", "http://127.0.0.1:8080/mcp", False),
        ("https://sprite.example", "https://sprite.example.evil/mcp", False),
        ("https://sprite.example", "https://a@sprite.example/mcp", False),
    ],
)
def test_resource_is_compared_with_own_address(public: str | None, resource: str, is_ours: bool) -> None:
    assert known_as(public).is_ours(resource) is is_ours


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("http://127.0.0.1:49152/callback", "http://127.0.0.1:49152"),
        ("http://localhost/callback?x=1", "http://localhost"),
        ("http://[::1]:5/", "http://[::1]:5"),
        ("https://claude.ai/api/mcp/auth_callback", "https://claude.ai"),
        ("cursor://anysphere/callback", None),
        ("com.example.app:/oauth", "com.example.app:"),
        ("http://example.com/", None),
        ("https://a:b@example.com/", None),
        ("https://example.com/#top", None),
        ("https://exa mple.com/", None),
        ("https://example.com;script-src *", None),
        ("https://", None),
        ("javascript:alert(1)", None),
        ("data:text/html,x", None),
        ("file:///etc/passwd", None),
        ("//example.com/", None),
        ("https://example.com/" + "a" * 600, None),
        ("https://[::1", None),
        ("", None),
    ],
)
def test_redirect_source_rejects_unsafe_uris(uri: str, source: str | None) -> None:
    from bridge.mcp.provider import leads_to

    assert leads_to(uri) == source
