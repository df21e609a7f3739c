"""WebAuthn's two ceremonies: the options for a device and the verification of its answer.

Devices must verify their user and store discoverable keys, so no name is typed. Has no HTTP and no database.
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
        """Verify a new key. Raises PasskeyError."""
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
            raise PasskeyError("This passkey was not made as it must be. Try again.") from error
        if not 0 < len(made.credential_id) <= _MAX_CREDENTIAL_BYTES:
            raise PasskeyError("This passkey's name is too long.")
        return made

    def believed_login(self, answer: bytes, challenge: bytes, passkey: Passkey) -> VerifiedAuthentication:
        """Verify that a device has this key and has just verified its user. Raises PasskeyError."""
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
    """Return the relying party of an address; None if browsers store no passkeys there (IP addresses, remote http).

    Without a public URL, the bridge runs on its user's machine, at localhost.
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
    """Return the credential id and user handle in a device's answer. Raises PasskeyError."""
    from webauthn import base64url_to_bytes

    try:
        said: Any = msgspec.json.decode(answer, type=Answer)
        handle = said.response.user_handle
        return base64url_to_bytes(said.id), None if handle is None else base64url_to_bytes(handle)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PasskeyError("This is no passkey's answer.") from error
