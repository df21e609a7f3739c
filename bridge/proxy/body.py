"""The body of a request: received whole, decoded, checked, and forwarded with its top level encoded again.

So bridge and API read the same values. msgspec does not release the interpreter within a call, so the limits below
keep its longest call under 50 ms; a body that takes more than a few milliseconds is decoded in a thread.
"""

import asyncio
import codecs
import string
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web
from msgspec import Raw

from bridge.proxy.content import Content, content_of, encoded, is_object, members, scalar
from bridge.proxy.errors import RefusedError
from sprite.common.prices import Usage
from sprite.common.tasks import Service

#: The API's own limit; no other request to the bridge is nearly as large.
MAX_BODY_BYTES = 32 << 20
_BASE64 = (string.ascii_letters + string.digits + "+/=").encode()
#: Bytes that base64 does not have. A conversation of a million tokens has about a million, as its text takes 4 MB.
_MAX_OTHER_BYTES = 8 << 20
#: Commas and opening brackets, in texts too: at least one for each value. A million tokens of tables have this many.
_MAX_VALUES = 500_000
#: With more values than this, about 10 ms of work, a body is decoded in a thread.
_FEW_VALUES = 5000
#: A larger body takes a slot of `BodyLimits` and is decoded in a thread.
_LARGE_BYTES = 1 << 20
_SLICE_BYTES = 1 << 18
_OVERLOADED = 529
_RETRY_SECONDS = 5
_MOST_TOKENS = 100_000_000
#: A model's name is kept in the ledger.
_MAX_MODEL_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts of a call in seconds: silence within its body, and the whole body (2.6 Mbit/s for the largest)."""

    silent: float = 20.0
    whole: float = 100.0
    #: Longest wait of a large body for its slot.
    slot: float = 60.0
    #: Longest wait for other calls that hold the remaining budget.
    room: float = 30.0
    #: An answer that is not streamed can take ten minutes to begin; the SDKs wait that long.
    first_byte: float = 600.0
    #: Streams carry pings, but a gateway may leave them out while a model thinks.
    between: float = 300.0


@dataclass(frozen=True, slots=True)
class Asked:
    """Parameters of a model request. `speed` is None for the standard one.

    `thinking_tokens` is the thinking budget, `limit_at` the place of `max_tokens` in the forwarded body.
    `unsaid` is the maximum prompt usage, for an answer in which the API does not report it.
    """

    model: str
    max_tokens: int
    speed: str | None
    content: Content
    unsaid: Usage
    is_streamed: bool
    thinking_tokens: int
    limit_at: slice


#: Bodies that are handled at once, in total and of one sprite.
_SLOTS, _SLOTS_OF_SPRITE = 6, 2


class BodyLimits:
    """Limits of bodies over 1 MiB in memory, in total and for each sprite; one thread decodes at a time.

    A sprite's bodies wait for each other first, so one sprite cannot block all others.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_SLOTS)
        self._slots_of = defaultdict[str, asyncio.Semaphore](partial(asyncio.Semaphore, _SLOTS_OF_SPRITE))
        self._decoding = asyncio.Lock()
        self._decoding_of = defaultdict[str, asyncio.Lock](asyncio.Lock)

    @asynccontextmanager
    async def slot(self, sprite: str, patience: float) -> AsyncIterator[None]:
        """Hold a slot for a large body while the block runs. RefusedError if none is free within `patience` seconds."""
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(patience):
                    await held.enter_async_context(self._slots_of[sprite])
                    await held.enter_async_context(self._slots)
            except TimeoutError as error:
                words = "The bridge is already handling as many large requests as it can. Try again soon."
                raise RefusedError(_OVERLOADED, words, retry_after=_RETRY_SECONDS) from error
            yield

    @asynccontextmanager
    async def decoding(self, sprite: str) -> AsyncIterator[None]:
        """Hold the lock for decoding in a thread while the block runs."""
        async with self._decoding_of[sprite], self._decoding:
            yield


class Upload(Service):
    """Receive and forward one request body: `async with Upload(...)`, then `receive`, then `send`, each once."""

    def __init__(self, request: web.Request, sprite: str, patience: Patience, limits: BodyLimits) -> None:
        #: Whether the whole body was handed to the HTTP client.
        self.is_sent = False
        #: Length of the forwarded body.
        self.size = 0
        self._content = request.content
        self._sprite = sprite
        self._patience = patience
        self._limits = limits
        self._received = bytearray()
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._other_bytes = 0
        self._values = 0
        self._body = b""

    async def receive(self, opened: frozenset[str], *, is_counting: bool) -> Asked:
        """Receive, decode and check the body; `opened` are the enabled features of the API. Raise RefusedError.

        `is_counting`: the request only counts tokens, and needs no `max_tokens`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience.whole
        is_large = False
        while not self._content.at_eof():
            self._take(await self._next(deadline))
            if not is_large and len(self._received) > _LARGE_BYTES:
                is_large = True
                began = loop.time()
                await self._stack.enter_async_context(self._limits.slot(self._sprite, self._patience.slot))
                deadline += loop.time() - began
        received, self._received = self._received, bytearray()
        if is_large or self._values > _FEW_VALUES:
            async with self._limits.decoding(self._sprite):
                asked, self._body = await asyncio.to_thread(read_body, received, opened, is_counting=is_counting)
        else:
            asked, self._body = read_body(received, opened, is_counting=is_counting)
        self.size = len(self._body)
        return asked

    def cap(self, max_tokens: int, at: slice) -> None:
        """Replace the requested `max_tokens` by a lower value in the forwarded body; `at` is its place there."""
        self._body = b"%b%d%b" % (self._body[: at.start], max_tokens, self._body[at.stop :])
        self.size = len(self._body)

    async def send(self) -> AsyncIterator[memoryview]:
        """Yield the body in slices, the first once there is a connection; free a large body's slot after the last."""
        body, self._body = memoryview(self._body), b""
        for at in range(0, len(body), _SLICE_BYTES):
            self.is_sent = at + _SLICE_BYTES >= len(body)
            yield body[at : at + _SLICE_BYTES]
        del body
        await self._stack.aclose()

    async def _next(self, deadline: float) -> bytes:
        try:
            async with asyncio.timeout_at(min(asyncio.get_running_loop().time() + self._patience.silent, deadline)):
                return await self._content.readany()
        except TimeoutError as error:
            raise RefusedError(408, "The request's body did not arrive in time.") from error
        except web.RequestPayloadError as error:
            raise RefusedError(400, "The request's body does not match its headers.") from error
        except ConnectionError as error:
            raise RefusedError(400, "The client disconnected before its request's body was complete.") from error

    def _take(self, chunk: bytes) -> None:
        """Add a chunk to the body. Raise RefusedError if decoding the body would be too expensive."""
        self._received += chunk
        if len(self._received) > MAX_BODY_BYTES:
            raise too_large()
        try:
            self._utf8.decode(chunk)
        except UnicodeDecodeError as error:
            raise RefusedError(400, "The body is not UTF-8.") from error
        others = chunk.translate(None, _BASE64)
        self._other_bytes += len(others)
        self._values += others.count(b",") + others.count(b"[") + others.count(b"{")
        if self._other_bytes > _MAX_OTHER_BYTES:
            raise RefusedError(400, f"The body has more than {_MAX_OTHER_BYTES >> 20} MB besides letters and digits.")
        if self._values > _MAX_VALUES:
            raise RefusedError(400, f"The body has more than {_MAX_VALUES:,} commas and opening brackets.")


def too_large() -> RefusedError:
    """Return the error for a body above the limit."""
    return RefusedError(413, f"The request is larger than {MAX_BODY_BYTES >> 20} MB, the most the API takes.")


def read_body(body: bytearray, opened: frozenset[str], *, is_counting: bool) -> tuple[Asked, bytes]:
    """Return the parameters of a request, and its body with the top level encoded again. See `Upload.receive`."""
    found = members(body)
    model = _value(found, "model", str)
    if len(model) > _MAX_MODEL_CHARACTERS:
        raise RefusedError(400, "model: too long.")
    max_tokens = 0 if is_counting else _value(found, "max_tokens", int)
    if not 0 <= max_tokens <= _MOST_TOKENS:
        raise RefusedError(400, "max_tokens: out of range.")
    speed = _value(found, "speed", str | None) if "speed" in found else None
    content = content_of(found, len(body), opened)
    is_streamed = "stream" in found and scalar(found["stream"]) is True
    # The one-hour cache costs more than the usual one. Letters and digits can also be written as escapes.
    keeps_an_hour = b'"1h"' in body or rb"\u00" in body
    unsaid = _unsaid(content, keeps_an_hour=keeps_an_hour, is_streamed=is_streamed)
    speed = None if speed == "standard" else speed
    return Asked(model, max_tokens, speed, content, unsaid, is_streamed, *_limits(found)), encoded(found)


def _limits(found: Mapping[str, Raw]) -> tuple[int, slice]:
    """Return the thinking budget of a request in tokens, and the place of `max_tokens` in its encoded body."""
    thinking = members(found["thinking"]) if "thinking" in found and is_object(found["thinking"]) else {}
    budget = scalar(thinking["budget_tokens"]) if "budget_tokens" in thinking else 0
    at = 1
    for name, raw in found.items():
        at += len(encoded({name: Raw(b"")})) - 2 + len(memoryview(raw))
        if name == "max_tokens":
            return budget if isinstance(budget, int) else 0, slice(at - len(memoryview(raw)), at)
        at += 1
    return 0, slice(0)


def _unsaid(content: Content, *, keeps_an_hour: bool, is_streamed: bool) -> Usage:
    """Return `Asked.unsaid`: the highest possible usage of a prompt that the API has not reported.

    A stream reports the prompt before the API's own tools run, so their usage counts only without streaming.
    """
    tokens = content.first_tokens if is_streamed else content.most_tokens
    return Usage(
        input=0 if is_streamed else content.again,
        cache_write=tokens,
        cache_write_1h=tokens if keeps_an_hour else 0,
        web_searches=0 if is_streamed else content.searches or 0,
        is_us_only=True,
    )


def _value(found: Mapping[str, Raw], name: str, kind: Any) -> Any:
    if name not in found:
        raise RefusedError(400, f"{name}: this field is required.")
    value = scalar(found[name])
    if not isinstance(value, kind) or isinstance(value, bool):
        raise RefusedError(400, f"{name}: wrong type.")
    return value
