"""Who somebody at the provider is here: by issuer and subject, never by a name or an address that they claim.

Owns the table `oidc_identities`. A name here is made at the first login; an existing person is linked by an operator's
command, or by themselves while they are logged in.
"""

from __future__ import annotations

import re
import time
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bridge.config import LOCAL_PERSON
from bridge.door.people import PeopleError
from bridge.hosts.host import NAME

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from bridge.database import Database, Transaction
    from bridge.door.oidc.settings import OidcSettings
    from bridge.door.people import Role

_MAX_NAME_CHARACTERS = 30
_MAX_CLAIM_CHARACTERS = 200
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Known:
    """A person who logged in: `is_new` where their name was made just now."""

    person: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a person is at a provider, since when (Unix seconds)."""

    issuer: str
    subject: str
    created_at: float


class Identities:
    """Who is who."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def known(self, issuer: str, subject: str, wanted: str) -> Known | None:
        """Who it is; somebody new gets a name like `wanted`. None for somebody who was revoked."""

        def find(tx: Transaction) -> Known | None:
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

        return await self._database.write(find)

    async def link(self, issuer: str, subject: str, person: str, *, moves: bool) -> str | None:
        """Makes an identity a person's; whose it was before, if anybody's.

        PeopleError where there is no such person, or where it is somebody else's and may not be moved.
        """

        def update(tx: Transaction) -> str | None:
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

        return await self._database.write(update)

    async def of(self, person: str) -> list[Identity]:
        """A person's identities, oldest first."""
        rows = await self._database.read(
            lambda db: db.execute(
                "SELECT issuer, subject, created_at FROM oidc_identities WHERE person = ? ORDER BY created_at",
                (person,),
            ).fetchall()
        )
        return [Identity(row["issuer"], row["subject"], row["created_at"]) for row in rows]

    async def unlink(self, person: str, subject: str, issuer: str | None) -> Identity:
        """Takes an identity off a person, and returns it; `issuer` may be None where there is one such subject.

        PeopleError where there is none such, or more than one.
        """

        def delete(tx: Transaction) -> Identity:
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

        return await self._database.write(delete)


def wanted_name(claims: dict[str, Any]) -> str:
    """A name like what the provider calls a person. It is a wish: no person is found by it."""
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
    """A claim by its name, else by the path to it with dots between (`realm_access.roles`); None where there is none.

    Names may have dots of their own: `https://example.org/groups`.
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
    """The groups that a claim lists; one alone may stand there without a list."""
    said = claim_in(claims, claim)
    listed = said if isinstance(said, list) else [said]
    return frozenset(group for group in listed if isinstance(group, str))


def role_in(groups: AbstractSet[str], settings: OidcSettings) -> Role | Literal["unchanged"] | None:
    """What the groups make of a person; None: they may not come in."""
    if settings.people and not groups & (settings.people | settings.operators):
        return None
    if not settings.operators:
        return "unchanged"
    return "operator" if groups & settings.operators else "person"


def _free(tx: Transaction, wanted: str) -> str:
    """A name that nobody has or had."""
    name, number = wanted, 2
    while tx.execute("SELECT 1 FROM people WHERE name = ?", (name,)).fetchone() is not None:
        name, number = f"{wanted}-{number}", number + 1
    return name


def _insert(tx: Transaction, issuer: str, subject: str, person: str, now: float) -> None:
    tx.execute(
        "INSERT INTO oidc_identities (issuer, subject, person, created_at) VALUES (?, ?, ?, ?)",
        (issuer, subject, person, now),
    )
