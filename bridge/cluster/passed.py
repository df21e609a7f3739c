"""A request that one bridge passes on to another: what it says of itself, and how that is signed and believed.

The signature stands for the person, who was recognised where the request arrived: no cookie and no token travels
between bridges. It is an HMAC over everything that decides what may be done: method, path and query, time, person, what
they came in by, the ownership that the sender counts on, the request's id. Good for half a minute, once.
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

#: Whatever begins with this is said by bridges to each other; from anybody else it is neither believed nor passed on.
PREFIX: Final = "X-Bridge-"
HOP: Final = "X-Bridge-Hop"
#: In an answer: that the other bridge itself refuses, and why; everything else is the door's own word.
ANSWER: Final = "X-Bridge-Answer"
_PERSON, _TIME, _SIGNATURE = "X-Bridge-Person", "X-Bridge-Time", "X-Bridge-Signature"
_WAY, _EPOCH, _REQUEST = "X-Bridge-Way", "X-Bridge-Epoch", "X-Bridge-Request"
#: The clocks of two bridges may differ by so much.
CLOCK_SECONDS: Final = 30.0
#: Signatures that are remembered: so many requests in a minute are far more than a bridge can answer.
_MOST_REMEMBERED = 200_000
_KEY_CONTEXT = b"sprite: one bridge passes a request on to another"

Refusal = Literal["not-owner", "unsigned", "late", "replayed"]


@dataclass(frozen=True, slots=True)
class Passed:
    """Whose request it is, and what they came in by.

    `way_in` is the hash of a session or of a token, in hex, which ends the request when it is revoked; None for who
    comes by the control socket. `scopes` is None for a full token, and for whoever has none.
    """

    person: str
    by: Literal["session", "token", "operator"]
    way_in: str | None
    label: str = ""
    scopes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Hop:
    """What is believed of a request that was passed on: who it is from, the ownership it counts on, its id."""

    passed: Passed
    epoch: int
    request_id: str


#: On a request that another bridge passed on, and that is believed.
PASSED: Final = web.RequestKey("passed", Passed)


class HopRefusedError(Exception):
    """What says that it is passed on is not believed; `reason` is for the other bridge."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason: Refusal = reason


class Seal:
    """Signs what this bridge passes on, and believes what others have signed. `clock` gives Unix seconds."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(secret.encode("utf-8", "surrogateescape"), _KEY_CONTEXT, "sha256")
        self._clock = clock
        #: Signatures that were believed, with the time until which they would be believed again; oldest first.
        self._seen: OrderedDict[str, float] = OrderedDict()

    def headers(self, method: str, target: str, hop: Hop) -> dict[str, str]:
        """What goes along with a request; `target` is its path and query as they are sent."""
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
        """What a request says that was passed on. HopRefusedError where it is not to be believed."""
        given = headers.get(_SIGNATURE, "").encode("utf-8", "surrogateescape")
        signature = self._signature(method, target, headers)
        if headers.get(HOP) != "1" or not hmac.compare_digest(given, signature.encode()):
            raise HopRefusedError("unsigned")
        # From here on a bridge speaks.
        passed = msgspec.json.decode(base64.urlsafe_b64decode(headers[_WAY]), type=Passed)
        if passed.person != headers[_PERSON]:
            raise HopRefusedError("unsigned")
        now = self._clock()
        if not abs(now - float(headers[_TIME])) <= CLOCK_SECONDS:
            raise HopRefusedError("late")
        self._once(signature, now)
        return Hop(passed, int(headers[_EPOCH]), headers[_REQUEST])

    def _once(self, signature: str, now: float) -> None:
        # A clock that runs ahead is believed as long again.
        while self._seen and next(iter(self._seen.values())) < now:
            self._seen.popitem(last=False)
        if signature in self._seen or len(self._seen) >= _MOST_REMEMBERED:
            raise HopRefusedError("replayed")
        self._seen[signature] = now + 2 * CLOCK_SECONDS

    def _signature(self, method: str, target: str, said: Mapping[str, str]) -> str:
        parts = [method, target, *(said.get(name, "") for name in (_TIME, _PERSON, _WAY, _EPOCH, _REQUEST))]
        # Each part with its length before it: what ends one cannot begin the next.
        encoded = [part.encode("utf-8", "surrogateescape") for part in parts]
        message = b"".join(b"%d:%b" % (len(part), part) for part in encoded)
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()


def target_of(request: web.Request) -> str:
    """The path and query of a request as they are signed, and sent on: a host in them is none of ours to go to."""
    return request.rel_url.raw_path_qs
