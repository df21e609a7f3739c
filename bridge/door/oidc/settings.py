"""Settings of the single sign-on provider. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """One provider: its issuer URL, the bridge's client id, and the meaning of its groups."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    #: The claim that lists a person's groups.
    groups_claim: str = "groups"
    #: Groups of operators. Empty: roles are set by command.
    operators: frozenset[str] = frozenset()
    #: Groups that may log in, besides operators. Empty: all users of the provider.
    people: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Return the provider's name for the button."""
        return urlsplit(self.issuer).hostname or self.issuer
