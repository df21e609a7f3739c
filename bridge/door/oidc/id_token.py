"""Verification of ID tokens. Pure.

A valid token is signed by a key of the provider with an asymmetric algorithm. It is recent, and issued for this bridge
and for the login that this browser started.
"""

from __future__ import annotations

from typing import Any, Final

from authlib.oidc.core import CodeIDToken  # type: ignore[import-untyped] # has no stubs
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from bridge.errors import BridgeError

#: Excludes `none` and algorithms with a shared secret.
ALGORITHMS: Final = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519".split()
#: Allowed clock difference between bridge and provider, in seconds.
SKEW_SECONDS: Final = 60
MAX_TOKEN_CHARACTERS: Final = 32 * 1024
_MAX_SUBJECT_CHARACTERS = 255


class IdTokenError(BridgeError):
    """The token is invalid; the message is for operators."""


class UnknownKeyError(IdTokenError):
    """The token names a key that is not known."""


def verified(
    token: str, keys: KeySet, *, issuer: str, client_id: str, nonce: str, now: float, access_token: str | None = None
) -> dict[str, Any]:
    """Return the claims of a valid token. IdTokenError says why one is invalid."""
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise IdTokenError("it is too long")
    try:
        kid = jws.extract_compact(token.encode("ascii")).headers().get("kid")
        if kid is not None and all(key.kid != kid for key in keys.keys):
            raise UnknownKeyError("it is signed by an unknown key")
        read = jwt.decode(token, keys, algorithms=ALGORITHMS)
        options: Any = {"iss": {"essential": True, "value": issuer}, "aud": {"essential": True, "value": client_id}}
        params = {"nonce": nonce, "client_id": client_id, "access_token": access_token}
        claims = CodeIDToken(read.claims, read.header, options, params)
        claims.validate(now=int(now), leeway=SKEW_SECONDS)
    except JoseError as error:
        # The description names a claim or header, without its value.
        raise IdTokenError(error.description or error.error) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise IdTokenError("it cannot be read") from error
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= _MAX_SUBJECT_CHARACTERS or not subject.isprintable():
        raise IdTokenError("its subject is no name")
    return dict(claims)
