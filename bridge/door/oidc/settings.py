"""Settings of the single sign-on provider. Pure."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sprite.common import settings
from sprite.common.settings import setting


def _scopes(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(["openid", *settings.words(text)]))


def _groups(text: str) -> frozenset[str]:
    """Split group names at commas. Names may contain spaces."""
    return frozenset(name.strip() for name in text.split(",")) - {""}


def _content(path: str) -> str:
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ValueError(f"names a file that cannot be read: {path}") from error
    if not secret:
        raise ValueError(f"names a file with nothing in it: {path}")
    return secret


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """One provider: its issuer URL, the bridge's client id, and the meaning of its groups."""

    issuer: str = setting(
        "BRIDGE_OIDC_ISSUER", settings.url, MISSING, "address of the OpenID provider, as it names itself"
    )
    client_id: str = setting("BRIDGE_OIDC_CLIENT_ID", str, MISSING, "the provider's name for this bridge")
    client_secret: str | None = setting(
        "BRIDGE_OIDC_CLIENT_SECRET", str, None, "the client's secret; none for a public client", secret=True
    )
    #: The content of the file; from_environment moves it to `client_secret`.
    client_secret_file: str | None = setting(
        "BRIDGE_OIDC_CLIENT_SECRET_FILE", _content, None, "a file that holds the client's secret", secret=True
    )
    scopes: tuple[str, ...] = setting(
        "BRIDGE_OIDC_SCOPES", _scopes, ("openid", "profile", "email"), "scopes to request; `openid` is always one"
    )
    groups_claim: str = setting(
        "BRIDGE_OIDC_GROUPS_CLAIM",
        str,
        "groups",
        "claim that lists a person's groups, or the path to it, such as `realm_access.roles`",
    )
    operators: frozenset[str] = setting(
        "BRIDGE_OIDC_OPERATORS",
        _groups,
        frozenset(),
        "groups whose members are operators, separated by commas; without any, roles are set by command",
    )
    people: frozenset[str] = setting(
        "BRIDGE_OIDC_PEOPLE",
        _groups,
        frozenset(),
        "groups whose members may log in, besides operators; without any, all users of the provider may",
    )

    @property
    def name(self) -> str:
        """Return the provider's name for the button."""
        return urlsplit(self.issuer).hostname or self.issuer
