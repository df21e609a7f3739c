"""People's Bearer tokens for programs: creation, lookup and revocation.

A *full* token has all access of its person: the WebSocket, files and the API. A token with *scopes* opens only the
endpoints that these name. Owns the table `person_tokens`; has no HTTP. Tokens are random and stored as SHA-256 only.
"""

import itertools
import logging
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from bridge.config import LOCAL_PERSON
from bridge.db.database import Database, DatabaseError, Transaction, in_snapshot, in_transaction, token_sha256
from bridge.errors import BridgeError
from sprite.common import own_secrets

log = logging.getLogger(__name__)

Scope = Literal["memory:read", "observe", "ask", "actions"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
#: The meaning of each scope for people.
MEANING: dict[Scope, str] = {
    "memory:read": "reads and searches memory",
    "observe": "adds turns that other programs recorded",
    "ask": "sends messages to the agent, which costs money for model calls",
    "actions": "adds to-dos",
}
#: Default scopes: those that do not let the agent act.
DEFAULT_SCOPES: tuple[Scope, ...] = ("memory:read", "observe", "actions")
#: The label of a new person's token.
FULL_LABEL = "full"

#: Makes a token recognizable for scanners of leaked secrets, and for people who find one.
_PREFIX = "bridge-person-"
_TOKEN_BYTES = 32
#: Far above a valid token's length. Limits the hashing of untrusted input.
_MAX_TOKEN_CHARACTERS = 256
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")
#: Shortest time between two records of a token's last use.
_NOTED_SECONDS = 60.0
_REMEMBERED = 4096
#: A person who makes more has a program that makes them.
_MOST = 100
_HOLDER = "SELECT person, label, scopes, token_sha256 FROM person_tokens JOIN people ON name = person"


class PeopleError(BridgeError):
    """A person or token cannot be added or changed; the message is for the operator."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The person and access that a token stands for; `scopes` is None for full access. `key` is the token's hash."""

    person: str
    label: str
    scopes: frozenset[str] | None
    key: bytes

    def may(self, scope: Scope) -> bool:
        """Return whether the token grants this scope."""
        return self.scopes is None or scope in self.scopes


@dataclass(frozen=True, slots=True)
class Token:
    """A token as shown to its owner, without its text; times in Unix seconds, `scopes` None for a full one."""

    label: str
    scopes: list[Scope] | None
    created_at: float
    used_at: float | None


class PersonTokens:
    """Store and find people's access tokens."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: dict[bytes, float] = {}

    @in_transaction
    def make(self, tx: Transaction, person: str, label: str | None, scopes: Iterable[str] | None) -> tuple[str, Token]:
        """Create a token (`scopes` None: a full one); return its text, only now, and description. Raise PeopleError."""
        chosen = None if scopes is None else chosen_scopes(scopes)
        if label is not None and _LABEL.fullmatch(label) is None:
            raise PeopleError(
                "A token's name has up to 40 letters, digits, spaces, dots, dashes and underscores, and "
                "begins with a letter or a digit."
            )
        if person == LOCAL_PERSON:
            # The local person always exists, but this bridge may never have been started.
            tx.execute(
                "INSERT INTO people (name, created_at) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
                (person, time.time()),
            )
        require(tx, person)
        taken = {row["label"] for row in tx.execute("SELECT label FROM person_tokens WHERE person = ?", (person,))}
        if label in taken:
            raise PeopleError(
                f"{person} has a token called {label!r} already. Choose another name, or revoke that token."
            )
        if len(taken) >= _MOST:
            raise PeopleError(f"{person} has {_MOST} tokens. Revoke one that is not used.")
        names = itertools.chain(["token"], (f"token-{number}" for number in itertools.count(2)))
        name = label or next(name for name in names if name not in taken)
        token, now = new_token(tx, person, name, chosen)
        return token, Token(name, chosen, now, None)

    @in_snapshot
    def of(self, db: Transaction, person: str) -> list[Token]:
        """Return a person's tokens, oldest first."""
        require(db, person)
        rows = db.execute("SELECT * FROM person_tokens WHERE person = ? ORDER BY created_at, label", (person,))
        return [Token(row["label"], _listed(row["scopes"]), row["created_at"], row["used_at"]) for row in rows]

    @in_transaction
    def revoke(self, tx: Transaction, person: str, label: str) -> bytes:
        """Revoke a token and return its `key`. The caller ends its running requests."""
        require(tx, person)
        row = tx.execute(
            "DELETE FROM person_tokens WHERE person = ? AND label = ? RETURNING token_sha256", (person, label)
        ).fetchone()
        if row is None:
            raise PeopleError(f"{person} has no token called {label!r}. `users tokens {person}` lists them.")
        return bytes(row["token_sha256"])

    async def holder(self, token: str) -> Holder | None:
        """Return a token's holder, or None if it is unknown or revoked."""
        if not is_persons(token) or len(token) > _MAX_TOKEN_CHARACTERS:
            return None
        key = token_sha256(token)

        def find(db: Transaction) -> Holder | None:
            row = db.execute(f"{_HOLDER} WHERE token_sha256 = ? AND revoked_at IS NULL", (key,)).fetchone()
            if row is None:
                # An OAuth grant is looked up by its current access tokens.
                row = db.execute(
                    f"{_HOLDER} JOIN granted_access USING (person, label) "
                    "WHERE access_sha256 = ? AND expires_at > ? AND revoked_at IS NULL",
                    (key, time.time()),
                ).fetchone()
            if row is None:
                return None
            scopes = _listed(row["scopes"])
            scoped = None if scopes is None else frozenset(scopes)
            return Holder(row["person"], row["label"], scoped, bytes(row["token_sha256"]))

        return await self._database.read(find)

    async def used(self, holder: Holder) -> None:
        """Record the time of a token's use, once a minute at most. A failed write is only logged."""
        now = time.time()
        if now - self._noted.get(holder.key, 0.0) < _NOTED_SECONDS:
            return
        if len(self._noted) >= _REMEMBERED:
            self._noted.clear()
        self._noted[holder.key] = now
        try:
            await self._database.statement(
                "UPDATE person_tokens SET used_at = ? WHERE token_sha256 = ?", (now, holder.key)
            )
        except DatabaseError as error:
            log.warning("the database cannot be written (%s)", error.code, extra={"person": holder.person})


def is_persons(token: str) -> bool:
    """Return whether a token has the format of a person's, not of a sprite's."""
    return token.startswith(_PREFIX)


def new_token(tx: Transaction, person: str, label: str, scopes: list[Scope] | None) -> tuple[str, float]:
    """Store a new token. Return its text, only now, and its creation time."""
    token, now = _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES), time.time()
    own_secrets.hold_passing(token)
    tx.execute(
        "INSERT INTO person_tokens (token_sha256, person, created_at, label, scopes) VALUES (?, ?, ?, ?, ?)",
        (token_sha256(token), person, now, label, None if scopes is None else " ".join(scopes)),
    )
    return token, now


def chosen_scopes(names: Iterable[str]) -> list[Scope]:
    """Return the named scopes in the order of SCOPES. Raises PeopleError for an unknown name or no names."""
    wanted = set(names)
    if not wanted or (unknown := wanted.difference(SCOPES)):
        what = f"{min(unknown)!r} is not a scope." if wanted else "A token needs at least one scope."
        raise PeopleError(f"{what} The scopes are {', '.join(SCOPES)}.")
    return [scope for scope in SCOPES if scope in wanted]


def _listed(scopes: str | None) -> list[Scope] | None:
    return None if scopes is None else [scope for scope in SCOPES if scope in scopes.split()]


def require(db: Transaction, person: str) -> None:
    """Raise PeopleError unless the person exists and is not revoked."""
    row = db.execute("SELECT revoked_at FROM people WHERE name = ?", (person,)).fetchone()
    if row is None:
        raise PeopleError(nobody(person))
    if row["revoked_at"] is not None:
        raise PeopleError(f"{person} was revoked. `users restore {person}` gives them access again.")


def nobody(name: str) -> str:
    """Return the error message for a name that no person has."""
    return f"There is no person called {name!r}. `users list` shows everyone."
