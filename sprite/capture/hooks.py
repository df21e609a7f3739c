"""SDK hook callbacks that call the recorder. They never raise: memory must not stop the agent."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from claude_agent_sdk import HookContext, HookMatcher
from claude_agent_sdk.types import HookCallback, HookEvent, HookInput, HookJSONOutput

from sprite.capture.recorder import TurnRecorder
from sprite.workspace.user_files import NoteCall

log = logging.getLogger(__name__)

#: The CLI's default is also 60 s, and it blocks the prompt meanwhile. Set explicitly so that it stays.
HOOK_TIMEOUT_SECONDS = 60.0

#: The CLI's summary names the conversation's file, which the agent cannot read.
AFTER_COMPACTION = (
    "The transcript file that the summary of the earlier conversation may name is not readable here. For details from "
    "before it, use search_memory: the log has every turn."
)

_Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]


def hook_matchers(
    recorder: TurnRecorder,
    *,
    begins: Callable[[], Awaitable[None]],
    before_compaction: Callable[[], Awaitable[None]],
    news: Callable[[], Awaitable[str | None]],
    deeds: Callable[[str, NoteCall], Awaitable[str | None]],
    origin_of: Callable[[str, str, Any, Any], Awaitable[str | None]],
) -> dict[HookEvent, list[HookMatcher]]:
    """Return the hook callbacks for `ClaudeAgentOptions.hooks`, which record the agent's turns.

    `begins` is awaited before the agent acts on a prompt. `news` and `deeds` return text to add to a prompt, or None;
    `deeds` gets the prompt, and a callback that logs the text with it. `origin_of` returns the origin of untrusted
    content in a call's result, from the call's id, name, input and result.
    """

    async def prompt_submitted(event: dict[str, Any]) -> dict[str, Any] | None:
        if not await recorder.prompt_submitted(event.get("prompt_id", ""), event["prompt"]):
            # The prompt stays in the conversation, and the agent finds it when it goes on.
            return {"continue_": False, "stopReason": "Paused: the person has not said that it should go on."}
        await begins()
        told = [await news(), await deeds(event["prompt"], partial(recorder.noted, event.get("prompt_id", "")))]
        text = "\n\n".join(words for words in told if words)
        if not text:
            return None
        return {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": text}}

    async def tool_starting(event: dict[str, Any]) -> None:
        await recorder.tool_starting(
            event.get("prompt_id", ""),
            event["tool_use_id"],
            event["tool_name"],
            event["tool_input"],
            agent_id=event.get("agent_id"),
        )

    async def tool_ended(event: dict[str, Any]) -> None:
        is_error = event["hook_event_name"] == "PostToolUseFailure"
        result = event["error" if is_error else "tool_response"]
        await recorder.tool_ended(
            event.get("prompt_id", ""),
            event["tool_use_id"],
            event["tool_name"],
            event["tool_input"],
            result,
            is_error=is_error,
            agent_id=event.get("agent_id"),
            origin=await origin_of(event["tool_use_id"], event["tool_name"], event["tool_input"], result),
        )

    async def stopped(event: dict[str, Any]) -> None:
        await recorder.stopped(event.get("prompt_id", ""), event.get("last_assistant_message", ""))

    async def compacting(_event: dict[str, Any]) -> None:
        await before_compaction()

    handlers: dict[HookEvent, _Handler] = {
        "UserPromptSubmit": prompt_submitted,
        "PreToolUse": tool_starting,
        "PostToolUse": tool_ended,
        "PostToolUseFailure": tool_ended,
        "Stop": stopped,
        "PreCompact": compacting,
    }
    # The SDK's types do not list it, but the CLI calls it.
    handlers[cast("HookEvent", "SessionStart")] = _session_started
    return {
        event: [HookMatcher(hooks=[_guarded(event, handler)], timeout=HOOK_TIMEOUT_SECONDS)]
        for event, handler in handlers.items()
    }


async def _session_started(event: dict[str, Any]) -> dict[str, Any] | None:
    if event.get("source") != "compact":
        return None
    return {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": AFTER_COMPACTION}}


def _guarded(name: str, handler: _Handler) -> HookCallback:
    async def callback(event: HookInput, _tool_use_id: str | None, _context: HookContext) -> HookJSONOutput:
        try:
            output = await handler(dict(event))
        except Exception:
            # A capture error must never block or end the agent's turn. The traceback is logged.
            log.exception("the %s hook failed", name)
            return {}
        return output or {}  # type: ignore[return-value]  # one shape of many in the SDK's TypedDict union

    return callback
