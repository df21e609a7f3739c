"""One call to the model, from the request's first byte to the ledger's row.

Order: the body is read and admitted (model, budget), passed on, answered chunk by chunk, and whatever way it ends,
settled: what the API said it used, or what can be told of it from what went by.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import ClientConnectorError, ClientError, ClientResponse, ClientSession, ConnectionTimeoutError, web

from bridge.llm import upload as llm_upload
from bridge.llm.budgets import BudgetError, Budgets, Hold
from bridge.llm.errors import RefusedError
from bridge.llm.ledger import Ledger, ModelCall, Outcome
from bridge.llm.models import Models
from bridge.llm.upload import Asked, Upload
from bridge.llm.upstream import Upstream, response_headers
from bridge.llm.usage_meter import BYTES_PER_TOKEN, Meter, Reading, meter_of
from sprite.prices import Price, Usage

log = logging.getLogger(__name__)

#: No prompt has more tokens, whatever its size in bytes: images and documents have few tokens for their size.
_MOST_PROMPT_TOKENS = 1_000_000
#: Fewer than this are rarely asked for, and an answer is rarely longer.
_SHORT_ANSWER_TOKENS = 1024
_REDIRECT, _BAD = 300, 400
_UNAUTHORIZED = 401
#: Said of an answer that comes although the client has gone, in the ledger only.
_CLIENT_GONE = 499

Path = Literal["/v1/messages", "/v1/messages/count_tokens"]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the upstream may be silent, in seconds, and how long a client."""

    #: An answer that is not streamed can take ten minutes to begin; so long the SDKs wait.
    first_byte: float = 600.0
    #: Streams carry pings; a gateway may leave them out while a model thinks.
    between: float = 300.0
    body: llm_upload.Patience = field(default_factory=llm_upload.Patience)


@dataclass(frozen=True, slots=True)
class Desk:
    """What every call is handled with."""

    session: ClientSession
    upstream: Upstream
    models: Models
    budgets: Budgets
    ledger: Ledger
    patience: Patience


class Call:
    """A request of a sprite's for `path`; `answer` is used once."""

    def __init__(self, desk: Desk, request: web.Request, sprite: str, path: Path) -> None:
        self._desk = desk
        self._request = request
        self._sprite = sprite
        self._path: Path = path
        self._is_billed = path == "/v1/messages"
        self._began = time.perf_counter()
        self._price: Price | None = None
        self._prompt_tokens = 0
        self._hold: Hold | None = None
        self._record: ModelCall | None = None
        self._meter: Meter | None = None
        self._outcome: Outcome = "client_gone"
        self._status: int = _CLIENT_GONE
        self._request_id: str | None = None
        self._response: web.StreamResponse | None = None
        self._is_writing = False

    async def answer(self) -> web.StreamResponse:
        """The answer, which may have been sent already. RefusedError or BudgetError for one of our own."""
        upload = Upload(
            self._request, self._desk.patience.body, self._allow, self._admit, is_counting=not self._is_billed
        )
        try:
            return await self._exchange(upload, await upload.begin())
        except RefusedError as refused:
            self._status = refused.status
            raise
        finally:
            self._settle(is_sent=upload.is_done)

    def _allow(self, model: str) -> None:
        if not self._desk.models.allows(model):
            raise RefusedError(403, f"This sprite may not use the model {model!r}. Ask whoever runs the bridge.")

    def _admit(self, asked: Asked) -> None:
        """Reserves what the call may cost, and notes it. RefusedError."""
        if not self._is_billed:
            return
        desk = self._desk
        self._price = None if asked.speed else desk.models.price(asked.model)
        self._prompt_tokens = min(asked.bytes // BYTES_PER_TOKEN, _MOST_PROMPT_TOKENS)
        if desk.ledger.is_behind:
            raise RefusedError(503, "The bridge cannot write down what is spent; its disk refuses.", retry_after=5)
        if self._price is not None:
            least = self._price.least(self._prompt_tokens, min(asked.max_tokens, _SHORT_ANSWER_TOKENS))
            most = self._price.most(self._prompt_tokens, asked.max_tokens)
            try:
                self._hold = desk.budgets.reserve(self._sprite, least, most)
            except BudgetError as error:
                if error.retry_after is None:
                    raise RefusedError(402, str(error), retry=False) from error
                raise RefusedError(429, str(error), retry_after=error.retry_after) from error
        elif desk.budgets.limits.any:
            what = f"the speed {asked.speed!r}" if asked.speed else f"the model {asked.model!r}"
            raise RefusedError(403, f"The price of {what} is not known, and this sprite has a budget.")
        self._record = desk.ledger.open(self._sprite, asked.model, self._hold.usd if self._hold else None)

    async def _exchange(self, upload: Upload, body: bytes | AsyncIterator[bytes]) -> web.StreamResponse:
        headers = self._desk.upstream.request_headers(self._request)
        if not isinstance(body, bytes) and self._request.content_length is not None:
            headers["Content-Length"] = str(self._request.content_length)
        url = self._desk.upstream.url(self._path, self._request.rel_url.raw_query_string)
        answered: ClientResponse | None = None
        try:
            async with asyncio.timeout(self._desk.patience.first_byte) as bound:
                answered = await self._desk.session.post(url, data=body, headers=headers, allow_redirects=False)
                self._check(answered, upload)
                return await self._pass_on(answered, bound)
        except (ClientConnectorError, ConnectionTimeoutError) as error:
            self._outcome = "unreachable"
            return await self._broken("The model's API cannot be reached.", 502, error)
        except TimeoutError as error:
            self._outcome = "timeout"
            return await self._broken("The model's API did not answer in time.", 504, error)
        except ClientError as error:
            if upload.refused is not None:
                raise upload.refused from None
            self._outcome = "cut"
            return await self._broken("The model's API broke off.", 502, error)
        finally:
            if answered is not None:
                # Where it was read to its end the connection is free again; else this cancels the answer.
                answered.close()

    async def _broken(self, words: str, status: int, error: Exception) -> web.StreamResponse:
        """Says what went wrong upstream, as far as the answer has not been sent yet."""
        if self._is_writing:
            # It is the client that does not take its answer, or has gone.
            self._outcome = "client_gone"
        else:
            log.warning("%s (%s)", words, type(error).__name__, extra=self._ids())
        refused = RefusedError(status, words)
        response = self._response
        if response is None:
            raise refused from error
        if self._is_writing or self._meter is None or not self._meter.at_boundary:
            # In the middle of something: the connection ends there, as the upstream's did.
            if self._request.transport is not None:
                self._request.transport.close()
        else:
            with suppress(ConnectionError):  # the client may have gone as well
                await response.write(refused.event())
        return response

    def _check(self, answered: ClientResponse, upload: Upload) -> None:
        """Refuses what must not be passed on."""
        self._status = answered.status
        self._request_id = answered.headers.get("request-id") or answered.headers.get("x-request-id")
        if answered.status == _UNAUTHORIZED:
            # It is the bridge's key that was refused; the sprite's was good. The body may repeat the key.
            self._outcome = "refused"
            log.error("the model's API refused the bridge's key", extra=self._ids())
            raise RefusedError(502, "The model's API refused the bridge's key. Its operator must set one.", retry=False)
        if _REDIRECT <= answered.status < _BAD:
            self._outcome = "refused"
            raise RefusedError(502, "The model's API is somewhere else: ANTHROPIC_BASE_URL redirects.", retry=False)
        if answered.status < _BAD and not upload.is_done:
            self._outcome = "refused"
            raise RefusedError(502, "The model's API answered before it was asked.")
        if answered.status >= _BAD:
            self._outcome = "refused"

    async def _pass_on(self, answered: ClientResponse, bound: asyncio.Timeout) -> web.StreamResponse:
        headers = response_headers(answered)
        content_type = headers.get("Content-Type", "").lower()
        first = b""
        if answered.status < _BAD:
            self._meter = meter_of(content_type, headers.get("Content-Encoding", "").lower())
        if not content_type.startswith("text/event-stream"):
            first = await self._read(answered, bound)
            if answered.content.at_eof():
                # All of it in one chunk goes out in one write with its headers.
                headers.popall("Content-Length", None)
                self._end()
                return web.Response(status=answered.status, reason=answered.reason, headers=headers, body=first)
        self._response = web.StreamResponse(status=answered.status, reason=answered.reason, headers=headers)
        self._is_writing = True
        await self._response.prepare(self._request)
        self._is_writing = False
        await self._stream(answered, self._response, first, bound)
        return self._response

    async def _stream(
        self, answered: ClientResponse, response: web.StreamResponse, chunk: bytes, bound: asyncio.Timeout
    ) -> None:
        while True:
            if chunk:
                self._is_writing = True
                await response.write(chunk)
                self._is_writing = False
            if answered.content.at_eof():
                break
            chunk = await self._read(answered, bound)
        self._end()

    async def _read(self, answered: ClientResponse, bound: asyncio.Timeout) -> bytes:
        chunk = await answered.content.readany()
        # The bound covers writing this chunk, too: a client that reads nothing does not keep its call for ever.
        bound.reschedule(asyncio.get_running_loop().time() + self._desk.patience.between)
        if self._meter is not None:
            self._meter.feed(chunk)
        return chunk

    def _end(self) -> None:
        if self._outcome != "refused":
            self._outcome = "complete"

    def _settle(self, *, is_sent: bool) -> None:
        """Puts what the call did cost in the place of what it held."""
        record = self._record
        if record is None:
            return
        reading = self._meter.read() if self._meter is not None else Reading()
        price = self._price
        if price is not None and reading.model is not None:
            price = self._desk.models.price(reading.model) or price
        record.is_estimate = not reading.is_final
        if reading.usage is not None:
            record.usage = reading.usage
        elif not is_sent or self._outcome in {"refused", "unreachable"}:
            # Nothing was asked, or nothing was answered that is paid for.
            record.is_estimate = False
        else:
            record.usage = Usage(input=self._prompt_tokens)
        record.usd = None if price is None else price.cost(record.usage)
        if self._hold is not None:
            if record.usd is not None and reading.usage is None and self._outcome == "complete":
                # An answer that says nothing of its usage counts with all that was held for it.
                record.usd = max(record.usd, self._hold.usd)
            self._desk.budgets.settle(self._hold, record.usd or 0.0)
        record.outcome = self._outcome
        record.status = self._status
        record.request_id = self._request_id
        record.duration_ms = round((time.perf_counter() - self._began) * 1000, 1)
        self._desk.ledger.note(record)

    def _ids(self) -> dict[str, object]:
        return {"sprite": self._sprite, "request_id": self._request_id, "status": self._status}
