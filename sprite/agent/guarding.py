"""The hook before each tool call: memory's files are watched from there on, and what reaches for `.os/` is denied."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from claude_agent_sdk import HookContext, HookMatcher
from claude_agent_sdk.types import HookInput, HookJSONOutput, PreToolUseHookSpecificOutput, SyncHookJSONOutput

from sprite.boundary.guard import REFUSAL, Guard

log = logging.getLogger(__name__)


def guarding(guard: Guard, begins: Callable[[], Awaitable[None]]) -> HookMatcher:
    """The matcher for PreToolUse, of every tool; the CLI waits for it. `begins` is told that the agent is at work."""

    async def before_tool(event: HookInput, _tool_use_id: str | None, _context: HookContext) -> HookJSONOutput:
        try:
            await begins()
            fields = dict(event)
            refused = guard.refuses(str(fields["tool_name"]), fields["tool_input"], str(fields["cwd"]))
        except Exception:
            # A guard that fails lets nothing through.
            log.exception("a tool call could not be looked at and is denied")
            refused = True
        return _denied() if refused else {}

    return HookMatcher(hooks=[before_tool])


def _denied() -> SyncHookJSONOutput:
    return SyncHookJSONOutput(
        hookSpecificOutput=PreToolUseHookSpecificOutput(
            hookEventName="PreToolUse", permissionDecision="deny", permissionDecisionReason=REFUSAL
        )
    )
