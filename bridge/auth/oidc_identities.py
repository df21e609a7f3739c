"""People's identities at the provider: by issuer and subject, never by a claimed name or address.

Owns the table `oidc_identities`. The first login creates a person. An existing person is linked by an operator's
command, or by themselves while they are logged in.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bridge.auth.people import PeopleError, Role
from bridge.config import LOCAL_PERSON
from bridge.db.open import Database, Transaction, in_transaction
from bridge.providers.provider import NAME

if TYPE_CHECKING:
    from bridge.config import OidcSettings


_MAX_NAME_CHARACTERS = 30
_MAX_CLAIM_CHARACTERS = 200
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Known:
    """A person who logged in; `is_new` if they were just created."""

    person: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """A person's identity at a provider, with its creation time (Unix seconds)."""

    issuer: str
    subject: str
    created_at: float


class Identities:
    """People's identities at providers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @in_transaction
    def known(self, tx: Transaction, issuer: str, subject: str, wanted: str) -> Known | None:
        """Return the person of an identity, created with a name like `wanted` if new. None if they were revoked."""
        row = tx.execute(
            "SELECT name, revoked_at FROM oidc_identities JOIN people ON name = person "
            "WHERE issuer = ? AND subject = ?",
            (issuer, subject),
        ).fetchone()
        if row is not None:
            return Known(row["name"], is_new=False) if row["revoked_at"] is None else None
        name = _free(tx, wanted)
        now = time.time()
        tx.execute("INSERT INTO people (name, created_at) VALUES (?, ?)", (name, now))
        _insert(tx, issuer, subject, name, now)
        return Known(name, is_new=True)

    @in_transaction
    def link(self, tx: Transaction, issuer: str, subject: str, person: str, *, moves: bool) -> str | None:
        """Link an identity to a person and return its previous person, or None.

        Raises PeopleError if there is no such person, or if the identity is another person's and `moves` is not set.
        """
        row = tx.execute("SELECT revoked_at FROM people WHERE name = ?", (person,)).fetchone()
        if row is None or row["revoked_at"] is not None:
            raise PeopleError(f"There is nobody called {person!r} who may come in. `users list` names everyone.")
        before = tx.execute(
            "SELECT person FROM oidc_identities WHERE issuer = ? AND subject = ?", (issuer, subject)
        ).fetchone()
        if before is not None and before["person"] != person:
            if not moves:
                raise PeopleError("Whoever you are at the provider is somebody else here already.")
            tx.execute("DELETE FROM oidc_identities WHERE issuer = ? AND subject = ?", (issuer, subject))
        if before is None or before["person"] != person:
            _insert(tx, issuer, subject, person, time.time())
        return None if before is None else str(before["person"])

    async def of(self, person: str) -> list[Identity]:
        """Return a person's identities, oldest first."""
        rows = await self._database.read(
            lambda db: db.execute(
                "SELECT issuer, subject, created_at FROM oidc_identities WHERE person = ? ORDER BY created_at",
                (person,),
            ).fetchall()
        )
        return [Identity(row["issuer"], row["subject"], row["created_at"]) for row in rows]

    @in_transaction
    def unlink(self, tx: Transaction, person: str, subject: str, issuer: str | None) -> Identity:
        """Unlink a person's identity and return it. `issuer` may be None if the subject is unique.

        Raises PeopleError if no identity matches, or more than one.
        """
        found = [
            Identity(row["issuer"], row["subject"], row["created_at"])
            for row in tx.execute(
                "SELECT * FROM oidc_identities WHERE person = ? AND subject = ? AND issuer = coalesce(?, issuer)",
                (person, subject, issuer),
            )
        ]
        if not found:
            raise PeopleError(f"{person} is not {subject!r} at a provider. `users identities {person}` lists them.")
        if len(found) > 1:
            raise PeopleError(f"{person} is {subject!r} at more than one provider: say which one by --issuer.")
        sql = "DELETE FROM oidc_identities WHERE issuer = ? AND subject = ?"
        tx.execute(sql, (found[0].issuer, found[0].subject))
        return found[0]


def wanted_name(claims: dict[str, Any]) -> str:
    """Return a name like the provider's for a person. It is only a suggestion, never used for lookups."""
    for claim in ("preferred_username", "email"):
        said = claims.get(claim)
        if not isinstance(said, str) or (claim == "email" and claims.get("email_verified") is False):
            continue
        plain = unicodedata.normalize("NFKD", said[:_MAX_CLAIM_CHARACTERS].partition("@")[0].lower())
        name = _NOT_IN_NAMES.sub("-", plain.encode("ascii", "ignore").decode()).strip("-")
        if name and not name[0].isalpha():
            name = f"p-{name}"
        name = name[:_MAX_NAME_CHARACTERS].strip("-")
        if NAME.fullmatch(name) is not None and name != LOCAL_PERSON:
            return name
    return "person"


def claim_in(claims: dict[str, Any], claim: str) -> Any:
    """Return a claim by its name, or by a path with dots (`realm_access.roles`); None if it is missing.

    The exact name wins, because names may contain dots: `https://example.org/groups`.
    """
    if claim in claims:
        return claims[claim]
    said: Any = claims
    for name in claim.split("."):
        if not isinstance(said, dict):
            return None
        said = said.get(name)
    return said


def groups_in(claims: dict[str, Any], claim: str) -> frozenset[str]:
    """Return the groups in a claim: a list, or a single name."""
    said = claim_in(claims, claim)
    listed = said if isinstance(said, list) else [said]
    return frozenset(group for group in listed if isinstance(group, str))


def role_in(groups: AbstractSet[str], settings: OidcSettings) -> Role | Literal["unchanged"] | None:
    """Return the role that groups give a person; None if they may not log in."""
    if settings.people and not groups & (settings.people | settings.operators):
        return None
    if not settings.operators:
        return "unchanged"
    return "operator" if groups & settings.operators else "person"


def _free(tx: Transaction, wanted: str) -> str:
    """Return a name that no person has or had."""
    name, number = wanted, 2
    while tx.execute("SELECT 1 FROM people WHERE name = ?", (name,)).fetchone() is not None:
        name, number = f"{wanted}-{number}", number + 1
    return name


def _insert(tx: Transaction, issuer: str, subject: str, person: str, now: float) -> None:
    tx.execute(
        "INSERT INTO oidc_identities (issuer, subject, person, created_at) VALUES (?, ?, ?, ?)",
        (issuer, subject, person, now),
    )
