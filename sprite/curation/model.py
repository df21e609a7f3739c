"""The curator's model: one stateless call, faults classified, answers checked before use.

With a key, it is called over HTTP: the vendor's client would take 40 MiB more. Where only the CLI can reach a model, by
a person's login or cloud, the SDK asks. Each failed call is reported to `on_lost`; an outage says nothing about turns.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from sprite import __version__
from sprite.common.failures import NO_KEY, failure
from sprite.common.prices import DEAREST, OFFLINE, cost_usd, price_of
from sprite.common.tasks import off_loop
from sprite.config import STAND_IN, Settings
from sprite.curation.answer import parse_response
from sprite.curation.prompt import CuratorPrompt
from sprite.curation.verifier import Request
from sprite.errors import ModelError
from sprite.log.curations import CONTROL_ANSWERED, CONTROL_IN_VAIN, NOT_LOGGED
from sprite.memory.files import MAX_ANSWER_TOKENS
from sprite.sandbox.cli_environment import cli_environment

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions
    from httpx2 import AsyncClient, Response


log = logging.getLogger(__name__)

_T = TypeVar("_T")

DEFAULT_BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
#: Some hundred times the longest answer; reject anything longer.
MAX_BODY_BYTES = 8 * 1024 * 1024
#: Characters kept of an error message from the server.
MAX_WORDS = 200
_OK = 200


class Block(msgspec.Struct, frozen=True):
    """A content block of a model's answer."""

    type: str
    text: str = ""


class Message(msgspec.Struct, frozen=True):
    """A complete answer; `usage` in tokens as the vendor counts them."""

    content: list[Block]
    model: str
    usage: dict[str, Any]
    stop_reason: str | None = None


class TokenCount(msgspec.Struct, frozen=True):
    """The token count of a request."""

    input_tokens: int


class _ErrorWords(msgspec.Struct, frozen=True):
    message: str


class _ErrorBody(msgspec.Struct, frozen=True):
    error: _ErrorWords


class RefusedCallError(ModelError):
    """The API answered with an error status. `retry_after` is what it asked for, in seconds."""

    def __init__(self, status: int, text: str, retry_after: float | None) -> None:
        log.info("the model's API refused a call (%d): %s", status, text)
        super().__init__(failure(text, status).sentence, retry_after=retry_after)
        self.status = status


class MessagesApi:
    """Call the Messages API with the configured model. Close it at the end.

    Every call raises RefusedCallError for an error status, and another ModelError without an answer.
    """

    def __init__(self, settings: Settings, *, timeout_seconds: float) -> None:
        self._settings = settings
        self._timeout_seconds = timeout_seconds
        self._client: AsyncClient | None = None

    async def aclose(self) -> None:
        """Close open connections."""
        if self._client is not None:
            await self._client.aclose()

    async def create(self, *, model: str, max_tokens: int, system: str, user: str, keep_system: bool) -> Message:
        """Return the answer to one prompt.

        `keep_system` caches the `system` part for five minutes. Caching costs 25 % more now and saves 90 % on the next
        call, so use it only if another call follows soon.
        """
        first: dict[str, Any] = {"type": "text", "text": system}
        if keep_system:
            first["cache_control"] = {"type": "ephemeral"}
        body = {
            "model": model,
            "max_tokens": max_tokens,
            "system": [first],
            "messages": [{"role": "user", "content": user}],
        }
        return await self._post("/v1/messages", body, Message)

    async def count_tokens(self, *, model: str, user: str) -> TokenCount:
        """Return the token count of a prompt, which is not billed."""
        body = {"model": model, "messages": [{"role": "user", "content": user}]}
        return await self._post("/v1/messages/count_tokens", body, TokenCount)

    async def _post(self, path: str, body: dict[str, Any], kind: type[_T]) -> _T:
        # Import in a thread: if the SDK has not imported it yet, the agent must not wait.
        http = await asyncio.to_thread(importlib.import_module, "httpx2")
        if self._client is None:
            # The caller retries, where waiting is visible and can be cancelled. A redirect would leak the key.
            # Made in a thread, because it reads the TLS roots.
            client: AsyncClient = await asyncio.to_thread(
                http.AsyncClient, headers=self._headers(), timeout=self._timeout_seconds
            )
            self._client = client
        base = (self._settings.base_url or DEFAULT_BASE_URL).rstrip("/")
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                self._client.stream("POST", base + path, content=msgspec.json.encode(body)) as response,
            ):
                answer = await _body(response)
        except TimeoutError as error:
            raise ModelError(f"no complete answer within {self._timeout_seconds:.0f} seconds") from error
        except (http.HTTPError, http.InvalidURL) as error:
            raise ModelError(failure(f"Connection lost: {error}").sentence) from error
        if response.status_code != _OK:
            words = " ".join((_error_words(answer) or response.reason_phrase).split())[:MAX_WORDS]
            raise RefusedCallError(response.status_code, words, _seconds(response.headers.get("retry-after")))
        try:
            return await off_loop(len(answer), msgspec.json.decode, answer, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ModelError("the address does not answer like the Messages API") from error

    def _headers(self) -> dict[str, str]:
        settings = self._settings
        headers = {
            "anthropic-version": API_VERSION,
            "content-type": "application/json",
            "user-agent": f"sprite/{__version__}",
        }
        if settings.api_key:
            headers["x-api-key"] = settings.api_key
        if settings.auth_token:
            headers["authorization"] = f"Bearer {settings.auth_token}"
        return headers


async def _body(response: Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ModelError(f"the model's answer has more than {MAX_BODY_BYTES // 2**20} MiB")
    return bytes(body)


def _error_words(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_ErrorBody).error.message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _seconds(header: str | None) -> float | None:
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None


class CliMessages:
    """Call the model through the SDK, each time in a separate session without tools, hooks and settings.

    Errors are those of MessagesApi. The CLI's files are deleted after each call.
    """

    def __init__(self, settings: Settings, *, timeout_seconds: float) -> None:
        self._settings = settings
        self._timeout_seconds = timeout_seconds

    async def aclose(self) -> None:
        """Do nothing: no call leaves anything open."""

    async def create(self, *, model: str, max_tokens: int, system: str, user: str, keep_system: bool) -> Message:  # noqa: ARG002 - the CLI caches by itself
        """Return the answer to one prompt."""
        sdk = await asyncio.to_thread(importlib.import_module, "claude_agent_sdk")
        answering, result = model, None
        with TemporaryDirectory(prefix="curator-", dir=self._settings.run) as folder:
            said = sdk.query(prompt=user, options=self._options(sdk, Path(folder), model, max_tokens, system))
            try:
                async with asyncio.timeout(self._timeout_seconds), aclosing(said):
                    async for message in said:
                        if isinstance(message, sdk.AssistantMessage) and message.error is None:
                            answering = message.model
                        elif isinstance(message, sdk.ResultMessage):
                            result = message
            except TimeoutError as error:
                raise ModelError(f"no complete answer within {self._timeout_seconds:.0f} seconds") from error
            except (sdk.ClaudeSDKError, OSError, RuntimeError) as error:
                if result is None:
                    raise ModelError(f"Claude Code failed: {type(error).__name__}") from error
        if result is None:
            raise ModelError("Claude Code ended without an answer")
        text = result.result or "; ".join(result.errors or [])
        if result.is_error and result.stop_reason in WHOLE:
            if result.api_error_status is not None:
                raise RefusedCallError(result.api_error_status, text[:MAX_WORDS], None)
            raise ModelError(failure(text).sentence)
        return Message([Block("text", text)], answering, result.usage or {}, result.stop_reason)

    def _options(self, sdk: Any, folder: Path, model: str, max_tokens: int, system: str) -> ClaudeAgentOptions:
        limits = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(max_tokens), "CLAUDE_CODE_MAX_RETRIES": "0"}
        options: ClaudeAgentOptions = sdk.ClaudeAgentOptions(
            cwd=folder,
            system_prompt=system,
            model=model,
            tools=[],
            max_turns=1,
            thinking={"type": "disabled"},
            effort="low",
            setting_sources=[],
            strict_mcp_config=True,
            extra_args={"no-session-persistence": None},
            env=cli_environment(self._settings, folder) | limits,
        )
        return options


CALL_TIMEOUT_SECONDS = 180.0
#: Below the 5 s that a command waits for the sprite.
CHECK_TIMEOUT_SECONDS = 4.0
#: Error statuses that the turns did not cause: credentials, payment, permission, unknown model, timeout, conflict or
#: rate limit.
OUTAGES = frozenset({401, 402, 403, 404, 408, 409, 429})
#: Outages that end without a person.
PASSING = frozenset({408, 409, 429})
#: Stop reasons of a complete answer.
WHOLE = frozenset({None, "end_turn", "stop_sequence"})
NO_FORMAT = "not in the format"
#: Tokens of a verdict with its reason.
VERDICT_TOKENS = 60
#: The fewest bytes of a prompt per token.
_LEAST_BYTES = 2


class UnusableAnswerError(ModelError):
    """The curator's model gave no usable answer: it refused these turns, was cut off, or ignored the format."""


class RefusedError(UnusableAnswerError):
    """The curator's model refused these turns."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to one curator call; `usage` in tokens, `asked` is the requested model.

    `lost_call` is the id of the log's row that counts the call as failed until its curation is logged.
    """

    text: str
    stop_reason: str | None
    model: str
    usage: dict[str, Any]
    asked: str
    lost_call: int | None = None
    is_free: bool = False

    @property
    def cost_usd(self) -> float | None:
        """Return the price, or None if unknown: the higher of the requested and the answering model's."""
        if self.is_free:
            return 0.0
        costs = [cost_usd(model, self.usage) for model in (self.model, self.asked)]
        return max((cost for cost in costs if cost is not None), default=None)


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why an answer is unusable: `reason` for the log, `words` for people."""

    reason: str
    words: str
    error: type[UnusableAnswerError] = UnusableAnswerError


@dataclass(frozen=True, slots=True)
class Asked:
    """The turns that a call asks about, as an inclusive range of ids, and the number of their extraction.

    `again`: after an answer in a wrong format, the call may be repeated once.
    """

    first: int
    last: int
    generation: int
    again: bool = True


class CuratorModel:
    """Call the curator's model; close it at the end.

    `on_lost` logs a call of which no curation is logged, and returns the row's id. A usable answer also has such a
    row until its curation is logged.
    """

    def __init__(self, settings: Settings, on_lost: Callable[[Answer, str, Asked | None], Awaitable[int]]) -> None:
        self._settings = settings
        self._on_lost = on_lost
        kind = CliMessages if settings.cloud or settings.on_plan else MessagesApi
        self._api = kind(settings, timeout_seconds=CALL_TIMEOUT_SECONDS)
        self._left_usd = settings.memory_usd
        #: Start of the open call in Unix seconds.
        self.asking_since: float | None = None

    async def close(self) -> None:
        """Close open connections."""
        await self._api.aclose()

    async def ask(self, prompt: CuratorPrompt, asked: Asked) -> Answer:
        """Return the curator's answer, ready for the log. Repeat the call once after a wrong format, if `asked` allows.

        UnusableAnswerError if the answer is unusable, another ModelError for an outage.
        """
        answer = await self._answer(prompt, asked)
        if not await _is_usable(answer.text) and asked.again:
            log.warning("the curator's answer was not in the format; asking once more")
            await self._on_lost(answer, NO_FORMAT, asked)
            answer = await self._answer(prompt, asked)
        # The answer about a single turn is logged as it is; several turns get another attempt in smaller batches.
        if asked.first == asked.last or await _is_usable(answer.text):
            return replace(answer, lost_call=await self._on_lost(answer, NOT_LOGGED, asked))
        await self._on_lost(answer, NO_FORMAT, asked)
        raise UnusableAnswerError(f"the curator's answer was {NO_FORMAT}")

    async def verify(self, request: Request, asked: Asked) -> Answer:
        """Return the verifier's answer, also if it was cut off. Errors as for `ask`."""
        model = self._settings.curator_model
        limit = VERDICT_TOKENS * (len(request.lines) + 4)
        answer, fault = await self._call(model, request.system, request.user, limit)
        if fault is not None and answer.stop_reason != "max_tokens":
            await self._on_lost(answer, f"verification: {fault.reason}", asked)
            raise fault.error(fault.words.replace("curator", "verifier"))
        return replace(answer, lost_call=await self._on_lost(answer, NOT_LOGGED, asked))

    async def read(self, system: str, user: str, max_tokens: int) -> str:
        """Return the model's answer to a prompt that is not about memory. Errors as for `ask`."""
        answer, fault = await self._call(self._settings.curator_model, system, user, max_tokens)
        await self._on_lost(answer, "a question about untrusted text", None)
        if fault is not None:
            raise fault.error(fault.words.replace("curator", "reader"))
        return answer.text

    async def answers(self, prompt: CuratorPrompt) -> Fault | None:
        """Send a prompt without turns. Return None if the model answers, else the fault. ModelError for an outage."""
        answer, fault = await self._curate(prompt)
        await self._on_lost(answer, CONTROL_ANSWERED if fault is None else CONTROL_IN_VAIN, None)
        return fault

    async def _answer(self, prompt: CuratorPrompt, asked: Asked) -> Answer:
        answer, fault = await self._curate(prompt)
        if fault is not None:
            await self._on_lost(answer, fault.reason, asked)
            raise fault.error(fault.words)
        return answer

    async def _curate(self, prompt: CuratorPrompt) -> tuple[Answer, Fault | None]:
        model = self._settings.curator_model
        return await self._call(model, prompt.system, prompt.user, MAX_ANSWER_TOKENS, keep_system=prompt.is_followed)

    async def _call(
        self, model: str, system: str, user: str, max_tokens: int, *, keep_system: bool = False
    ) -> tuple[Answer, Fault | None]:
        _check_key(self._settings)
        largest = (price_of(model) or DEAREST).most(len((system + user).encode()) // _LEAST_BYTES, max_tokens)
        if self._left_usd is not None:
            if largest > self._left_usd:
                words = f"a call could cost ${largest:.2f}, and ${self._left_usd:.2f} are left"
                raise ModelError(words, retryable=False)
            self._left_usd -= largest
        self.asking_since = time.time()
        try:
            message = await self._api.create(
                model=model, max_tokens=max_tokens, system=system, user=user, keep_system=keep_system
            )
        except RefusedCallError as error:
            words = f"the curator's model refused the call. {error}"
            is_refusal = 400 <= error.status < 500  # noqa: PLR2004
            if error.status in OUTAGES or not is_refusal:
                is_passing = error.status in PASSING or not is_refusal
                raise ModelError(words, retryable=is_passing, retry_after=error.retry_after) from error
            return Answer("", None, model, {}, model), Fault(f"refused with {error.status}", words, RefusedError)
        except ModelError as error:
            raise ModelError(f"the curator's model could not be reached: {error}") from error
        finally:
            self.asking_since = None
        text = "".join(block.text for block in message.content if block.type == "text")
        usage = {name: value for name, value in message.usage.items() if value is not None}
        answering, asked = (OFFLINE, OFFLINE) if self._settings.is_offline else (message.model, model)
        answer = Answer(text, message.stop_reason, answering, usage, asked, is_free=self._settings.is_free)
        if self._left_usd is not None and answer.cost_usd is not None:
            self._left_usd += largest - answer.cost_usd
        return answer, _fault(answer)


async def _is_usable(text: str) -> bool:
    try:
        return (await off_loop(len(text), parse_response, text)).usable
    except Exception:
        # Our parser's bug must not lose the record of the cost.
        log.exception("the curator's answer could not be read")
        return False


def _check_key(settings: Settings) -> None:
    if not settings.has_credentials:
        raise ModelError(f"no model: {NO_KEY}", retryable=False)


async def check_model(settings: Settings) -> str:
    """Ask the model once, unbilled, and describe its answer. ModelError with the reason if it fails."""
    _check_key(settings)
    if settings.cloud or settings.on_plan:
        return f"{settings.curator_model} through Claude Code, not asked; `doctor --live` asks it"
    async with aclosing(MessagesApi(settings, timeout_seconds=CHECK_TIMEOUT_SECONDS)) as api:
        try:
            counted = await api.count_tokens(model=settings.curator_model, user="hello")
        except RefusedCallError as error:
            raise ModelError(f"refused: {error}") from error
        except ModelError as error:
            raise ModelError(f"cannot be reached at {settings.base_url or 'the API'}: {error}") from error
    if settings.is_offline:
        return f"the {STAND_IN}, answers"
    return f"{settings.curator_model} answers ({counted.input_tokens} tokens counted)"


def _fault(answer: Answer) -> Fault | None:
    if answer.stop_reason == "refusal":
        return Fault("declined", "the curator's model declined to answer", RefusedError)
    if answer.stop_reason not in WHOLE:
        return Fault("cut off", f"the curator's answer was cut off ({answer.stop_reason})")
    if not answer.text.strip():
        return Fault("empty", "the curator's answer was empty")
    return None
