"""ObservationProcessor: turns that wait -> one model call per batch -> one curation in the log -> memory.

Stateless: everything a call needs is read from the log and the files, and what came of it is in the log before
anything else happens. It never skips a turn: what fails waits, and is tried again.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sprite.config import Settings
from sprite.database.memory import MemoryDB
from sprite.database.transcript import NewCuration, Observation, TranscriptDB
from sprite.errors import ModelError, SpriteError
from sprite.memory.curator import (
    CuratorPrompt,
    CuratorTurn,
    OpenLearning,
    build_prompt,
    fit,
    parse_response,
)
from sprite.memory.files import BOOT_ORDER, LINE_LIMITS, MemoryFiles
from sprite.memory.health import last_error, note_error, seconds_since_midnight
from sprite.memory.pricing import cost_usd
from sprite.memory.projection import Change, Projection
from sprite.memory.query import any_of, significant

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

log = logging.getLogger(__name__)

#: The whole of a curator call's prompt, in estimated tokens: the six files at their byte limits take 32,000 of them,
#: the static part 6,000, the learnings shown 7,000, and the rest is for turns. A batch that does not fit is split.
PROMPT_BUDGET_TOKENS = 64_000
#: Room for four rewritten files at the limits people reach, with the learnings.
MAX_ANSWER_TOKENS = 20_000
CALL_TIMEOUT_SECONDS = 180.0
#: Open learnings shown to the curator, so that it neither repeats nor contradicts them.
NEAREST_LEARNINGS = 20
#: The batch's words by which they are found.
NEAREST_TERMS = 48

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 300.0
#: So many failures in a row end a flush; the next turn's end, session or start begins another.
MAX_ATTEMPTS = 8


class BudgetReachedError(SpriteError):
    """Today's spending cap for memory is reached; turns are kept and are curated tomorrow."""

    code = "daily_cap"


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to one curator call; `usage` in tokens."""

    text: str
    stop_reason: str | None
    model: str
    usage: dict[str, Any]


class ObservationProcessor:
    """Curates what waits, one flush at a time, beside the agent."""

    def __init__(
        self,
        settings: Settings,
        transcript: TranscriptDB,
        memory: MemoryDB,
        files: MemoryFiles,
        projection: Projection,
        on_change: Callable[[Change], None],
    ) -> None:
        self._settings = settings
        self._transcript = transcript
        self._memory = memory
        self._files = files
        self._projection = projection
        self._on_change = on_change
        self._one_flush = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._flushes: set[asyncio.Task[None]] = set()
        self._client: AsyncAnthropic | None = None
        self._batch_turns = settings.batch_turns

    @property
    def last_error(self) -> str | None:
        """In words, what went wrong last; None once all is well again."""
        return last_error(self._settings.run)

    # --- triggers ---

    async def turn_ended(self) -> None:
        """A turn was written: at the batch size, what waits is curated beside the agent."""
        if await self._transcript.waiting_count() >= self._settings.batch_turns:
            self.request()

    async def leftovers(self) -> bool:
        """Whether turns wait that an earlier process did not curate."""
        return await self._transcript.waiting_count() > 0

    def request(self) -> None:
        """Asks for a flush in the background; returns at once."""
        self._wanted.set()

    async def flush_within(self, seconds: float) -> bool:
        """Curates what waits, in one attempt with a deadline; True if nothing waits any more.

        What the deadline or an error leaves is taken up in the background.
        """
        flush = asyncio.create_task(self._flush(), name="flush")
        self._flushes.add(flush)
        flush.add_done_callback(self._flushes.discard)
        # Not cancelled at the deadline: the call is paid for, and its answer is still wanted.
        await asyncio.wait({flush}, timeout=seconds)
        if not flush.done():
            log.warning("curation takes longer than %.0f s and goes on in the background", seconds)
            flush.add_done_callback(_retrieve)
            return False
        try:
            flush.result()
        except SpriteError as error:
            self._note(error)
            self.request()
            return False
        return True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the background worker while the block runs; what it is doing then is abandoned, not lost."""
        worker = asyncio.create_task(self._work(), name="curation")
        try:
            yield
        finally:
            for task in (worker, *self._flushes):
                task.cancel()
            await asyncio.gather(worker, *self._flushes, return_exceptions=True)
            if self._client is not None:
                await self._client.close()

    # --- the worker ---

    async def _work(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._flush_persistently()
            except Exception:
                # A bug must not end curation for the process's life; the turns wait for the next trigger.
                log.exception("curation failed unexpectedly")
                note_error(self._settings.run, "curation failed unexpectedly; see the log")

    async def _flush_persistently(self) -> None:
        for attempt in range(MAX_ATTEMPTS):
            try:
                await self._flush()
            except BudgetReachedError as error:
                self._note(error)
                return
            except SpriteError as error:
                self._note(error)
                if isinstance(error, ModelError) and not error.retryable:
                    return
                await asyncio.sleep(_pause(attempt, error))
            else:
                return
        log.warning("curation gave up for now after %d attempts; the turns wait", MAX_ATTEMPTS)

    def _note(self, error: SpriteError) -> None:
        log.warning("curation: %s", error)
        note_error(self._settings.run, str(error))

    # --- a flush ---

    async def _flush(self) -> None:
        async with self._one_flush:
            self._publish(await self._projection.settle())
            while turns := await self._transcript.waiting(self._batch_turns):
                await self._curate(turns)
                self._batch_turns = self._settings.batch_turns
                note_error(self._settings.run, None)

    def _publish(self, changes: list[Change]) -> None:
        for change in changes:
            self._on_change(change)

    async def _curate(self, turns: list[Observation]) -> None:
        files = {name: self._files.read(name) for name in BOOT_ORDER}
        learnings = await self._nearest(turns)
        wanted = [_as_seen(turn) for turn in turns]
        number = fit(
            wanted,
            files=files,
            limits=LINE_LIMITS,
            open_learnings=learnings,
            budget_tokens=PROMPT_BUDGET_TOKENS,
        )
        batch = turns[:number]
        prompt = build_prompt(
            files=files,
            limits=LINE_LIMITS,
            open_learnings=learnings,
            turns=wanted[:number],
            budget_tokens=PROMPT_BUDGET_TOKENS,
        )
        answer = await self._ask(prompt, len(batch))
        await self._transcript.append_batch(
            NewCuration(
                kind="batch",
                response=answer.text,
                first_observation_id=batch[0].id,
                last_observation_id=batch[-1].id,
                model=answer.model,
                prompt_sha256=prompt.sha256,
                usage=answer.usage,
                cost_usd=cost_usd(answer.model, answer.usage),
            )
        )
        self._publish(await self._projection.settle())

    async def _nearest(self, turns: list[Observation]) -> list[OpenLearning]:
        words = significant(
            " ".join(f"{turn.user_message} {turn.agent_response}" for turn in turns), limit=NEAREST_TERMS
        )
        if not words:
            return []
        rows = await self._memory.search(
            f"{{content}} : ({any_of(words)})", "l.superseded_by IS NULL", (), NEAREST_LEARNINGS
        )
        return [OpenLearning(r["id"], r["type"], r["content"], r["source_observation_id"]) for r in rows]

    # --- the call ---

    async def _ask(self, prompt: CuratorPrompt, batch_size: int) -> Answer:
        await self._within_budget()
        answer = await self._call(prompt)
        if answer.stop_reason == "max_tokens":
            # Fewer turns need a shorter answer; a single turn is tried again as it is.
            self._batch_turns = max(1, batch_size // 2)
            raise ModelError("the curator's answer was cut off at its length limit")
        if not answer.text.strip():
            raise ModelError("the curator's answer was empty")
        if not parse_response(answer.text).usable:
            # Once more, since models slip; what comes then is kept in the log as it is.
            log.warning("the curator's answer was not in the format; asking once more")
            second = await self._call(prompt)
            if second.stop_reason != "max_tokens" and second.text.strip():
                answer = second
        return answer

    async def _within_budget(self) -> None:
        cap = self._settings.daily_usd
        if cap is None:
            return
        if await self._transcript.spend(since=time.time() - seconds_since_midnight()) >= cap:
            raise BudgetReachedError(f"{BudgetReachedError.__doc__} (SPRITE_DAILY_USD={cap:g})")

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
                f"the curator's model refused the call: {error.status_code} {error.message[:200]}",
                retryable=error.status_code in {408, 409, 429} or error.status_code >= 500,  # noqa: PLR2004
                retry_after=_seconds(error.response.headers.get("retry-after")),
            ) from error
        except anthropic.APIError as error:
            raise ModelError(f"the curator's model could not be reached: {error}") from error
        text = "".join(block.text for block in message.content if block.type == "text")
        return Answer(text, message.stop_reason, message.model, message.usage.model_dump(exclude_none=True))

    def _connected(self) -> AsyncAnthropic:
        """The client, made at the first call."""
        import anthropic

        if not self._settings.has_credentials:
            raise ModelError("no model: set ANTHROPIC_API_KEY, or use the offline model", retryable=False)
        if self._client is None:
            self._client = anthropic.AsyncAnthropic(
                api_key=self._settings.api_key,
                auth_token=self._settings.auth_token,
                base_url=self._settings.base_url,
                timeout=CALL_TIMEOUT_SECONDS,
                max_retries=0,  # retried here, where the wait can be seen and interrupted
            )
        return self._client


def _retrieve(flush: asyncio.Task[None]) -> None:
    """Takes note of how a flush ended that nobody waits for any more."""
    if not flush.cancelled() and (error := flush.exception()) is not None:
        log.warning("curation in the background: %s", error)


def _as_seen(turn: Observation) -> CuratorTurn:
    return CuratorTurn(
        id=turn.id,
        at=turn.timestamp,
        session_id=turn.session_id,
        origin=turn.trigger,
        outcome=turn.outcome,
        user_message=turn.user_message,
        tool_calls=turn.tool_calls,
        agent_response=turn.agent_response,
    )


def _pause(attempt: int, error: SpriteError) -> float:
    """Exponential backoff with full jitter (AWS, "Exponential Backoff And Jitter"), or what the server asks for."""
    asked = error.retry_after if isinstance(error, ModelError) else None
    if asked is not None:
        return min(asked, LONGEST_RETRY_SECONDS)
    longest: float = FIRST_RETRY_SECONDS * 2**attempt
    return min(LONGEST_RETRY_SECONDS, longest) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def _seconds(header: str | None) -> float | None:
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
