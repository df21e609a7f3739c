"""A request that one bridge forwards to another: its signed header and the verification.

The header replaces the person's cookie or token, which never travels between bridges. It has the time, person,
credential, expected epoch and request id, and an HMAC over them, the method, the path and the query. It is valid for 30
seconds, once.
"""

from __future__ import annotations

import base64
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from aiohttp import web

#: Prefix of headers reserved for bridges. From other clients they are neither trusted nor forwarded.
PREFIX: Final = "X-Bridge-"
HOP: Final = "X-Bridge-Hop"
#: In an answer: the other bridge itself refuses, with the reason. Other errors come from the endpoint.
ANSWER: Final = "X-Bridge-Answer"
_SIGNED: Final = "X-Bridge-Signature"
#: Allowed difference between two bridges' clocks.
CLOCK_SECONDS: Final = 30.0
#: Remembered signatures: far more than the requests a bridge can answer in a minute.
_MOST_REMEMBERED = 200_000
_KEY_CONTEXT = b"sprite: one bridge passes a request on to another"

Refusal = Literal["not-owner", "unsigned", "late", "replayed"]


@dataclass(frozen=True, slots=True)
class ForwardedIdentity:
    """The person of a request and the credential they used.

    `way_in` is the hash of a session or token, in hex. Its revocation ends the request. It is None for the control
    socket. `scopes` is None for a full token, and for sessions and operators.
    """

    person: str
    by: Literal["session", "token", "operator"]
    way_in: str | None
    label: str = ""
    scopes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ForwardHeader:
    """Verified facts about a forwarded request: its person and credential, the expected epoch and the request id."""

    passed: ForwardedIdentity
    epoch: int
    request_id: str


#: Set on a verified request from another bridge.
PASSED: Final = web.RequestKey("passed", ForwardedIdentity)


class HopRefusedError(Exception):
    """A forwarded request failed verification; `reason` is for the other bridge."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason: Refusal = reason


class RequestSigner:
    """Sign forwarded requests and verify those of other bridges. `clock` returns Unix seconds."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(secret.encode("utf-8", "surrogateescape"), _KEY_CONTEXT, "sha256")
        self._clock = clock
        #: Accepted signatures with the time until which a replay would be valid, oldest first.
        self._seen: OrderedDict[str, float] = OrderedDict()

    def headers(self, method: str, target: str, hop: ForwardHeader) -> dict[str, str]:
        """Return the signed headers of a request; `target` is its path and query as sent."""
        claims = base64.urlsafe_b64encode(msgspec.json.encode((self._clock(), hop))).decode()
        return {HOP: "1", _SIGNED: f"{claims}.{self._signature(method, target, claims)}"}

    def opened(self, method: str, target: str, headers: Mapping[str, str]) -> ForwardHeader:
        """Verify a forwarded request and return its facts. Raises HopRefusedError."""
        claims, _, given = headers.get(_SIGNED, "").rpartition(".")
        signature = self._signature(method, target, claims)
        is_right = hmac.compare_digest(given.encode("utf-8", "surrogateescape"), signature.encode())
        if headers.get(HOP) != "1" or not is_right:
            raise HopRefusedError("unsigned")
        # The signature is valid, so the claims come from a bridge.
        signed_at, hop = msgspec.json.decode(base64.urlsafe_b64decode(claims), type=tuple[float, ForwardHeader])
        now = self._clock()
        if not abs(now - signed_at) <= CLOCK_SECONDS:
            raise HopRefusedError("late")
        self._once(signature, now)
        return hop

    def _once(self, signature: str, now: float) -> None:
        # Twice the limit, because a clock that runs ahead keeps a signature valid for longer.
        while self._seen and next(iter(self._seen.values())) < now:
            self._seen.popitem(last=False)
        if signature in self._seen or len(self._seen) >= _MOST_REMEMBERED:
            raise HopRefusedError("replayed")
        self._seen[signature] = now + 2 * CLOCK_SECONDS

    def _signature(self, method: str, target: str, claims: str) -> str:
        # None of the three has a space.
        message = f"{method} {target} {claims}".encode("utf-8", "surrogateescape")
        return hmac.digest(self._key, message, "sha256").hex()


def target_of(request: web.Request) -> str:
    """Return the path and query as signed and sent. A host in the request line is ignored."""
    return request.rel_url.raw_path_qs
