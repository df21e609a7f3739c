"""People's passkeys in the database: public keys and use counters. The data grants no access."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any

from bridge.database import Database, Transaction, in_transaction
from bridge.errors import BridgeError

MOST_EACH = 20
MAX_LABEL_CHARACTERS = 40
#: Hex digits of an id that identify a passkey.
SHORT_ID = 12


class PasskeyError(BridgeError):
    """A passkey cannot be added, removed or verified; the message is for its person."""


@dataclass(frozen=True, slots=True)
class Passkey:
    """A person's passkey; times in Unix seconds. `aaguid` identifies the model of the device."""

    credential_id: bytes
    person: str
    public_key: bytes
    sign_count: int
    label: str
    created_at: float
    used_at: float | None
    aaguid: str


class Passkeys:
    """All passkeys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @in_transaction
    def add(
        self,
        tx: Transaction,
        person: str,
        credential_id: bytes,
        public_key: bytes,
        sign_count: int,
        label: str,
        aaguid: str,
    ) -> None:
        """Add a passkey. Raises PasskeyError if the person has too many or was revoked, or if it exists already."""
        if tx.execute("SELECT 1 FROM people WHERE name = ? AND revoked_at IS NULL", (person,)).fetchone() is None:
            raise PasskeyError("You may not come in here any more.")
        count = tx.execute("SELECT count(*) AS count FROM passkeys WHERE person = ?", (person,)).fetchone()["count"]
        if count >= MOST_EACH:
            raise PasskeyError(f"You have {MOST_EACH} passkeys already. Remove one first.")
        found = tx.execute(
            "INSERT INTO passkeys (credential_id, person, public_key, sign_count, label, created_at, aaguid) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (credential_id, person, public_key, sign_count, _label(label), time.time(), aaguid),
        )
        if not found.rowcount:
            raise PasskeyError("This passkey is known here already.")

    async def of(self, person: str) -> list[Passkey]:
        """Return a person's passkeys, oldest first."""
        rows = await self._database.read(
            lambda db: db.execute(
                "SELECT * FROM passkeys WHERE person = ? ORDER BY created_at, label", (person,)
            ).fetchall()
        )
        return [_passkey(row) for row in rows]

    async def found(self, credential_id: bytes) -> Passkey | None:
        """Return a passkey by its id; None if it is unknown or its person was revoked."""
        row = await self._database.read(
            lambda db: db.execute(
                "SELECT passkeys.* FROM passkeys JOIN people ON name = person "
                "WHERE credential_id = ? AND revoked_at IS NULL",
                (credential_id,),
            ).fetchone()
        )
        return None if row is None else _passkey(row)

    @in_transaction
    def used(self, tx: Transaction, passkey: Passkey, sign_count: int) -> bool:
        """Record a use. Return False if the counter has changed since the lookup, because the key may be a copy."""
        changed = tx.execute(
            "UPDATE passkeys SET sign_count = ?, used_at = ? WHERE credential_id = ? AND sign_count = ?",
            (sign_count, time.time(), passkey.credential_id, passkey.sign_count),
        )
        return changed.rowcount > 0

    @in_transaction
    def remove(self, tx: Transaction, person: str, credential_id: bytes) -> bool:
        """Delete a person's passkey. Return False if there is none."""
        sql = "DELETE FROM passkeys WHERE person = ? AND credential_id = ?"
        return tx.execute(sql, (person, credential_id)).rowcount > 0


def named(passkeys: list[Passkey], name: str) -> Passkey:
    """Return a passkey by its label or the start of its id (hex). Raises PasskeyError unless one matches."""
    found = [each for each in passkeys if each.label == name]
    if not found and len(name) >= SHORT_ID:
        found = [each for each in passkeys if each.credential_id.hex().startswith(name.lower())]
    if len(found) != 1:
        which = "no passkey" if not found else "more than one passkey"
        raise PasskeyError(f"There is {which} called {name!r}. Name it by its id, as `users identities` lists it.")
    return found[0]


def user_handle(person: str) -> bytes:
    """Return the id of a person for devices, which reveals nothing about them."""
    return hashlib.sha256(f"sprite passkey {person}".encode()).digest()


def _label(said: str) -> str:
    plain = " ".join("".join(sign if sign.isprintable() else " " for sign in said).split())
    return plain[:MAX_LABEL_CHARACTERS] or "Passkey"


def _passkey(row: Any) -> Passkey:
    return Passkey(
        bytes(row["credential_id"]),
        row["person"],
        bytes(row["public_key"]),
        row["sign_count"],
        row["label"],
        row["created_at"],
        row["used_at"],
        row["aaguid"],
    )
