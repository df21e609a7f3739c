"""One call to the model, from the request's first byte to the ledger's row.

Order: the body is received, checked and admitted (model, budget), sent on, answered chunk by chunk, and settled
whatever way it ends: with what the API said it used, or, where it did not say so to the end, with all that was held. An
answer whose client goes is read on for a while, since what it used is said at its end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import ClientConnectorError, ClientError, ClientResponse, ClientSession, ConnectionTimeoutError, web

from bridge.llm import upload as llm_upload
from bridge.llm.accounts import Accounts, Bounds, UnavailableError
from bridge.llm.budgets import BudgetError
from bridge.llm.calls import ModelCall, Outcome
from bridge.llm.error_events import ErrorEvents
from bridge.llm.errors import RefusedError
from bridge.llm.exits import Exits
from bridge.llm.models import Models
from bridge.llm.upload import Asked, BodyLimits, Upload
from bridge.llm.upstream import Upstream
from bridge.llm.usage_meter import Meter, Reading, meter_of
from sprite.prices import Price, Usage

log = logging.getLogger(__name__)

#: Fewer than this are rarely asked for, and an answer is rarely longer.
_SHORT_ANSWER_TOKENS = 1024
_REDIRECT, _BAD = 300, 400
_UNAUTHORIZED = 401
_UNAVAILABLE_SECONDS = 5
#: Said of an answer that comes although the client has gone, in the ledger only.
_CLIENT_GONE = 499
#: An error's words are looked at before they pass, and so is an answer that is no stream, up to this size.
_WORDS_BYTES = 1 << 14
#: Longer words take milliseconds to look at.
_FEW_BYTES = 1 << 10
_KEY_SHOWN = "The model's API reported an error in words that are not passed on: they would show the bridge's key."

Path = Literal["/v1/messages", "/v1/messages/count_tokens"]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the upstream may be silent, in seconds, and how long a client."""

    #: An answer that is not streamed can take ten minutes to begin; so long the SDKs wait.
    first_byte: float = 600.0
    #: Streams carry pings; a gateway may leave them out while a model thinks.
    between: float = 300.0
    #: An answer whose client has gone is read on for its usage, and then given up.
    alone: float = 60.0
    #: A call waits for others to be settled where these hold what is left of the budget.
    room: float = 30.0
    body: llm_upload.Patience = field(default_factory=llm_upload.Patience)


@dataclass(frozen=True, slots=True)
class Desk:
    """What every call is handled with."""

    session: ClientSession
    upstream: Upstream
    exits: Exits
    models: Models
    accounts: Accounts
    patience: Patience
    body_limits: BodyLimits = field(default_factory=BodyLimits)


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
        self._upload: Upload | None = None
        self._bound: asyncio.Timeout | None = None
        self._is_alone = False
        self._record: ModelCall | None = None
        self._meter: Meter | None = None
        self._outcome: Outcome = "client_gone"
        self._status: int = _CLIENT_GONE
        self._request_id: str | None = None
        self._response: web.StreamResponse | None = None
        self._is_writing = False

    async def answer(self) -> web.StreamResponse:
        """The answer, which may have been sent already. RefusedError or BudgetError for one of our own."""
        desk = self._desk
        async with Upload(self._request, self._sprite, desk.patience.body, desk.body_limits) as upload:
            self._upload = upload
            try:
                asked = await upload.receive(desk.exits.opened, is_counting=not self._is_billed)
                self._allow(asked.model)
                await self._admit(asked)
                return await self._exchange(upload)
            except RefusedError as refused:
                self._status = refused.status
                raise
            finally:
                self._settle(is_sent=upload.is_sent)

    def leave(self) -> bool:
        """The client has gone. Whether `answer` goes on without it; else it is to be cancelled."""
        if self._record is None or self._upload is None or not self._upload.is_sent or self._bound is None:
            return False
        if not self._is_alone:
            self._is_alone = True
            with suppress(RuntimeError):  # it is just running out
                self._bound.reschedule(asyncio.get_running_loop().time() + self._desk.patience.alone)
        return True

    def _allow(self, model: str) -> None:
        if not self._desk.models.allows(model):
            raise RefusedError(403, f"This sprite may not use the model {model!r}. Ask whoever runs the bridge.")

    async def _admit(self, asked: Asked) -> None:
        """Reserves what the call may cost, and notes it. RefusedError."""
        if not self._is_billed:
            return
        desk = self._desk
        self._price = None if asked.speed else desk.models.price(asked.model)
        self._prompt_tokens = asked.content.least_tokens
        bounds = None
        if self._price is not None:
            bounds = self._bounds(asked, self._price)
        elif desk.accounts.limits.any:
            what = f"the speed {asked.speed!r}" if asked.speed else f"the model {asked.model!r}"
            raise RefusedError(403, f"The price of {what} is not known, and this sprite has a budget.")
        try:
            self._record = await desk.accounts.open(self._sprite, asked.model, bounds, desk.patience.room)
        except BudgetError as error:
            if error.retry_after is None:
                raise RefusedError(402, str(error), retry=False) from error
            raise RefusedError(429, str(error), retry_after=error.retry_after) from error
        except UnavailableError as error:
            raise RefusedError(503, str(error), retry_after=_UNAVAILABLE_SECONDS) from error

    def _bounds(self, asked: Asked, price: Price) -> Bounds:
        content = asked.content
        if content.searches is None and self._desk.accounts.limits.any:
            raise RefusedError(400, "web_search: `max_uses` is required, since this sprite has a budget.")
        least = price.least(content.least_tokens, min(asked.max_tokens, _SHORT_ANSWER_TOKENS))
        most = price.most(content.most_tokens, asked.max_tokens, content.searches or 0, content.again)
        return Bounds(least, most)

    async def _exchange(self, upload: Upload) -> web.StreamResponse:
        headers = self._desk.upstream.request_headers(self._request, self._desk.exits)
        headers["Content-Length"] = str(upload.size)
        url = self._desk.upstream.url(self._path, self._request.rel_url.raw_query_string)
        answered: ClientResponse | None = None
        try:
            async with asyncio.timeout(self._desk.patience.first_byte) as self._bound:
                post = self._desk.session.post
                answered = await post(url, data=upload.send(), headers=headers, allow_redirects=False)
                self._check(answered, upload)
                return await (self._pass_error(answered) if answered.status >= _BAD else self._pass_on(answered))
        except (ClientConnectorError, ConnectionTimeoutError) as error:
            self._outcome = "unreachable"
            return await self._broken("The model's API cannot be reached.", 502, error)
        except TimeoutError as error:
            self._failed("timeout")
            return await self._broken("The model's API did not answer in time.", 504, error)
        except ClientError as error:
            self._failed("cut")
            return await self._broken("The model's API broke off.", 502, error)
        finally:
            if answered is not None:
                # Where it was read to its end the connection is free again; else this cancels the answer.
                answered.close()

    def _failed(self, outcome: Outcome) -> None:
        if self._outcome != "refused":
            # It is the client that does not take its answer, or has gone.
            self._outcome = "client_gone" if self._is_writing or self._is_alone else outcome

    async def _broken(self, words: str, status: int, error: Exception) -> web.StreamResponse:
        """Says what went wrong upstream, as far as the answer has not been sent yet."""
        if not (self._is_writing or self._is_alone):
            log.warning("%s (%s)", words, type(error).__name__, extra=self._ids())
        refused = RefusedError(status, words)
        response = self._response
        if response is None:
            raise refused from error
        if self._is_alone:
            return response
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
        self._request_id = self._desk.upstream.request_id(answered)
        if answered.status == _UNAUTHORIZED:
            # It is the bridge's key that was refused; the sprite's was good.
            self._outcome = "refused"
            log.error("the model's API refused the bridge's key", extra=self._ids())
            raise RefusedError(502, "The model's API refused the bridge's key. Its operator must set one.", retry=False)
        if _REDIRECT <= answered.status < _BAD:
            self._outcome = "refused"
            raise RefusedError(502, "The model's API is somewhere else: ANTHROPIC_BASE_URL redirects.", retry=False)
        if answered.status < _BAD and not upload.is_sent:
            self._outcome = "refused"
            raise RefusedError(502, "The model's API answered before it was asked.")
        if answered.status >= _BAD:
            self._outcome = "refused"

    async def _pass_error(self, answered: ClientResponse) -> web.StreamResponse:
        """Passes an error on as it is, unless its words would show the bridge's key."""
        headers = self._desk.upstream.response_headers(answered)
        words = await self._beginning(answered)
        headers.popall("Content-Length", None)
        if not answered.content.at_eof() or await self._shows_key(words):
            response = RefusedError(answered.status, _KEY_SHOWN).response()
            headers.popall("Content-Type", None)
            response.headers.update(headers)
            return response
        return web.Response(status=answered.status, headers=headers, body=words)

    async def _pass_on(self, answered: ClientResponse) -> web.StreamResponse:
        upstream = self._desk.upstream
        headers = upstream.response_headers(answered)
        content_type = answered.content_type
        self._meter = meter_of(content_type)
        first = b""
        errors = None
        if content_type == "text/event-stream":
            errors = ErrorEvents(upstream.traces, RefusedError(500, _KEY_SHOWN).event())
        else:
            first = await self._beginning(answered)
            if b'"error"' in first and await self._shows_key(first):
                raise RefusedError(502, _KEY_SHOWN)
            if answered.content.at_eof():
                # All of it goes out in one write with its headers.
                headers.popall("Content-Length", None)
                self._end()
                return web.Response(status=answered.status, headers=headers, body=first)
        self._response = web.StreamResponse(status=answered.status, headers=headers)
        await self._stream(answered, self._response, first, errors)
        return self._response

    async def _stream(
        self, answered: ClientResponse, response: web.StreamResponse, chunk: bytes, errors: ErrorEvents | None
    ) -> None:
        await self._send(response.prepare(self._request))
        while True:
            if chunk:
                await self._send(response.write(chunk))
            if answered.content.at_eof():
                break
            chunk = await self._read(answered)
            if errors is not None:
                chunk = errors.feed(chunk)
        if errors is not None and (rest := errors.finish()):
            await self._send(response.write(rest))
        self._end()

    async def _send(self, sending: Coroutine[Any, Any, object]) -> None:
        """Waits until the client has taken something; from the moment it has gone, nothing is sent."""
        if self._is_alone:
            sending.close()
            return
        self._is_writing = True
        try:
            await sending
        except ConnectionError:
            if not self.leave():
                raise
        self._is_writing = False

    async def _shows_key(self, words: bytes) -> bool:
        shows = self._desk.upstream.traces.in_any
        return shows(words) if len(words) <= _FEW_BYTES else await asyncio.to_thread(shows, words)

    async def _beginning(self, answered: ClientResponse) -> bytes:
        """All of a body that is not large, or of a large one the beginning."""
        body = bytearray()
        while not answered.content.at_eof() and len(body) < _WORDS_BYTES:
            body += await self._read(answered)
        return bytes(body)

    async def _read(self, answered: ClientResponse) -> bytes:
        chunk = await answered.content.readany()
        if self._bound is not None and not self._is_alone:
            # The bound covers writing this chunk, too: a client that reads nothing does not keep its call for ever.
            self._bound.reschedule(asyncio.get_running_loop().time() + self._desk.patience.between)
        if self._meter is not None:
            self._meter.feed(chunk)
        return chunk

    def _end(self) -> None:
        if not self._is_alone:
            self._outcome = "complete"

    def _settle(self, *, is_sent: bool) -> None:
        """Puts what the call did cost in the place of what it held."""
        record = self._record
        if record is None:
            return
        reading = self._meter.read() if self._meter is not None else Reading()
        is_free = not is_sent or self._outcome in {"refused", "unreachable"}
        if reading.usage is not None:
            record.usage = reading.usage
        elif not is_free:
            record.usage = Usage(input=self._prompt_tokens)
        # Nothing was asked, or nothing was answered that is paid for; else the API said its usage to the end, or not.
        record.is_estimate = not (is_free or reading.is_final)
        record.spent_usd = self._cost(reading.model, record.usage)
        if record.spent_usd is not None and record.held_usd is not None and record.is_estimate:
            # What an answer did not say (a stream that ends early hides what was thought) counts as all of it.
            record.spent_usd = max(record.spent_usd, record.held_usd)
        record.outcome = self._outcome
        record.status = self._status
        record.request_id = self._request_id
        record.duration_ms = round((time.perf_counter() - self._began) * 1000, 1)
        self._desk.accounts.settle(record)

    def _cost(self, answered_by: str | None, usage: Usage) -> float | None:
        """What a call came to: the model that the answer names may make it dearer, and never cheaper."""
        if self._price is None:
            return None
        named = None if answered_by is None else self._desk.models.price(answered_by)
        return max(price.cost(usage) for price in (self._price, named) if price is not None)

    def _ids(self) -> dict[str, object]:
        return {"sprite": self._sprite, "request_id": self._request_id, "status": self._status}
