"""A request that one bridge forwards to another: its headers, their signature and its verification.

The signature replaces the person's cookie or token, which never travels between bridges. It is an HMAC over method,
path and query, time, person, credential, expected epoch and request id. It is valid for 30 seconds, once.
"""

from __future__ import annotations

import base64
import hashlib
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
_PERSON, _TIME, _SIGNATURE = "X-Bridge-Person", "X-Bridge-Time", "X-Bridge-Signature"
_WAY, _EPOCH, _REQUEST = "X-Bridge-Way", "X-Bridge-Epoch", "X-Bridge-Request"
#: Allowed difference between two bridges' clocks.
CLOCK_SECONDS: Final = 30.0
#: Remembered signatures: far more than the requests a bridge can answer in a minute.
_MOST_REMEMBERED = 200_000
_KEY_CONTEXT = b"sprite: one bridge passes a request on to another"

Refusal = Literal["not-owner", "unsigned", "late", "replayed"]


@dataclass(frozen=True, slots=True)
class Passed:
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
class Hop:
    """Verified facts about a forwarded request: its person and credential, the expected epoch and the request id."""

    passed: Passed
    epoch: int
    request_id: str


#: Set on a verified request from another bridge.
PASSED: Final = web.RequestKey("passed", Passed)


class HopRefusedError(Exception):
    """A forwarded request failed verification; `reason` is for the other bridge."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason: Refusal = reason


class Seal:
    """Sign forwarded requests and verify those of other bridges. `clock` returns Unix seconds."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(secret.encode("utf-8", "surrogateescape"), _KEY_CONTEXT, "sha256")
        self._clock = clock
        #: Accepted signatures with the time until which a replay would be valid, oldest first.
        self._seen: OrderedDict[str, float] = OrderedDict()

    def headers(self, method: str, target: str, hop: Hop) -> dict[str, str]:
        """Return the signed headers of a request; `target` is its path and query as sent."""
        way = base64.urlsafe_b64encode(msgspec.json.encode(hop.passed)).decode()
        said = {
            HOP: "1",
            _PERSON: hop.passed.person,
            _TIME: f"{self._clock():.6f}",
            _WAY: way,
            _EPOCH: str(hop.epoch),
            _REQUEST: hop.request_id,
        }
        return {**said, _SIGNATURE: self._signature(method, target, said)}

    def opened(self, method: str, target: str, headers: Mapping[str, str]) -> Hop:
        """Verify a forwarded request and return its facts. Raises HopRefusedError."""
        given = headers.get(_SIGNATURE, "").encode("utf-8", "surrogateescape")
        signature = self._signature(method, target, headers)
        if headers.get(HOP) != "1" or not hmac.compare_digest(given, signature.encode()):
            raise HopRefusedError("unsigned")
        # The signature is valid, so the headers come from a bridge.
        passed = msgspec.json.decode(base64.urlsafe_b64decode(headers[_WAY]), type=Passed)
        if passed.person != headers[_PERSON]:
            raise HopRefusedError("unsigned")
        now = self._clock()
        if not abs(now - float(headers[_TIME])) <= CLOCK_SECONDS:
            raise HopRefusedError("late")
        self._once(signature, now)
        return Hop(passed, int(headers[_EPOCH]), headers[_REQUEST])

    def _once(self, signature: str, now: float) -> None:
        # Twice the limit, because a clock that runs ahead keeps a signature valid for longer.
        while self._seen and next(iter(self._seen.values())) < now:
            self._seen.popitem(last=False)
        if signature in self._seen or len(self._seen) >= _MOST_REMEMBERED:
            raise HopRefusedError("replayed")
        self._seen[signature] = now + 2 * CLOCK_SECONDS

    def _signature(self, method: str, target: str, said: Mapping[str, str]) -> str:
        parts = [method, target, *(said.get(name, "") for name in (_TIME, _PERSON, _WAY, _EPOCH, _REQUEST))]
        # Each part has its length in front, so that no two lists of parts give the same bytes.
        encoded = [part.encode("utf-8", "surrogateescape") for part in parts]
        message = b"".join(b"%d:%b" % (len(part), part) for part in encoded)
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()


def target_of(request: web.Request) -> str:
    """Return the path and query as signed and sent. A host in the request line is ignored."""
    return request.rel_url.raw_path_qs
