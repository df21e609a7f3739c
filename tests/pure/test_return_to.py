"""Redirect after login: never to another site."""

from __future__ import annotations

import pytest

from bridge.auth.login import back_to, return_path


@pytest.mark.parametrize("path", ["/", "/operator", "/files/a%20b.txt?x=1&y=/z", "/mcp/consent?request=a-b_c", "/a//b"])
def test_own_path_is_kept(path: str) -> None:
    assert return_path(path) == path


@pytest.mark.parametrize(
    "hostile",
    [
        *(
            "",
            "operator",
            "//evil.example",
            "///evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "/\t/evil.example",
        ),
        *("/a\r\nSet-Cookie: x=1", "/\x00", "/a\\b", "https://evil.example", "javascript:alert(1)", " //evil.example"),
        *("/ /evil.example", "/\u2028/x", "/\ud800", "/ä", "/" + "a" * 1000, "/\n", "/operator\n", "/%0a" + "\x7f"),
        *("/login?token=x", "/logout", "/oidc/login", "/oidc/callback?code=1", "/ws"),
    ],
)
def test_other_address_leads_to_page(hostile: str) -> None:
    assert return_path(hostile) == "/"
    assert back_to(hostile) == ""


def test_return_path_is_one_query_value() -> None:
    assert back_to("/") == ""
    assert back_to("/files/a?b=1&c=2#d") == "?to=/files/a%3Fb%3D1%26c%3D2%23d"
