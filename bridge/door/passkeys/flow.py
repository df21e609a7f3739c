"""The steps of both ceremonies. Challenges are random, bound to one browser and answered once."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Literal

import msgspec

from bridge.door.passkeys.ceremonies import Party, credential_named
from bridge.door.passkeys.store import PasskeyError, Passkeys, user_handle

if TYPE_CHECKING:
    from bridge.door.sealed_cookie import Spent

_UNKNOWN = "This passkey is not known here. Come in another way, and add it anew."


class Asked(msgspec.Struct, frozen=True):
    """A challenge of this browser: `person` is the owner of a new key, "" for a login."""

    challenge: str
    kind: Literal["new", "login"]
    person: str = ""


class PasskeyFlow:
    """Starts and finishes ceremonies. The browser's signed cookie keeps `Asked` in between."""

    def __init__(self, passkeys: Passkeys, party: Party, spent: Spent) -> None:
        self.passkeys = passkeys
        self.party = party
        self._spent = spent

    async def begin_new(self, person: str) -> tuple[Asked, bytes]:
        """Return the state for the browser's cookie and the device's options as JSON."""
        asked = Asked(secrets.token_urlsafe(32), "new", person)
        known = await self.passkeys.of(person)
        return asked, self.party.new_options(person, asked.challenge.encode(), known)

    def begin_login(self) -> tuple[Asked, bytes]:
        """Return the same for a login."""
        asked = Asked(secrets.token_urlsafe(32), "login")
        return asked, self.party.login_options(asked.challenge.encode())

    async def end_new(self, asked: Asked | None, person: str, answer: bytes, label: str) -> None:
        """Verify and store a new key. Raises PasskeyError."""
        challenge = await self._challenge(asked, "new", person)
        made = self.party.believed_new(answer, challenge)
        await self.passkeys.add(
            person, made.credential_id, made.credential_public_key, made.sign_count, label, made.aaguid
        )

    async def end_login(self, asked: Asked | None, answer: bytes) -> str:
        """Verify a login and return its person. Raises PasskeyError."""
        challenge = await self._challenge(asked, "login", "")
        credential_id, handle = credential_named(answer)
        passkey = await self.passkeys.found(credential_id)
        if passkey is None or (handle is not None and handle != user_handle(passkey.person)):
            raise PasskeyError(_UNKNOWN)
        verified = self.party.believed_login(answer, challenge, passkey)
        if not await self.passkeys.used(passkey, verified.new_sign_count):
            raise PasskeyError("This passkey was used elsewhere in the same moment. Try again.")
        return passkey.person

    async def _challenge(self, asked: Asked | None, kind: str, person: str) -> bytes:
        """Consume a challenge and return it. Raises PasskeyError if it does not match or was answered."""
        if asked is None or (asked.kind, asked.person) != (kind, person):
            raise PasskeyError("This took more than ten minutes, or was begun in another browser. Try again.")
        if not await self._spent.spend(asked.challenge):
            raise PasskeyError("This was answered already. Try again.")
        return asked.challenge.encode()
