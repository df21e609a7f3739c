"""People's passkeys in the database: public keys and use counters. The data grants no access."""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from bridge.db.database import Database, Transaction, in_snapshot, in_transaction
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from webauthn.authentication.verify_authentication_response import VerifiedAuthentication
    from webauthn.registration.verify_registration_response import VerifiedRegistration


MOST_EACH = 20
MAX_LABEL_CHARACTERS = 40


class PasskeyError(BridgeError):
    """A passkey cannot be added, removed or verified; the message is for its person."""


@dataclass(frozen=True, slots=True)
class Passkey:
    """A person's passkey; times in Unix seconds."""

    credential_id: bytes
    person: str
    public_key: bytes
    sign_count: int
    label: str
    created_at: float
    used_at: float | None


class Passkeys:
    """Store and find people's passkeys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @in_transaction
    def add(
        self, tx: Transaction, person: str, credential_id: bytes, public_key: bytes, sign_count: int, label: str
    ) -> None:
        """Store a passkey. Raise PasskeyError if the person has too many or was revoked, or if it exists already."""
        if tx.execute("SELECT 1 FROM people WHERE name = ? AND revoked_at IS NULL", (person,)).fetchone() is None:
            raise PasskeyError("Your access here was revoked.")
        count = tx.execute("SELECT count(*) AS count FROM passkeys WHERE person = ?", (person,)).fetchone()["count"]
        if count >= MOST_EACH:
            raise PasskeyError(f"You have {MOST_EACH} passkeys already. Remove one first.")
        found = tx.execute(
            "INSERT INTO passkeys (credential_id, person, public_key, sign_count, label, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (credential_id, person, public_key, sign_count, _label(label), time.time()),
        )
        if not found.rowcount:
            raise PasskeyError("This passkey was already added.")

    @in_snapshot
    def of(self, db: Transaction, person: str) -> list[Passkey]:
        """Return a person's passkeys, oldest first."""
        rows = db.execute("SELECT * FROM passkeys WHERE person = ? ORDER BY created_at, label", (person,))
        return [_passkey(row) for row in rows]

    @in_snapshot
    def found(self, db: Transaction, credential_id: bytes) -> Passkey | None:
        """Return a passkey by its id, or None if it is unknown or its person was revoked."""
        row = db.execute(
            "SELECT passkeys.* FROM passkeys JOIN people ON name = person "
            "WHERE credential_id = ? AND revoked_at IS NULL",
            (credential_id,),
        ).fetchone()
        return None if row is None else _passkey(row)

    @in_transaction
    def used(self, tx: Transaction, passkey: Passkey, sign_count: int) -> bool:
        """Record a passkey's use. Return False if its counter has changed since the lookup: the key may be a copy."""
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
    )


_NAME = "Sprite"
#: The name that browsers trust without https.
_HERE = "localhost"
_MAX_CREDENTIAL_BYTES = 1024


class _Named(msgspec.Struct, rename="camel"):
    user_handle: str | None = None


class Answer(msgspec.Struct, rename="camel"):
    """The parts of a device's answer that are read before verification."""

    id: str
    response: _Named


@dataclass(frozen=True, slots=True)
class Party:
    """The relying party: the name that keys are bound to, and the origins of pages that may use them."""

    rp_id: str
    origins: tuple[str, ...]

    def is_at(self, host: str) -> bool:
        """Return whether pages at this host (with its port) may use passkeys."""
        return any(urlsplit(origin).netloc == host for origin in self.origins)

    def new_options(self, person: str, challenge: bytes, known: Sequence[Passkey]) -> bytes:
        """Return the options for creating a key, as JSON."""
        import webauthn
        from webauthn.helpers import structs

        options = webauthn.generate_registration_options(
            rp_id=self.rp_id,
            rp_name=_NAME,
            user_id=user_handle(person),
            user_name=person,
            challenge=challenge,
            authenticator_selection=structs.AuthenticatorSelectionCriteria(
                resident_key=structs.ResidentKeyRequirement.REQUIRED,
                user_verification=structs.UserVerificationRequirement.REQUIRED,
            ),
            exclude_credentials=[structs.PublicKeyCredentialDescriptor(id=each.credential_id) for each in known],
        )
        return webauthn.options_to_json(options).encode()

    def login_options(self, challenge: bytes) -> bytes:
        """Return the options for a login with a discoverable key, as JSON."""
        import webauthn
        from webauthn.helpers import structs

        options = webauthn.generate_authentication_options(
            rp_id=self.rp_id, challenge=challenge, user_verification=structs.UserVerificationRequirement.REQUIRED
        )
        return webauthn.options_to_json(options).encode()

    def believed_new(self, answer: bytes, challenge: bytes) -> VerifiedRegistration:
        """Verify the new passkey in a device's answer to the challenge, and return it. Raises PasskeyError."""
        import webauthn

        try:
            made = webauthn.verify_registration_response(
                credential=answer.decode(),
                expected_challenge=challenge,
                expected_rp_id=self.rp_id,
                expected_origin=list(self.origins),
                require_user_verification=True,
            )
        except Exception as error:
            # The library parses untrusted CBOR, ASN.1 and keys, and raises many types of errors.
            raise PasskeyError("The new passkey is invalid. Try again.") from error
        if not 0 < len(made.credential_id) <= _MAX_CREDENTIAL_BYTES:
            raise PasskeyError("This passkey's name is too long.")
        return made

    def believed_login(self, answer: bytes, challenge: bytes, passkey: Passkey) -> VerifiedAuthentication:
        """Verify that the device has this passkey and has just verified its user. Raises PasskeyError."""
        import webauthn

        try:
            return webauthn.verify_authentication_response(
                credential=answer.decode(),
                expected_challenge=challenge,
                expected_rp_id=self.rp_id,
                expected_origin=list(self.origins),
                credential_public_key=passkey.public_key,
                credential_current_sign_count=passkey.sign_count,
                require_user_verification=True,
            )
        except Exception as error:
            # As above.
            raise PasskeyError("The passkey could not be verified. Try again, or log in another way.") from error


def party_of(public_url: str | None, port: int) -> Party | None:
    """Return the relying party of a URL (None: localhost), or None if browsers store no passkeys there (IPs, http)."""
    if public_url is None:
        return Party(_HERE, (f"http://{_HERE}:{port}",))
    parts = urlsplit(public_url)
    name = parts.hostname or ""
    default = {"http": 80, "https": 443}[parts.scheme]
    origin = f"{parts.scheme}://{name}" + ("" if parts.port in {None, default} else f":{parts.port}")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        is_here = name == _HERE or name.endswith(f".{_HERE}")
        return Party(name, (origin,)) if parts.scheme == "https" or is_here else None
    return None


def credential_named(answer: bytes) -> tuple[bytes, bytes | None]:
    """Return the credential id and user handle in a device's answer. Raises PasskeyError."""
    from webauthn import base64url_to_bytes

    try:
        said: Any = msgspec.json.decode(answer, type=Answer)
        handle = said.response.user_handle
        return base64url_to_bytes(said.id), None if handle is None else base64url_to_bytes(handle)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PasskeyError("The browser's answer is not from a passkey.") from error
