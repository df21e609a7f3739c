"""A request's body on its way upstream: passed on chunk by chunk, and read for what the call may cost.

`max_tokens` may come last, after megabytes of conversation. So each chunk is let go when the next one has come, and
the last one only after the whole has been looked at and admitted: a call that is refused has then sent a part of its
body at most, upstream cannot have begun to answer, and nothing was spent. Never more than two chunks are in memory.

What is parsed is the body without its long strings. The whole body, parsed once, would take less than half the
processor time, but ten bodies of 30 MiB at once would take 540 MiB instead of 30, and a bound on that would let one
sprite's slow upload keep all others waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from bridge.llm.content import Content, content_of
from bridge.llm.errors import RefusedError
from bridge.llm.json_scanner import MalformedError, TopLevelScanner
from bridge.llm.skeleton import Skeleton

#: The API's own limit; nothing else that the bridge is sent comes near it.
MAX_BODY_BYTES = 32 << 20
#: Looked at in one go, which takes half a millisecond; then others have their turn.
_SLICE_BYTES = 1 << 16
_MOST_TOKENS = 100_000_000
#: A model's name is kept in the ledger.
_MAX_MODEL_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client may be silent in its body, and take for all of it (2.6 Mbit/s for the largest), in seconds."""

    silent: float = 20.0
    whole: float = 100.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a body asks for. `speed` is None for the usual one."""

    model: str
    max_tokens: int
    speed: str | None
    content: Content


class Upload:
    """One body. `admit` is called once, with the whole in view, before the last chunk goes; it may refuse.

    `opened` are the exits that it may take. `allow` is called with the model's name as soon as it is known. Both calls
    raise RefusedError.
    """

    def __init__(
        self,
        request: web.Request,
        patience: Patience,
        opened: frozenset[str],
        allow: Callable[[str], None],
        admit: Callable[[Asked], Awaitable[None]],
        *,
        is_counting: bool,
    ) -> None:
        #: Why the body was not let through, where it was not.
        self.refused: RefusedError | None = None
        #: Whether all of it was handed over.
        self.is_done = False
        self._content = request.content
        self._opened = opened
        self._allow = allow
        self._admit = admit
        self._is_counting = is_counting
        self._scanner = TopLevelScanner(("model", "max_tokens", "speed"))
        self._skeleton = Skeleton()
        self._model: str | None = None
        self._bytes = 0
        self._patience = patience
        self._deadline = asyncio.get_running_loop().time() + patience.whole

    async def begin(self) -> bytes | AsyncIterator[bytes]:
        """The body, admitted, where one chunk is all of it; else its chunks. RefusedError."""
        first = await self._next()
        if self._content.at_eof():
            await self._finish()
            return first
        return self._chunks(first)

    async def _chunks(self, held: bytes) -> AsyncIterator[bytes]:
        try:
            while not self._content.at_eof():
                # An empty one is the end, and what is held then is the last.
                if chunk := await self._next():
                    yield held
                    held = chunk
            await self._finish()
        except RefusedError as refused:
            # This runs inside the HTTP client, which would give it out as a fault of the connection.
            self.refused = refused
            raise
        yield held

    async def _next(self) -> bytes:
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(min(now + self._patience.silent, self._deadline)):
                chunk = await self._content.readany()
        except TimeoutError as error:
            raise RefusedError(408, "The request's body did not arrive in time.") from error
        except web.RequestPayloadError as error:
            raise RefusedError(400, "The request's body is not what its headers say.") from error
        self._bytes += len(chunk)
        if self._bytes > MAX_BODY_BYTES:
            raise too_large()
        try:
            for at in range(0, len(chunk), _SLICE_BYTES):
                if at:
                    await asyncio.sleep(0)
                piece = chunk[at : at + _SLICE_BYTES]
                self._scanner.feed(piece)
                self._skeleton.feed(piece)
        except MalformedError as error:
            raise RefusedError(400, str(error)) from error
        if self._model is None and "model" in self._scanner.values:
            self._model = str(self._value("model", str))
            if len(self._model) > _MAX_MODEL_CHARACTERS:
                raise RefusedError(400, "model: too long.")
            self._allow(self._model)
        return chunk

    async def _finish(self) -> None:
        try:
            self._scanner.finish()
            body = self._skeleton.parsed()
        except MalformedError as error:
            raise RefusedError(400, str(error)) from error
        if self._model is None:
            raise RefusedError(400, "model: this field is required.")
        max_tokens = 0
        if not self._is_counting:
            if "max_tokens" not in self._scanner.values:
                raise RefusedError(400, "max_tokens: this field is required.")
            max_tokens = int(self._value("max_tokens", int))
            if not 0 <= max_tokens <= _MOST_TOKENS:
                raise RefusedError(400, "max_tokens: out of range.")
        speed = self._value("speed", str | None) if "speed" in self._scanner.values else None
        content = content_of(body, self._skeleton, self._bytes, self._opened)
        await self._admit(Asked(self._model, max_tokens, None if speed == "standard" else speed, content))
        self.is_done = True

    def _value(self, name: str, kind: Any) -> Any:
        try:
            return msgspec.json.decode(self._scanner.values[name], type=kind)
        except msgspec.MsgspecError as error:
            raise RefusedError(400, f"{name}: not of the type it should be.") from error


def too_large() -> RefusedError:
    """The refusal of a body above the limit."""
    return RefusedError(413, f"The request is larger than {MAX_BODY_BYTES >> 20} MB, the most the API takes.")
