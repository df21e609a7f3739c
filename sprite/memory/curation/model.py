"""The curator's model: one stateless call, its faults told apart, its answer looked at before it is believed.

Knows the vendor's client; knows neither the log nor memory.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sprite.config import NO_KEY, STAND_IN, Settings
from sprite.errors import ModelError
from sprite.memory.curation.answer import parse_response
from sprite.memory.curation.prompt import CuratorPrompt
from sprite.prices import OFFLINE

if TYPE_CHECKING:
    from anthropic import APIStatusError, AsyncAnthropic

log = logging.getLogger(__name__)

#: Room for four rewritten files at the limits people reach, with the learnings.
MAX_ANSWER_TOKENS = 20_000
CALL_TIMEOUT_SECONDS = 180.0
CHECK_TIMEOUT_SECONDS = 10.0
CUT_OFF = "cut off"


class CutOffError(ModelError):
    """The curator's answer was cut off at its length limit."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to one curator call; `usage` in tokens."""

    text: str
    stop_reason: str | None
    model: str
    usage: dict[str, Any]


class CuratorModel:
    """Asks the curator's model; close it at the end. `on_lost` is told of every answer that was paid for in vain."""

    def __init__(self, settings: Settings, on_lost: Callable[[Answer, str], Awaitable[None]]) -> None:
        self._settings = settings
        self._on_lost = on_lost
        self._client: AsyncAnthropic | None = None

    async def close(self) -> None:
        """Ends the client, if there ever was one."""
        if self._client is not None:
            await self._client.close()

    async def ask(self, prompt: CuratorPrompt) -> Answer:
        """An answer worth logging. ModelError for a call that fails or is empty, CutOffError for half an answer."""
        answer = await self._call(prompt)
        if (reason := _unusable(answer)) is not None:
            await self._on_lost(answer, reason)
            if reason == CUT_OFF:
                raise CutOffError
            raise ModelError(f"the curator's answer was {reason}")
        if not parse_response(answer.text).usable:
            # Once more, since models slip; what comes then is kept in the log as it is.
            log.warning("the curator's answer was not in the format; asking once more")
            second = await self._call(prompt)
            # One of the two was in vain.
            if (reason := _unusable(second)) is not None:
                await self._on_lost(second, reason)
            else:
                await self._on_lost(answer, "not in the format")
                answer = second
        return answer

    async def _call(self, prompt: CuratorPrompt) -> Answer:
        # In a thread: the first time, importing it takes most of a second, and the agent must not wait for that.
        anthropic = await asyncio.to_thread(importlib.import_module, "anthropic")
        try:
            message = await self._connected().messages.create(
                model=self._settings.curator_model,
                max_tokens=MAX_ANSWER_TOKENS,
                system=[{"type": "text", "text": prompt.system, "cache_control": {"type": "ephemeral"}}],
                messages=[{"role": "user", "content": prompt.user}],
            )
        except anthropic.APIStatusError as error:
            raise ModelError(
                f"the curator's model refused the call: {refusal(error)}",
                retryable=error.status_code in {408, 409, 429} or error.status_code >= 500,  # noqa: PLR2004
                retry_after=_seconds(error.response.headers.get("retry-after")),
            ) from error
        except anthropic.APIError as error:
            raise ModelError(f"the curator's model could not be reached: {error}") from error
        text = "".join(block.text for block in message.content if block.type == "text")
        model = OFFLINE if self._settings.is_offline else message.model
        return Answer(text, message.stop_reason, model, message.usage.model_dump(exclude_none=True))

    def _connected(self) -> AsyncAnthropic:
        """The client, made at the first call."""
        if self._client is None:
            self._client = _client(self._settings, CALL_TIMEOUT_SECONDS)
        return self._client


def _client(settings: Settings, timeout_seconds: float) -> AsyncAnthropic:
    """A client for the settings' model. ModelError where there is no key."""
    import anthropic

    if not settings.has_credentials:
        raise ModelError(f"no model: {NO_KEY}", retryable=False)
    return anthropic.AsyncAnthropic(
        api_key=settings.api_key,
        auth_token=settings.auth_token,
        base_url=settings.base_url,
        timeout=timeout_seconds,
        max_retries=0,  # retried where the wait can be seen and interrupted
    )


async def check_model(settings: Settings) -> str:
    """Asks the model once, unbilled: that it answers, in words. ModelError says why it does not."""
    anthropic = await asyncio.to_thread(importlib.import_module, "anthropic")
    async with _client(settings, CHECK_TIMEOUT_SECONDS) as client:
        try:
            counted = await client.messages.count_tokens(
                model=settings.curator_model, messages=[{"role": "user", "content": "hello"}]
            )
        except anthropic.APIStatusError as error:
            raise ModelError(f"refused: {refusal(error)}") from error
        except anthropic.APIError as error:
            raise ModelError(f"cannot be reached at {settings.base_url or 'the API'}: {error}") from error
    if settings.is_offline:
        return f"the {STAND_IN} answers"
    return f"{settings.curator_model} answers ({counted.input_tokens} tokens counted)"


def refusal(error: APIStatusError) -> str:
    """The status and the words of the vendor's error, as far as there are any."""
    match error.body:
        case {"error": {"message": str(words)}}:
            pass
        case _:
            words = error.response.reason_phrase
    return f"{error.status_code} {' '.join(words.split())[:200]}"


def _unusable(answer: Answer) -> str | None:
    """Why nothing can be made of an answer, or None."""
    if answer.stop_reason == "max_tokens":
        return CUT_OFF
    return None if answer.text.strip() else "empty"


def _seconds(header: str | None) -> float | None:
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
