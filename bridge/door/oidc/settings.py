"""What the bridge is told of the provider. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """One provider: its issuer's address, who the bridge is to it, and what its groups mean here."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    #: The claim that lists a person's groups.
    groups_claim: str = "groups"
    #: Groups whose members are operators; empty: roles are given here, by command.
    operators: frozenset[str] = frozenset()
    #: Groups whose members may come in, beside the operators'; empty: everybody whom the provider lets through.
    people: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What the button calls it."""
        return urlsplit(self.issuer).hostname or self.issuer
