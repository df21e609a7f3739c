"""One call to the model, from the first byte of the request to the row in the ledger.

Each call is settled, however it ends, with the usage that the API reported; where the report is incomplete, with the
maximum possible usage, marked as an estimate (see `usage_meter`). A call whose client disconnects is cancelled.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import ClientConnectorError, ClientError, ClientResponse, ClientSession, ConnectionTimeoutError, web
from msgspec.structs import replace

from bridge.proxy.accounts import Accounts, UnavailableError
from bridge.proxy.body import Asked, BodyLimits, Patience, Upload
from bridge.proxy.budgets import Bounds, BudgetError
from bridge.proxy.calls import ModelCall, Outcome
from bridge.proxy.errors import ErrorEvents, RefusedError, decoded, told
from bridge.proxy.upstream import ApiFeatures, Models, Upstream
from bridge.proxy.usage_meter import Meter, PromptSizes, Reading, meter_of, unanswered
from sprite.common.prices import Price, Usage, price_of

log = logging.getLogger(__name__)

#: Clients rarely ask for fewer tokens, and answers are rarely longer.
_SHORT_ANSWER_TOKENS = 1024
_REDIRECT, _BAD = 300, 400
_UNAUTHORIZED = 401
_UNAVAILABLE_SECONDS = 5
#: Only in the ledger: the client disconnected before the answer came.
_CLIENT_GONE = 499
#: Errors, and other answers that are not streamed, are inspected before they are forwarded, up to this size.
_WORDS_BYTES = 1 << 14

Path = Literal["/v1/messages", "/v1/messages/count_tokens"]


@dataclass(frozen=True, slots=True)
class Desk:
    """The objects that all model calls share, such as the accounts and the HTTP client."""

    session: ClientSession
    upstream: Upstream
    exits: ApiFeatures
    models: Models
    accounts: Accounts
    patience: Patience
    body_limits: BodyLimits = field(default_factory=BodyLimits)
    sizes: PromptSizes = field(default_factory=PromptSizes)


class Call:
    """Handle one model request of a sprite for `path`; use `answer` once."""

    def __init__(self, desk: Desk, request: web.Request, sprite: str, path: Path) -> None:
        self._desk = desk
        self._request = request
        self._sprite = sprite
        self._path: Path = path
        self._is_billed = path == "/v1/messages"
        self._began = time.perf_counter()
        self._price: Price | None = None
        self._asked: Asked | None = None
        self._max_tokens = 0
        self._asked_at = time.monotonic()
        self._bound: asyncio.Timeout | None = None
        self._record: ModelCall | None = None
        self._meter: Meter | None = None
        self._outcome: Outcome = "client_gone"
        self._status: int = _CLIENT_GONE
        self._request_id: str | None = None
        self._response: web.StreamResponse | None = None
        self._is_writing = False

    async def answer(self) -> web.StreamResponse:
        """Return the response to the sprite's request, which may have been sent already. Raise RefusedError."""
        desk = self._desk
        async with Upload(self._request, self._sprite, desk.patience, desk.body_limits) as upload:
            try:
                asked = await upload.receive(desk.exits.opened, is_counting=not self._is_billed)
                await self._admit(asked)
                if self._max_tokens < asked.max_tokens:
                    upload.cap(self._max_tokens, asked.limit_at)
                return await self._exchange(upload)
            except RefusedError as refused:
                self._status = refused.status
                raise
            finally:
                self._settle(is_sent=upload.is_sent)

    async def _admit(self, asked: Asked) -> None:
        """Reserve the maximum cost of the call and record it. Raise RefusedError."""
        desk = self._desk
        if not desk.models.allows(asked.model):
            raise RefusedError(403, f"This sprite may not use the model {asked.model!r}. Ask whoever runs the bridge.")
        if not self._is_billed:
            return
        self._price = None if asked.speed else desk.models.price(asked.model)
        self._asked = asked
        self._max_tokens = asked.max_tokens
        bounds = None
        if self._price is not None:
            bounds = self._bounds(asked, self._price)
        elif desk.accounts.limits.any:
            words = f"The price of the speed {asked.speed!r} is not known."
            raise RefusedError(403, f"{words} Use the standard speed, because this sprite has a budget.")
        try:
            self._record = await desk.accounts.open(self._sprite, asked.model, bounds, desk.patience.room)
            self._max_tokens -= self._record.cut_tokens
        except BudgetError as error:
            if error.retry_after is None:
                raise RefusedError(402, str(error), retry=False) from error
            raise RefusedError(429, str(error), retry_after=error.retry_after) from error
        except UnavailableError as error:
            raise RefusedError(503, str(error), retry_after=_UNAVAILABLE_SECONDS) from error

    def _bounds(self, asked: Asked, price: Price) -> Bounds:
        content = asked.content
        if content.searches is None and self._desk.accounts.limits.any:
            raise RefusedError(400, "web_search: `max_uses` is required, because this sprite has a budget.")
        least = price.least(content.least_tokens, min(asked.max_tokens, _SHORT_ANSWER_TOKENS))
        most = price.most(content.most_tokens, asked.max_tokens, content.searches or 0, content.again)
        whole = price.least(content.least_tokens, asked.max_tokens)
        # Fewer tokens than these leave no room for an answer.
        spare = max(0, asked.max_tokens - asked.thinking_tokens - _SHORT_ANSWER_TOKENS)
        rate = (whole - price.least(content.least_tokens, 0)) / max(asked.max_tokens, 1)
        return Bounds(least, most, whole, rate, spare)

    async def _exchange(self, upload: Upload) -> web.StreamResponse:
        headers = self._desk.upstream.request_headers(self._request, self._desk.exits)
        headers["Content-Length"] = str(upload.size)
        url = self._desk.upstream.url(self._path, self._request.rel_url.raw_query_string)
        answered: ClientResponse | None = None
        self._asked_at = time.monotonic()
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
            return await self._broken("The model's API closed the connection before the end of its answer.", 502, error)
        finally:
            if answered is not None:
                # After the last byte the connection is reusable; before it, this cancels the answer.
                answered.close()

    def _failed(self, outcome: Outcome) -> None:
        if self._outcome != "refused":
            # The client does not read its answer.
            self._outcome = "client_gone" if self._is_writing else outcome

    async def _broken(self, words: str, status: int, error: Exception) -> web.StreamResponse:
        """Report an upstream failure to the client, as far as the answer has not been sent yet."""
        if not self._is_writing:
            log.warning("%s (%s)", words, type(error).__name__, extra=self._ids())
        refused = RefusedError(status, words)
        response = self._response
        if response is None:
            raise refused from error
        if self._is_writing or self._meter is None or not self._meter.at_boundary:
            # In the middle of an event: close the connection, as the upstream did.
            if self._request.transport is not None:
                self._request.transport.close()
        else:
            with suppress(ConnectionError):  # the client may have gone as well
                await response.write(refused.event())
        return response

    def _check(self, answered: ClientResponse, upload: Upload) -> None:
        """Raise an error if the upstream's response must not be forwarded."""
        self._status = answered.status
        self._request_id = self._desk.upstream.request_id(answered)
        if answered.status < _REDIRECT and upload.is_sent:
            return
        self._outcome = "refused"
        if answered.status == _UNAUTHORIZED:
            # The upstream refused the bridge's key; the sprite's token was valid.
            log.error("the model's API refused the bridge's key", extra=self._ids())
            words = "The model's API refused the bridge's key. The bridge's operator must set a valid one."
            raise RefusedError(502, words, retry=False)
        if answered.status < _REDIRECT:
            raise RefusedError(502, "The model's API answered before it had received the whole request.")
        if answered.status < _BAD:
            words = "ANTHROPIC_BASE_URL redirects to another address. Set it to the address of the model's API."
            raise RefusedError(502, words, retry=False)

    async def _pass_error(self, answered: ClientResponse) -> web.StreamResponse:
        """Send the sprite the type, message and headers of the upstream's error."""
        words = await self._beginning(answered)
        error = told(decoded(words) if answered.content.at_eof() else None, answered.status)
        response = error.response(self._request_id)
        headers = self._desk.upstream.response_headers(answered)
        for name in ("Content-Type", "Content-Length"):
            headers.popall(name, None)
        response.headers.update(headers)
        return response

    async def _pass_on(self, answered: ClientResponse) -> web.StreamResponse:
        headers = self._desk.upstream.response_headers(answered)
        content_type = answered.content_type
        self._meter = meter_of(content_type, self._asked_at)
        first = b""
        errors = None
        if content_type == "text/event-stream":
            errors = ErrorEvents()
        else:
            first = await self._beginning(answered)
            if answered.content.at_eof():
                body = decoded(first)
                if isinstance(body, dict) and "error" in body:
                    raise told(body, 502)
                # The whole body goes out in one write with its headers.
                headers.popall("Content-Length", None)
                self._outcome = "complete"
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
        self._outcome = "complete"

    async def _send(self, sending: Coroutine[Any, Any, object]) -> None:
        """Run a write to the client, and stop if the client accepts no bytes for too long."""
        self._is_writing = True
        await sending
        self._is_writing = False

    async def _beginning(self, answered: ClientResponse) -> bytes:
        """Read the upstream's response body: the whole of a small one, or the beginning of a large one."""
        body = bytearray()
        while not answered.content.at_eof() and len(body) < _WORDS_BYTES:
            body += await self._read(answered)
        return bytes(body)

    async def _read(self, answered: ClientResponse) -> bytes:
        chunk = await answered.content.readany()
        if self._bound is not None:
            # The timeout covers writing this chunk, too: a client that reads nothing does not keep its call for ever.
            self._bound.reschedule(asyncio.get_running_loop().time() + self._desk.patience.between)
        if self._meter is not None:
            self._meter.feed(chunk)
        return chunk

    def _settle(self, *, is_sent: bool) -> None:
        """Replace the reserved budget by the actual cost of the call."""
        record, asked = self._record, self._asked
        if record is None or asked is None:
            return
        reading = self._reading(asked)
        is_free = not is_sent or self._outcome in {"refused", "unreachable"} or reading.is_refused
        record.is_estimate = not is_free and not (reading.is_final and self._desk.models.knows_price(record.model))
        record.usage = Usage() if is_free else reading.usage
        record.spent_usd = None if self._price is None else self._cost(self._price, reading.model, record.usage)
        if record.spent_usd is not None and record.held_usd is not None and record.is_estimate:
            record.spent_usd = min(record.spent_usd, record.held_usd)
        record.outcome = "refused" if reading.is_refused else self._outcome
        record.status = self._status
        record.request_id = self._request_id
        record.duration_ms = round((time.perf_counter() - self._began) * 1000, 1)
        self._desk.accounts.settle(record)

    def _cost(self, price: Price, answered_by: str | None, usage: Usage) -> float:
        """Return the cost by the price of the requested model or of the one that answered, whichever is higher."""
        other = None if answered_by is None else price_of(answered_by)
        return max(price.cost(usage), 0.0 if other is None or self._desk.models.is_free else other.cost(usage))

    def _reading(self, asked: Asked) -> Reading:
        """Return the tokens that the answer used, with the maximum possible value for each unknown number."""
        if self._meter is not None:
            reading = self._meter.read()
        else:
            reading = unanswered(time.monotonic() - self._asked_at, is_streamed=asked.is_streamed)
        self._desk.sizes.note(self._sprite, asked.model, asked.unsaid.cache_write, reading.prompt_tokens)
        if reading.is_final:
            return reading
        output = min(reading.usage.output, self._max_tokens)
        if reading.has_prompt:
            reading.usage = replace(reading.usage, output=output)
        else:
            tokens = self._desk.sizes.most(self._sprite, asked.model, asked.unsaid.cache_write)
            for_an_hour = min(asked.unsaid.cache_write_1h, tokens)
            reading.usage = replace(asked.unsaid, output=output, cache_write=tokens, cache_write_1h=for_an_hour)
        return reading

    def _ids(self) -> dict[str, object]:
        return {"sprite": self._sprite, "request_id": self._request_id, "status": self._status}
