"""OAuth in the database: programs, codes and grants. A grant is a person's token whose text is never revealed.

The program gets an access and a refresh token, which end with it; only hashes are stored. A refresh token works once: a
second use ends the grant, because it means the token leaked.
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bridge.auth.tokens import chosen_scopes, new_token
from bridge.db.database import Database, Transaction, in_snapshot, in_transaction, token_sha256

if TYPE_CHECKING:
    from mcp.server.auth.provider import AuthorizationCode

ACCESS_SECONDS: Final = 3600
_REFRESH_SECONDS: Final = 60 * 86_400
#: A program that was never granted access is deleted after a day, or earlier if many register.
_UNUSED_SECONDS, _MAX_CLIENTS, _MAX_GRANTS_EACH = 86_400.0, 500, 50
#: Per grant: valid access tokens, and used refresh tokens that are still recognized.
_MAX_ACCESS, _MAX_SPENT = 8, 100
#: The prefixes by which the API recognizes a token (see auth/tokens.py).
_ACCESS_PREFIX, _REFRESH_PREFIX = "bridge-person-", "bridge-refresh-"
_TOKEN_BYTES = 32
_NO_LABEL = re.compile(r"[^A-Za-z0-9 ._-]+")
_LABEL_CHARS = 30

#: Delete a grant's oldest tokens of a kind, because programs may request new ones without limit.
_KEEP_SPENT = """
DELETE FROM oauth_spent WHERE person = ? AND label = ? AND refresh_sha256 NOT IN
    (SELECT refresh_sha256 FROM oauth_spent WHERE person = ? AND label = ? ORDER BY spent_at DESC LIMIT ?)
"""
_KEEP_ACCESS = """
DELETE FROM granted_access WHERE person = ? AND label = ? AND access_sha256 NOT IN
    (SELECT access_sha256 FROM granted_access WHERE person = ? AND label = ? ORDER BY expires_at DESC LIMIT ?)
"""


@dataclass(frozen=True, slots=True)
class Grant:
    """A program's access for a person, and the time until which it can be refreshed."""

    client_id: str
    person: str
    label: str
    scopes: list[str]
    expires_at: float


@dataclass(frozen=True, slots=True)
class Issued:
    """New tokens in plain text, available only now."""

    access: str
    refresh: str
    scopes: list[str]


class Grants:
    """Store the programs that registered over MCP and the access that people granted them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @in_snapshot
    def client(self, db: Transaction, client_id: str) -> str | None:
        """Return a program's registration as JSON, or None."""
        row = db.execute("SELECT info FROM oauth_clients WHERE client_id = ?", (client_id,)).fetchone()
        return None if row is None else str(row["info"])

    @in_transaction
    def add_client(self, tx: Transaction, client_id: str, info: str) -> None:
        """Store a program's registration. Evict old ones without a grant."""
        now = time.time()
        _drop_expired(tx, now)
        idle = "client_id NOT IN (SELECT client_id FROM oauth_grants)"
        tx.execute(f"DELETE FROM oauth_clients WHERE created_at < ? AND {idle}", (now - _UNUSED_SECONDS,))  # noqa: S608 - ours
        tx.execute(
            f"DELETE FROM oauth_clients WHERE {idle} AND client_id NOT IN "  # noqa: S608 - ours
            f"(SELECT client_id FROM oauth_clients WHERE {idle} ORDER BY created_at DESC, client_id LIMIT ?)",
            (_MAX_CLIENTS - 1,),
        )
        tx.execute("INSERT INTO oauth_clients VALUES (?, ?, ?)", (client_id, info, now))

    @in_transaction
    def add_code(self, tx: Transaction, code: AuthorizationCode) -> None:
        """Store a person's consent under its code."""
        tx.execute("DELETE FROM oauth_codes WHERE expires_at < ?", (time.time(),))
        info = code.model_dump_json(exclude={"code"})
        row = (token_sha256(code.code), code.client_id, code.subject, info, code.expires_at)
        tx.execute("INSERT INTO oauth_codes VALUES (?, ?, ?, ?, ?)", row)

    @in_snapshot
    def code(self, db: Transaction, text: str) -> str | None:
        """Return the consent that a code stands for as JSON, without the code, or None."""
        row = db.execute("SELECT info FROM oauth_codes WHERE code_sha256 = ?", (token_sha256(text),)).fetchone()
        return None if row is None else str(row["info"])

    @in_transaction
    def exchange_code(self, tx: Transaction, code: AuthorizationCode, client_name: str) -> Issued | None:
        """Consume a code and return a new grant's tokens. None if it was used or expired, or the person was revoked."""
        used = "DELETE FROM oauth_codes WHERE code_sha256 = ? RETURNING person, expires_at"
        row = tx.execute(used, (token_sha256(code.code),)).fetchone()
        if row is None or row["expires_at"] < time.time() or not _may_come(tx, row["person"]):
            return None
        person = row["person"]
        _make_room(tx, person)
        label = _free_label(tx, person, client_name)
        # Identifies the grant; its text is dropped.
        new_token(tx, person, label, chosen_scopes(code.scopes))
        return _issue(tx, Grant(code.client_id, person, label, code.scopes, 0.0))

    @in_snapshot
    def refresh(self, db: Transaction, text: str) -> Grant | None:
        """Look up the grant of a refresh token. Return None if the token is unknown, used or revoked."""
        row = db.execute("SELECT * FROM oauth_grants WHERE refresh_sha256 = ?", (token_sha256(text),)).fetchone()
        return _grant(row) if row is not None and _may_come(db, row["person"]) else None

    @in_transaction
    def end_reused(self, tx: Transaction, text: str) -> bytes | None:
        """End the grant of a refresh token that was used before. Return its key, or None for other tokens."""
        spent = "SELECT person, label FROM oauth_spent WHERE refresh_sha256 = ?"
        row = tx.execute(spent, (token_sha256(text),)).fetchone()
        return None if row is None else _end(tx, row["person"], row["label"])

    @in_transaction
    def exchange_refresh(self, tx: Transaction, text: str) -> Issued | None:
        """Consume a refresh token and return new tokens of its grant, or None if it was used or has expired."""
        key = token_sha256(text)
        row = tx.execute("DELETE FROM oauth_grants WHERE refresh_sha256 = ? RETURNING *", (key,)).fetchone()
        if row is None or row["expires_at"] < time.time():
            return None
        tx.execute("INSERT INTO oauth_spent VALUES (?, ?, ?, ?)", (key, row["person"], row["label"], time.time()))
        tx.execute(_KEEP_SPENT, (row["person"], row["label"], row["person"], row["label"], _MAX_SPENT))
        return _issue(tx, _grant(row))


def _issue(tx: Transaction, grant: Grant) -> Issued:
    """Create tokens for a grant. Earlier access tokens stay valid until they expire."""
    now = time.time()
    access = _ACCESS_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    refresh = _REFRESH_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    _drop_expired(tx, now)
    of_access = (token_sha256(access), grant.person, grant.label, now + ACCESS_SECONDS)
    tx.execute("INSERT INTO granted_access VALUES (?, ?, ?, ?)", of_access)
    tx.execute(_KEEP_ACCESS, (grant.person, grant.label, grant.person, grant.label, _MAX_ACCESS))
    scopes, expires_at = " ".join(grant.scopes), now + _REFRESH_SECONDS
    of_refresh = (token_sha256(refresh), grant.person, grant.label, grant.client_id, scopes, expires_at)
    tx.execute("INSERT INTO oauth_grants VALUES (?, ?, ?, ?, ?, ?)", of_refresh)
    return Issued(access, refresh, grant.scopes)


def _drop_expired(tx: Transaction, now: float) -> None:
    tx.execute("DELETE FROM granted_access WHERE expires_at < ?", (now,))
    tx.execute(
        "DELETE FROM person_tokens WHERE (person, label) IN "
        "(SELECT person, label FROM oauth_grants WHERE expires_at < ?)",
        (now,),
    )


def _make_room(tx: Transaction, person: str) -> None:
    """End the grants of a person that were refreshed longest ago, so that another one is within the limit."""
    newest_first = tx.execute("SELECT label FROM oauth_grants WHERE person = ? ORDER BY expires_at DESC", (person,))
    for row in newest_first.fetchall()[_MAX_GRANTS_EACH - 1 :]:
        _end(tx, person, row["label"])


def _end(tx: Transaction, person: str, label: str) -> bytes | None:
    row = tx.execute(
        "DELETE FROM person_tokens WHERE person = ? AND label = ? RETURNING token_sha256", (person, label)
    ).fetchone()
    return None if row is None else bytes(row["token_sha256"])


def _may_come(tx: Transaction, person: str) -> bool:
    row = tx.execute("SELECT 1 FROM people WHERE name = ? AND revoked_at IS NULL", (person,)).fetchone()
    return row is not None


def _free_label(tx: Transaction, person: str, client_name: str) -> str:
    """Return an unused label for the grant in the person's list of tokens, from the program's name."""
    name = _NO_LABEL.sub("", client_name[:200]).strip(" ._-")[:_LABEL_CHARS].strip() or "program"
    taken = {row["label"] for row in tx.execute("SELECT label FROM person_tokens WHERE person = ?", (person,))}
    number, label = 1, name
    while label in taken:
        number += 1
        label = f"{name} {number}"
    return label


def _grant(row: Any) -> Grant:
    return Grant(row["client_id"], row["person"], row["label"], row["scopes"].split(), row["expires_at"])
