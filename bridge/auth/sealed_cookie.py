"""A short-lived signed cookie for the start of an exchange with a third party, in one browser.

Its content is signed, not encrypted, and valid for some minutes. `Spent` makes sure that each answer counts once.
"""

import hashlib
import time
from typing import Final, Generic, TypeVar

import msgspec
from aiohttp import web
from itsdangerous import BadSignature, TimestampSigner
from itsdangerous.encoding import base64_decode, base64_encode

from bridge.db.database import Database, Transaction, in_transaction, token_sha256

#: A person may have to find their phone first.
SECONDS: Final = 600
_MAX_CHARACTERS = 4096
_T = TypeVar("_T", bound=msgspec.Struct)


class SealedCookie(Generic[_T]):
    """One kind of signed cookie. `purpose` is part of its name and of its signature.

    Without https, its name also contains `which`, because bridges on the same host share their cookies.
    """

    def __init__(self, key: bytes, purpose: str, type_: type[_T], *, is_secure: bool, which: str) -> None:
        self._signer = TimestampSigner(key, salt=f"bridge {purpose}", digest_method=hashlib.sha256)
        self._decoder = msgspec.json.Decoder(type_)
        self._is_secure = is_secure
        self._name = f"__Host-bridge-{purpose}" if is_secure else f"bridge-{purpose}-{which}"

    def give(self, response: web.Response, value: _T) -> None:
        """Set the cookie. Replaces an earlier one."""
        response.set_cookie(
            self._name,
            self._signer.sign(base64_encode(msgspec.json.encode(value))).decode(),
            max_age=SECONDS,
            path="/",
            httponly=True,
            secure=self._is_secure or None,
            # The provider sends the browser back from its own site.
            samesite="Lax",
        )

    def of(self, request: web.Request) -> _T | None:
        """Return the cookie's value, or None if it expired or was not set by this bridge."""
        cookie = request.cookies.get(self._name, "")
        if len(cookie) > _MAX_CHARACTERS:
            return None
        try:
            return self._decoder.decode(base64_decode(self._signer.unsign(cookie, max_age=SECONDS)))
        except (BadSignature, msgspec.MsgspecError, ValueError):
            return None

    def take_back(self, response: web.Response) -> None:
        """Delete the cookie."""
        response.del_cookie(self._name, path="/", secure=self._is_secure or None, httponly=True, samesite="Lax")


class Spent:
    """Record used challenges and login states. Each is valid for one answer, at any bridge."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @in_transaction
    def spend(self, tx: Transaction, challenge: str) -> bool:
        """Mark a challenge as used. Return whether this was its first use."""
        now = time.time()
        # Answers to older ones are refused because of their cookie's age.
        tx.execute("DELETE FROM spent_challenges WHERE expires_at < ?", (now,))
        found = tx.execute(
            "INSERT INTO spent_challenges (challenge_sha256, expires_at) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (token_sha256(challenge), now + 2 * SECONDS),
        )
        return found.rowcount > 0
