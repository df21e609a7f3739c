"""People, their login links, browser sessions and identities at a provider, in the database; `tokens` are for programs.

Secrets are random and stored as SHA-256 only, so the database alone grants no access. Identities are found by issuer
and subject, never by a claimed name or address. Has no HTTP.
"""

import logging
import re
import secrets
import time
import unicodedata
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from bridge.auth.tokens import FULL_LABEL, PeopleError, PersonTokens, new_token, require
from bridge.config import LOCAL_PERSON, OidcSettings
from bridge.db.database import (
    Database,
    DatabaseError,
    Transaction,
    in_snapshot,
    in_transaction,
    kept_secret,
    token_sha256,
)
from bridge.providers.provider import NAME, NAME_WORDS
from sprite.common import own_secrets

log = logging.getLogger(__name__)

LINK_SECONDS = 24 * 3600.0
SESSION_SECONDS = 30 * 24 * 3600.0
#: A used session gets its full time again, once a day at most.
_RENEWAL_SECONDS = 24 * 3600.0
_TOKEN_BYTES = 32

LinkProblem = Literal["unknown", "used", "expired"]
#: Operators may see the operator's page.
Role = Literal["person", "operator"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class Person:
    """A person as shown to operators; times in Unix seconds. `sessions` counts logged-in browsers."""

    name: str
    created_at: float
    last_seen_at: float | None
    revoked_at: float | None
    sessions: int
    role: Role = "person"


@dataclass(frozen=True, slots=True)
class Session:
    """A logged-in browser: its person and its cookie's secret."""

    person: str
    id: str


@dataclass(frozen=True, slots=True)
class Link:
    """A login link that still works; `person` is whom it logs in."""

    person: str


#: Why there may be no other people.
ONLY_ALONE = (
    "Your own Claude login or cloud may serve only your own agent on this machine, not other "
    "people, VMs, several bridges or an address that others can reach."
)


class People:
    """Store people, their login links and their browser sessions.

    `local_operates`: the local person is an operator. `is_alone`: nobody else may be added.
    """

    def __init__(self, database: Database, *, local_operates: bool = False, is_alone: bool = False) -> None:
        self._database = database
        self._local_operates = local_operates
        self._is_alone = is_alone
        self.tokens = PersonTokens(database)

    @in_transaction
    def prepare(self, tx: Transaction) -> None:
        """Delete expired rows and add the local person. Called once at the start."""
        now = time.time()
        # A used link is kept for a while, so that opening it again explains the problem.
        tx.execute("DELETE FROM login_links WHERE expires_at < ?", (now - LINK_SECONDS,))
        tx.execute("DELETE FROM sessions WHERE expires_at < ?", (now,))
        tx.execute(
            "INSERT INTO people (name, created_at) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", (LOCAL_PERSON, now)
        )

    async def cookie_key(self) -> bytes:
        """Return the key that signs cookies, created at the first start. Sessions are looked up in addition."""
        key = await kept_secret(self._database, "cookie_key", partial(secrets.token_bytes, _TOKEN_BYTES))
        own_secrets.hold(key)
        return key

    # --- for the operator ---

    @in_transaction
    def add(self, tx: Transaction, name: str) -> tuple[str, str]:
        """Add a person. Return the tokens of a login link and of a program, neither of which can be shown again."""
        self._refuse_others()
        if NAME.fullmatch(name) is None:
            raise PeopleError(f"{name!r} is not a valid name: {NAME_WORDS}.")
        if name == LOCAL_PERSON:
            raise PeopleError(f"{name!r} is the person who starts the bridge on this machine. Choose another name.")
        row = tx.execute("SELECT revoked_at FROM people WHERE name = ?", (name,)).fetchone()
        if row is not None:
            raise PeopleError(
                f"{name} already has access. `users link {name}` makes a new login link."
                if row["revoked_at"] is None
                else f"{name} was revoked; their agent and its memory still exist. Choose another name, or give "
                f"the same person access again with `users restore {name}`."
            )
        tx.execute("INSERT INTO people (name, created_at) VALUES (?, ?)", (name, time.time()))
        return _new_link(tx, name), new_token(tx, name, FULL_LABEL, None)[0]

    @in_transaction
    def restore(self, tx: Transaction, name: str) -> tuple[str, str]:
        """Restore a revoked person. Return the tokens of a new login link and of a program."""
        self._refuse_others()
        found = tx.execute("UPDATE people SET revoked_at = NULL WHERE name = ? AND revoked_at IS NOT NULL", (name,))
        if not found.rowcount:
            raise PeopleError(f"There is no revoked person called {name!r}.")
        return _new_link(tx, name), new_token(tx, name, FULL_LABEL, None)[0]

    @in_transaction
    def link(self, tx: Transaction, name: str) -> str:
        """Create a login link and return its token."""
        require(tx, name)
        return _new_link(tx, name)

    def _refuse_others(self) -> None:
        if self._is_alone:
            raise PeopleError(ONLY_ALONE)

    async def require(self, name: str) -> None:
        """Raise PeopleError unless the person exists and is not revoked."""
        await self._database.read(lambda db: require(db, name))

    @in_snapshot
    def may_come(self, db: Transaction, name: str) -> bool:
        """Return whether the person exists and is not revoked."""
        return _role(db, name) is not None

    @in_transaction
    def revoke(self, tx: Transaction, name: str) -> None:
        """Revoke a person with all credentials; the local person only logs out. The caller ends open connections."""
        require(tx, name)
        if name != LOCAL_PERSON:
            # A restored person is not an operator automatically.
            tx.execute("UPDATE people SET revoked_at = ?, role = 'person' WHERE name = ?", (time.time(), name))
        for table in ("login_links", "sessions", "person_tokens", "passkeys"):
            tx.execute(f"DELETE FROM {table} WHERE person = ?", (name,))  # noqa: S608 - our own table names

    @in_snapshot
    def everyone(self, db: Transaction) -> list[Person]:
        """Return all people, including revoked ones, oldest first."""
        rows = db.execute(
            "SELECT name, created_at, last_seen_at, revoked_at, role, "
            "(SELECT count(*) FROM sessions WHERE person = name AND expires_at > ?) AS sessions "
            "FROM people ORDER BY created_at",
            (time.time(),),
        )
        return [
            Person(
                row["name"],
                row["created_at"],
                row["last_seen_at"],
                row["revoked_at"],
                row["sessions"],
                role=self._role_of(row["name"], row["role"]),
            )
            for row in rows
        ]

    @in_snapshot
    def role(self, db: Transaction, name: str) -> Role | None:
        """Return a person's role, or None if they are unknown or revoked."""
        stored = _role(db, name)
        return None if stored is None else self._role_of(name, stored)

    @in_transaction
    def change_role(self, tx: Transaction, name: str, role: Role) -> bool:
        """Set a person's role. Return False if they had it already."""
        if name == LOCAL_PERSON and self._local_operates:
            if role == "operator":
                return False
            raise PeopleError(
                f"{name} is the person who starts the bridge on this machine, and always has the operator's "
                f"rights. With BRIDGE_PUBLIC_URL, {name} is an operator only after `users role {name} "
                "operator`."
            )
        require(tx, name)
        found = tx.execute("UPDATE people SET role = ? WHERE name = ? AND role <> ?", (role, name, role))
        return found.rowcount > 0

    def _role_of(self, name: str, stored: str) -> Role:
        is_operator = stored == "operator" or (name == LOCAL_PERSON and self._local_operates)
        return "operator" if is_operator else "person"

    async def any_added(self) -> bool:
        """Return whether any person besides the local one was added and not revoked."""
        return any(person.revoked_at is None and person.name != LOCAL_PERSON for person in await self.everyone())

    @in_transaction
    def local_link(self, tx: Transaction) -> str:
        """Create a login link for the local person and return its token. Earlier unused ones end."""
        tx.execute("DELETE FROM login_links WHERE person = ? AND used_at IS NULL", (LOCAL_PERSON,))
        return _new_link(tx, LOCAL_PERSON)

    # --- at the door ---

    async def found_link(self, token: str) -> Link | LinkProblem:
        """Return a login link's person without using it up, or why it does not work."""
        return await self._database.read(lambda db: _usable(db, token))

    @in_transaction
    def redeem(self, tx: Transaction, token: str) -> Session | LinkProblem:
        """Use a login link up and return a new session, or why there is none."""
        now = time.time()
        link = _usable(tx, token)
        if not isinstance(link, Link):
            return link
        # If two bridges redeem a link at once, only one finds it unused.
        taken = tx.execute(
            "UPDATE login_links SET used_at = ? WHERE token_sha256 = ? AND used_at IS NULL", (now, token_sha256(token))
        )
        if not taken.rowcount:
            return "used"
        return _new_session(tx, link.person)

    @in_transaction
    def new_session(self, tx: Transaction, name: str) -> Session | None:
        """Create a login session for an authenticated person, or return None if the person is revoked."""
        return None if _role(tx, name) is None else _new_session(tx, name)

    @in_snapshot
    def of_session(self, db: Transaction, session_id: str) -> str | None:
        """Return a session's person, or None if it has ended or never existed."""
        sql = "SELECT person FROM sessions WHERE id_sha256 = ? AND expires_at > ?"
        row = db.execute(sql, (token_sha256(session_id), time.time())).fetchone()
        return None if row is None else str(row["person"])

    async def renew_session(self, session_id: str) -> bool:
        """Extend a session to its full time. Return False if that happened within a day, or it has ended."""
        now = time.time()
        found = await self._database.statement(
            "UPDATE sessions SET expires_at = ? WHERE id_sha256 = ? AND expires_at BETWEEN ? AND ? RETURNING person",
            (now + SESSION_SECONDS, token_sha256(session_id), now, now + SESSION_SECONDS - _RENEWAL_SECONDS),
        )
        return bool(found)

    async def end_session(self, session_id: str) -> None:
        """Log a browser out: delete its login session."""
        await self._database.statement("DELETE FROM sessions WHERE id_sha256 = ?", (token_sha256(session_id),))

    async def seen(self, name: str) -> None:
        """Record a person's visit. A failed write is only logged."""
        try:
            await self._database.statement("UPDATE people SET last_seen_at = ? WHERE name = ?", (time.time(), name))
        except DatabaseError as error:
            log.warning("the database cannot be written (%s)", error.code, extra={"person": name})


def login_link(url: str, token: str) -> str:
    """Return the URL that logs a browser in, once."""
    return f"{url}/login?token={token}"


def _role(db: Transaction, name: str) -> str | None:
    """Return the stored role of a person, or None if they are unknown or revoked."""
    row = db.execute("SELECT role FROM people WHERE name = ? AND revoked_at IS NULL", (name,)).fetchone()
    return None if row is None else str(row["role"])


def _usable(db: Transaction, token: str) -> Link | LinkProblem:
    link = db.execute("SELECT * FROM login_links WHERE token_sha256 = ?", (token_sha256(token),)).fetchone()
    if link is None:
        return "unknown"
    if link["used_at"] is not None:
        return "used"
    return "expired" if link["expires_at"] < time.time() else Link(link["person"])


def _new_session(tx: Transaction, name: str) -> Session:
    session, now = Session(name, secrets.token_urlsafe(_TOKEN_BYTES)), time.time()
    own_secrets.hold_passing(session.id)
    tx.execute("INSERT INTO sessions VALUES (?, ?, ?, ?)", (token_sha256(session.id), name, now, now + SESSION_SECONDS))
    return session


def _new_link(tx: Transaction, name: str) -> str:
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    own_secrets.hold_passing(token)
    tx.execute(
        "INSERT INTO login_links (token_sha256, person, expires_at) VALUES (?, ?, ?)",
        (token_sha256(token), name, time.time() + LINK_SECONDS),
    )
    return token


_MAX_NAME_CHARACTERS = 30
_MAX_CLAIM_CHARACTERS = 200
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


class Identities:
    """Map identities at login providers to people."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @in_transaction
    def known(self, tx: Transaction, issuer: str, subject: str, wanted: str) -> tuple[str, bool] | None:
        """Return the person of an identity, and whether they are new, with a name like `wanted`. None: revoked."""
        row = tx.execute(
            "SELECT name, revoked_at FROM oidc_identities JOIN people ON name = person "
            "WHERE issuer = ? AND subject = ?",
            (issuer, subject),
        ).fetchone()
        if row is not None:
            return (row["name"], False) if row["revoked_at"] is None else None
        name = _free(tx, wanted)
        now = time.time()
        tx.execute("INSERT INTO people (name, created_at) VALUES (?, ?)", (name, now))
        tx.execute(
            "INSERT INTO oidc_identities (issuer, subject, person, created_at) VALUES (?, ?, ?, ?)",
            (issuer, subject, name, now),
        )
        return name, True


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
    """Return a claim by its name (which may contain dots), or else by a path such as `realm_access.roles`, or None."""
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
    """Return the role that groups give a person: "unchanged" if they decide no role, None if they forbid the login."""
    if settings.people and not groups & (settings.people | settings.operators):
        return None
    if not settings.operators:
        return "unchanged"
    return "operator" if groups & settings.operators else "person"


def _free(tx: Transaction, wanted: str) -> str:
    """Return a name that no person has or ever had."""
    name, number = wanted, 2
    while tx.execute("SELECT 1 FROM people WHERE name = ?", (name,)).fetchone() is not None:
        name, number = f"{wanted}-{number}", number + 1
    return name
