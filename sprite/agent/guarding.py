"""The hook before each tool call: memory's files are watched from there on, and what reaches for `.os/` is denied.

It is also the one place that is told which folder a command will run in.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path

from claude_agent_sdk import HookContext, HookMatcher
from claude_agent_sdk.types import HookInput, HookJSONOutput, PreToolUseHookSpecificOutput, SyncHookJSONOutput

from sprite.boundary.guard import REFUSAL, Guard

log = logging.getLogger(__name__)


#: Calls that are looked at and not asked about leave theirs behind.
_MOST_FOLDERS = 200


class CallFolders:
    """The folder that each call will run in: a `cd` lasts, and only the hook is told."""

    def __init__(self) -> None:
        self._folders: OrderedDict[str, Path] = OrderedDict()

    def note(self, tool_use_id: str, cwd: str) -> None:
        """A call is about to be made."""
        self._folders[tool_use_id] = Path(cwd)
        if len(self._folders) > _MOST_FOLDERS:
            self._folders.popitem(last=False)

    def take(self, tool_use_id: str | None) -> Path | None:
        """Where a call runs; None if that is not known."""
        return self._folders.pop(tool_use_id or "", None)


def guarding(guard: Guard, begins: Callable[[], Awaitable[None]], folders: CallFolders) -> HookMatcher:
    """The matcher for PreToolUse, of every tool; the CLI waits for it. `begins` is told that the agent is at work."""

    async def before_tool(event: HookInput, tool_use_id: str | None, _context: HookContext) -> HookJSONOutput:
        try:
            await begins()
            fields = dict(event)
            folders.note(tool_use_id or "", str(fields["cwd"]))
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
