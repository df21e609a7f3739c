"""Settings of an OIDC provider: errors at start for missing or unsafe values, without showing a secret."""

from __future__ import annotations

import pytest

from bridge.config import from_environment
from bridge.errors import OperatorError

GOOD = {
    "BRIDGE_PUBLIC_URL": "https://sprite.example.org",
    "BRIDGE_OIDC_ISSUER": "https://id.example.org/",
    "BRIDGE_OIDC_CLIENT_ID": "sprite",
    "BRIDGE_OIDC_CLIENT_SECRET": "hush",
}


def told(monkeypatch: pytest.MonkeyPatch, **change: str | None) -> None:
    for name, value in {**GOOD, **change}.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


def test_no_issuer_disables_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, BRIDGE_OIDC_ISSUER=None)
    assert from_environment().oidc is None


def test_issuer_is_kept_verbatim_and_groups_allow_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, BRIDGE_OIDC_OPERATORS="Sprite Admins, ops,", BRIDGE_OIDC_SCOPES="email groups")
    oidc = from_environment().oidc
    assert oidc is not None
    # Some issuer names end in a slash, and are compared literally.
    assert (oidc.issuer, oidc.name) == ("https://id.example.org/", "id.example.org")
    assert (oidc.operators, oidc.people) == (frozenset({"Sprite Admins", "ops"}), frozenset())
    assert oidc.scopes == ("openid", "email", "groups")
    assert "hush" not in repr(from_environment())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"BRIDGE_OIDC_CLIENT_ID": None}, "BRIDGE_OIDC_CLIENT_ID"),
        ({"BRIDGE_PUBLIC_URL": None}, "BRIDGE_PUBLIC_URL"),
        ({"BRIDGE_PUBLIC_URL": "http://sprite.example.org"}, "BRIDGE_PUBLIC_URL that begins with https"),
        ({"BRIDGE_OIDC_ISSUER": "http://id.example.org"}, "https"),
        ({"BRIDGE_OIDC_ISSUER": "id.example.org"}, "BRIDGE_OIDC_ISSUER"),
    ],
)
def test_invalid_settings_are_reported(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, str | None], words: str
) -> None:
    told(monkeypatch, **change)
    with pytest.raises(OperatorError, match=words):
        from_environment()
