"""A push service on loopback with the browser's side: accepts messages by RFC 8030, and decrypts them.

Like a real service, it refuses a message with an invalid signature, claim or header with 403.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import http_ece  # type: ignore[import-untyped]
from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bridge.notify.push import Keys, Subscription
from tests.harness import PATIENCE

if TYPE_CHECKING:
    from types import TracebackType

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
_DAY = 24 * 3600


def unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def padded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Browser:
    """A browser's secrets of a subscription: the private key, and the authentication secret."""

    def __init__(self, endpoint: str) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._secret = b"sixteen bytes ok"
        point = self._private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.subscription = Subscription(endpoint, Keys(unpadded(point), unpadded(self._secret)))

    def read(self, body: bytes) -> dict[str, Any]:
        """Decrypt a message (RFC 8291)."""
        clear = http_ece.decrypt(body, private_key=self._private, auth_secret=self._secret, version="aes128gcm")
        message: dict[str, Any] = json.loads(clear)
        return message


@dataclass(frozen=True, slots=True)
class Pushed:
    """One accepted message: its headers, the claims of its signature, its size, and the decrypted text."""

    headers: dict[str, str]
    claims: dict[str, Any]
    size: int
    message: dict[str, Any]


class PushService:
    """`async with PushService(public_key) as service:`; it answers 201, after the prepared `answers`."""

    def __init__(self, public_key: str = "", clock: Callable[[], float] = time.time) -> None:
        self.public_key = public_key
        self._clock = clock
        self.answers: list[Answer] = []
        #: Browsers whose messages are never answered.
        self.hanging: set[str] = set()
        self.taken: list[Pushed] = []
        self.tries = 0
        self._browsers: dict[str, Browser] = {}
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_post("/to/{name}", self._take)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.origin = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def browser(self, name: str = "phone") -> Browser:
        """Subscribe a browser."""
        self._browsers[name] = Browser(f"{self.origin}/to/{name}")
        return self._browsers[name]

    async def pushed(self, count: int = 1) -> list[Pushed]:
        """Wait until that many messages were accepted."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: len(self.taken) >= count)
        return self.taken

    async def pushed_of(self, kind: str) -> Pushed:
        """Wait for the first message of a kind."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: any(each.message["kind"] == kind for each in self.taken))
        return next(each for each in self.taken if each.message["kind"] == kind)

    async def _take(self, request: web.Request) -> web.StreamResponse:
        self.tries += 1
        if request.match_info["name"] in self.hanging:
            await asyncio.Event().wait()
        if self.answers:
            return await self.answers.pop(0)(request)
        body = await request.read()
        claims = self._claims(request.headers["Authorization"])
        if claims is None or request.headers["Content-Encoding"] != "aes128gcm" or not request.headers["TTL"].isdigit():
            return web.Response(status=403)
        message = self._browsers[request.match_info["name"]].read(body)
        async with self._changed:
            self.taken.append(Pushed(dict(request.headers), claims, len(body), message))
            self._changed.notify_all()
        return web.Response(status=201)

    def _claims(self, authorization: str) -> dict[str, Any] | None:
        """Return the claims signed by the bridge's key (RFC 8292).

        Return None for another key, another audience, or an excessive lifetime.
        """
        scheme, _, rest = authorization.partition(" ")
        parts = dict(part.strip().split("=", 1) for part in rest.split(","))
        signed, _, signature = parts["t"].rpartition(".")
        raw = padded(signature)
        der = utils.encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), padded(parts["k"]))
        try:
            key.verify(der, signed.encode(), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return None
        claims: dict[str, Any] = json.loads(padded(signed.split(".")[1]))
        is_ours = scheme == "vapid" and parts["k"] == self.public_key and claims["aud"] == self.origin
        return claims if is_ours and self._clock() < claims["exp"] <= self._clock() + _DAY else None


def answering(status: int, **headers: str) -> Answer:
    """Answer with this status."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=status, headers={name.replace("_", "-"): text for name, text in headers.items()})

    return answer


async def cutting(request: web.Request) -> web.Response:
    """Drop the connection."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
