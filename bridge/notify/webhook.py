"""The operator's webhook: send every notice as signed JSON to one address, with a few retries.

A receiver that hangs, redirects or never ends its answer delays no other notice.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec

from bridge.db.database import Database, DatabaseError, kept_secret, once_back
from bridge.notify.notice import SHORT_TITLE, Notice
from sprite.common.tasks import Service

PREFIX = "whsec_"
_KEY_BYTES = 32


def shown(key: bytes) -> str:
    """Return a signing key in the text form that receivers' libraries accept."""
    return PREFIX + base64.b64encode(key).decode()


def headers(key: bytes, message_id: str, at: int, body: bytes) -> dict[str, str]:
    """Return the three headers by which a receiver verifies the webhook's body; `at` is in Unix seconds."""
    digest = hmac.digest(key, b"%s.%d.%s" % (message_id.encode(), at, body), hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


async def kept_key(database: Database) -> bytes:
    """Return the webhook's signing key, created on first use. Raise DatabaseError."""
    return await kept_secret(database, "webhook_key", partial(secrets.token_bytes, _KEY_BYTES))


log = logging.getLogger(__name__)

_TRY_SECONDS = 10.0
_AT_ONCE = 4
#: Delays in seconds after each failed try: five tries within a few minutes.
_PAUSES = (1.0, 5.0, 20.0, 60.0)
#: Message ids are derived from the event, so that a receiver can deduplicate.
_IDS = uuid.UUID("5d8f2f0e-1c8b-4a54-9a3d-3c6f9b1f6f53")


def message_of(notice: Notice, *, words: bool) -> dict[str, Any]:
    """Return the JSON body for a notice; without `words` it does not reveal the subject."""
    message = {
        "id": str(uuid.uuid5(_IDS, f"{notice.sprite}/{notice.key}")),
        "kind": notice.kind,
        "person": notice.person,
        "sprite": notice.sprite,
        "title": notice.title if words else SHORT_TITLE,
        "body": notice.body if words else "",
        "at": notice.at,
    }
    return message if notice.request_id is None else {**message, "request_id": notice.request_id}


class Webhook(Service):
    """Post notifications to a webhook; a Channel. `wants_words`: the person wants texts. `sent` counts by outcome."""

    def __init__(self, url: str, key: bytes, wants_words: Callable[[str], Awaitable[bool]]) -> None:
        self._url = url
        self._key = key
        self._wants_words = wants_words
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._http: aiohttp.ClientSession
        self._is_failing = False
        self.sent: Counter[str] = Counter()

    async def _open(self, stack: AsyncExitStack) -> None:
        timeout = aiohttp.ClientTimeout(total=_TRY_SECONDS)
        session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        self._http = await stack.enter_async_context(session)

    async def deliver(self, notice: Notice) -> None:
        """Post the notice, with retries; see Channel."""
        try:
            message = message_of(notice, words=await once_back(partial(self._wants_words, notice.person)))
        except DatabaseError as error:
            log.warning("the database cannot be read for the webhook (%s)", error.code)
            return
        failure = await self._post(message)
        for pause in _PAUSES:
            if not failure:
                return
            await asyncio.sleep(pause)
            failure = await self._post(message)
        if failure:
            log.warning("a message for the webhook is given up (%s)", failure)

    async def _post(self, message: dict[str, Any]) -> str:
        """Post a message once; return "" on success, else the reason without any of the receiver's text or address."""
        async with self._slots:
            failure = await self._try(message)
        self.sent["failed" if failure else "taken"] += 1
        if failure and not self._is_failing:
            log.warning("the webhook did not accept a message (%s)", failure)
        self._is_failing = bool(failure)
        return failure

    async def _try(self, message: dict[str, Any]) -> str:
        body = msgspec.json.encode(message)
        signed = headers(self._key, message["id"], int(time.time()), body)
        try:
            async with self._http.post(
                self._url,
                data=body,
                headers={**signed, "Content-Type": "application/json", "User-Agent": "Sprite"},
                allow_redirects=False,
            ) as response:
                # The status is enough. A body may never end.
                response.close()
                is_taken = HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES
                return "" if is_taken else f"HTTP {response.status}"
        except TimeoutError:
            return "no answer in time"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__
