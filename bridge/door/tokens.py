"""Bearer tokens of people, for programs: what each may open, how it is made, listed and ended.

A *full* token is whatever its person is: it opens the WebSocket, files and every door. A token with *scopes* opens the
doors that these name, and nothing else. Owns the table `person_tokens`; knows no HTTP. A token is random and stored as
SHA-256 only.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from bridge.config import LOCAL_PERSON
from bridge.database import Database, DatabaseError, Transaction, token_sha256
from bridge.errors import BridgeError
from sprite.common import own_secrets

log = logging.getLogger(__name__)

Scope = Literal["memory:read", "observe", "ask", "actions"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
#: What each is good for, in words.
MEANING: dict[Scope, str] = {
    "memory:read": "reads and searches memory",
    "observe": "adds turns that other programs recorded",
    "ask": "hands missions to the agent, which costs what the model costs",
    "actions": "adds to the list of things to do",
}
#: What a token may do where nobody chose: nothing that has the agent act.
DEFAULT_SCOPES: tuple[Scope, ...] = ("memory:read", "observe", "actions")
#: The label of the token that a person is given when they are added.
FULL_LABEL = "full"

#: Makes a token known to scanners of leaked secrets, and to people who find one.
_PREFIX = "bridge-person-"
_TOKEN_BYTES = 32
#: Far above a token of ours; hashing what a stranger sends is bounded.
_MAX_TOKEN_CHARACTERS = 256
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")
#: When a token was last used is noted so often at most.
_NOTED_SECONDS = 60.0
_REMEMBERED = 4096
_HOLDER = "SELECT person, label, scopes, token_sha256 FROM person_tokens JOIN people ON name = person"


#: The database's channel on which other bridges hear what was revoked: a person, or one token or session of theirs.
REVOKED = "revoked"


class TokenError(BridgeError):
    """A token cannot be made or ended, in words for the operator."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose token it is and what it may open; `scopes` is None for a full one. `key` tells tokens apart."""

    person: str
    label: str
    scopes: frozenset[str] | None
    key: bytes

    def may(self, scope: Scope) -> bool:
        """Whether the token opens what has this scope."""
        return self.scopes is None or scope in self.scopes


@dataclass(frozen=True, slots=True)
class Token:
    """A token as its owner sees it, who cannot see the token itself; times in Unix seconds, `scopes` None: full."""

    label: str
    scopes: list[Scope] | None
    created_at: float
    used_at: float | None


class PersonTokens:
    """Everyone's tokens."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: dict[bytes, float] = {}

    async def make(self, person: str, label: str | None, scopes: Iterable[str] | None) -> tuple[str, Token]:
        """A new token, which cannot be shown again, and what it is; `scopes` None makes a full one.

        TokenError for a name, a label or a scope that cannot be.
        """
        chosen = None if scopes is None else chosen_scopes(scopes)
        if label is not None and _LABEL.fullmatch(label) is None:
            raise TokenError("A token's name has up to 40 letters, digits, spaces, dots, dashes, and begins with none.")

        def insert(tx: Transaction) -> tuple[str, Token]:
            if person == LOCAL_PERSON:
                # Is always there; this bridge may never have been started yet.
                tx.execute(
                    "INSERT INTO people (name, created_at) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
                    (person, time.time()),
                )
            _require(tx, person)
            taken = {row["label"] for row in tx.execute("SELECT label FROM person_tokens WHERE person = ?", (person,))}
            if label in taken:
                raise TokenError(
                    f"{person} has a token called {label!r} already. Choose another name, or end that one with "
                    f"`users revoke-token {person} {label!r}`."
                )
            name = label or next(name for name in _names() if name not in taken)
            token, now = new_token(tx, person, name, chosen)
            return token, Token(name, chosen, now, None)

        return await self._database.write(insert)

    async def of(self, person: str) -> list[Token]:
        """A person's tokens, oldest first."""

        def find(db: Transaction) -> list[Token]:
            _require(db, person)
            rows = db.execute("SELECT * FROM person_tokens WHERE person = ? ORDER BY created_at, label", (person,))
            return [Token(row["label"], _listed(row["scopes"]), row["created_at"], row["used_at"]) for row in rows]

        return await self._database.read(find)

    async def revoke(self, person: str, label: str) -> bytes:
        """Ends a token; returns its `key`. What goes on with it is the caller's to end."""

        def delete(tx: Transaction) -> bytes:
            _require(tx, person)
            row = tx.execute(
                "DELETE FROM person_tokens WHERE person = ? AND label = ? RETURNING token_sha256", (person, label)
            ).fetchone()
            if row is None:
                raise TokenError(f"{person} has no token called {label!r}. `users tokens {person}` lists them.")
            key = bytes(row["token_sha256"])
            tell_revoked(tx, person, key)
            return key

        return await self._database.write(delete)

    async def holder(self, token: str) -> Holder | None:
        """Whose token it is; None for any that is not, or no longer, one."""
        if not is_persons(token) or len(token) > _MAX_TOKEN_CHARACTERS:
            return None
        key = token_sha256(token)

        def find(db: Transaction) -> Holder | None:
            row = db.execute(f"{_HOLDER} WHERE token_sha256 = ? AND revoked_at IS NULL", (key,)).fetchone()
            if row is None:
                # What a program was granted is known by the access token that it was given last.
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
        """Notes that a token is used, once a minute at most and where the disk allows."""
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


def tell_revoked(tx: Transaction, person: str, key: bytes | None = None) -> None:
    """Has every bridge end what goes on for a person, or by one of their tokens or sessions, known by its hash."""
    tx.execute("SELECT db_notify(?, ?)", (REVOKED, person if key is None else f"{person} {key.hex()}"))


def is_persons(token: str) -> bool:
    """Whether it looks like a person's token, and not like a sprite's."""
    return token.startswith(_PREFIX)


def new_token(tx: Transaction, person: str, label: str, scopes: list[Scope] | None) -> tuple[str, float]:
    """Writes a new token; returns it, this once, and when it was made."""
    token, now = _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES), time.time()
    own_secrets.hold_passing(token)
    tx.execute(
        "INSERT INTO person_tokens (token_sha256, person, created_at, label, scopes) VALUES (?, ?, ?, ?, ?)",
        (token_sha256(token), person, now, label, None if scopes is None else " ".join(scopes)),
    )
    return token, now


def chosen_scopes(names: Iterable[str]) -> list[Scope]:
    """The scopes of these names, in the order of SCOPES. TokenError for a name that is none, or where there is none."""
    wanted = set(names)
    if not wanted or (unknown := wanted.difference(SCOPES)):
        what = f"{min(unknown)!r} is no scope." if wanted else "A token needs a scope."
        raise TokenError(f"{what} There are {', '.join(SCOPES)}.")
    return [scope for scope in SCOPES if scope in wanted]


def _listed(scopes: str | None) -> list[Scope] | None:
    return None if scopes is None else [scope for scope in SCOPES if scope in scopes.split()]


def _names() -> Iterable[str]:
    yield "token"
    number = 2
    while True:
        yield f"token-{number}"
        number += 1


def _require(db: Transaction, person: str) -> None:
    """TokenError unless the person may come in."""
    row = db.execute("SELECT revoked_at FROM people WHERE name = ?", (person,)).fetchone()
    if row is None:
        raise TokenError(f"There is nobody called {person!r}. `users list` names everyone.")
    if row["revoked_at"] is not None:
        raise TokenError(f"{person} was revoked. `users restore {person}` lets the same person in again.")
