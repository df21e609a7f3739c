"""The hook before each tool call: start watching memory files, and deny access to hidden places.

Only this hook receives the folder in which a command will run.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from claude_agent_sdk import HookContext, HookMatcher
from claude_agent_sdk.types import HookInput, HookJSONOutput, PreToolUseHookSpecificOutput, SyncHookJSONOutput

from sprite.sandbox.guard import SYSTEM_REFUSAL, Guard

log = logging.getLogger(__name__)

#: The tool that runs commands.
COMMANDS = "Bash"
#: Calls that need no permission never take their entry back, so the oldest entries are dropped.
_MOST_FOLDERS = 200


class CallFolders:
    """Track the folder of each call. A `cd` persists, and only the hook receives the folder."""

    def __init__(self) -> None:
        self._folders: OrderedDict[str, Path] = OrderedDict()

    def note(self, tool_use_id: str, cwd: str) -> None:
        """Record the folder of a call that is about to run."""
        self._folders[tool_use_id] = Path(cwd)
        if len(self._folders) > _MOST_FOLDERS:
            self._folders.popitem(last=False)

    def take(self, tool_use_id: str | None) -> Path | None:
        """Return and forget the folder of a call; None if it is not known."""
        return self._folders.pop(tool_use_id or "", None)


def guarding(
    guard: Guard, begins: Callable[[], Awaitable[None]], folders: CallFolders, *, asks_always: bool
) -> HookMatcher:
    """Return the PreToolUse matcher for every tool; the CLI waits for it. `begins` is called when the agent works.

    With `asks_always`, a person decides on each command, even if the CLI considers it harmless.
    """

    async def before_tool(event: HookInput, tool_use_id: str | None, _context: HookContext) -> HookJSONOutput:
        try:
            await begins()
            fields = dict(event)
            tool, cwd = str(fields["tool_name"]), str(fields["cwd"])
            folders.note(tool_use_id or "", cwd)
            refusal = guard.refusal(tool, fields["tool_input"], cwd)
        except Exception:
            # If the guard fails, deny the call.
            log.exception("a tool call could not be looked at and is denied")
            return _decided("deny", SYSTEM_REFUSAL)
        if refusal is not None:
            return _decided("deny", refusal)
        return _decided("ask", "No sandbox holds here.") if asks_always and tool == COMMANDS else {}

    return HookMatcher(hooks=[before_tool])


def _decided(decision: Literal["deny", "ask"], reason: str) -> SyncHookJSONOutput:
    return SyncHookJSONOutput(
        hookSpecificOutput=PreToolUseHookSpecificOutput(
            hookEventName="PreToolUse", permissionDecision=decision, permissionDecisionReason=reason
        )
    )
