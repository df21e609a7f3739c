"""WebAuthn's two ceremonies, by the library: what a device is asked, and whether its answer is believed.

A device always has to see its person (user verification), and to know by itself whose key it is (discoverable), so no
name is typed. Knows no HTTP and no database.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from bridge.door.passkeys.store import Passkey, PasskeyError, user_handle

if TYPE_CHECKING:
    from webauthn.authentication.verify_authentication_response import VerifiedAuthentication
    from webauthn.registration.verify_registration_response import VerifiedRegistration

_NAME = "Sprite"
#: What browsers trust without https.
_HERE = "localhost"
_MAX_CREDENTIAL_BYTES = 1024


class _Named(msgspec.Struct, rename="camel"):
    user_handle: str | None = None


class Answer(msgspec.Struct, rename="camel"):
    """What of a device's answer is read before it is believed."""

    id: str
    response: _Named


@dataclass(frozen=True, slots=True)
class Party:
    """Who asks: the name that keys are bound to, and the addresses of pages that may ask for it."""

    rp_id: str
    origins: tuple[str, ...]

    def is_at(self, host: str) -> bool:
        """Whether pages at this host (with its port) may ask; browsers let no others."""
        return any(urlsplit(origin).netloc == host for origin in self.origins)

    def new_options(self, person: str, challenge: bytes, known: Sequence[Passkey]) -> bytes:
        """What a device is asked that is to make a key, as JSON."""
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
        """What a device is asked that knows whose key it has, as JSON."""
        import webauthn
        from webauthn.helpers import structs

        options = webauthn.generate_authentication_options(
            rp_id=self.rp_id, challenge=challenge, user_verification=structs.UserVerificationRequirement.REQUIRED
        )
        return webauthn.options_to_json(options).encode()

    def believed_new(self, answer: bytes, challenge: bytes) -> VerifiedRegistration:
        """The key that a device made. PasskeyError."""
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
            # The library reads a stranger's CBOR, ASN.1 and keys, and fails in as many ways as these can be wrong.
            raise PasskeyError("This passkey was not made as it must be. Try again.") from error
        if not 0 < len(made.credential_id) <= _MAX_CREDENTIAL_BYTES:
            raise PasskeyError("This passkey's name is too long.")
        return made

    def believed_login(self, answer: bytes, challenge: bytes, passkey: Passkey) -> VerifiedAuthentication:
        """That a device has this key, and saw its person just now. PasskeyError."""
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
            raise PasskeyError("This passkey is not believed. Try again, or come in another way.") from error


def party_of(public_url: str | None, port: int) -> Party | None:
    """Who asks at this address; None where browsers keep no passkeys: for a number, and over http for another machine.

    Without an address of its own the bridge is on the machine of whoever uses it, which browsers call localhost.
    """
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
    """Which key a device says it used, and whose. PasskeyError where it says neither."""
    from webauthn import base64url_to_bytes

    try:
        said: Any = msgspec.json.decode(answer, type=Answer)
        handle = said.response.user_handle
        return base64url_to_bytes(said.id), None if handle is None else base64url_to_bytes(handle)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PasskeyError("This is no passkey's answer.") from error
