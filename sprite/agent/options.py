"""The agent as seen by the runtime: everything that needs the SDK, set up for one conversation at a time.

Imported after the listener has started, because the SDK takes half a second.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import claude_agent_sdk as sdk
from claude_agent_sdk.types import (
    TERMINAL_TASK_STATUSES,
    HookInput,
    HookJSONOutput,
    PreToolUseHookSpecificOutput,
    SyncHookJSONOutput,
)

from sprite.agent.background import Background
from sprite.agent.conversation import AgentOptions, Conversation
from sprite.agent.permissions import ALLOWED, ANSWER_TIMEOUT_SECONDS, Call, DeniedError, word_of_sandbox
from sprite.agent.rules import RuleDesk
from sprite.agent.tools.canvas import canvas_reader, canvas_tools
from sprite.agent.tools.connections import ConnectionTools
from sprite.agent.tools.memory import action_tools, memory_tools
from sprite.agent.tools.untrusted import Ask, Fetch, untrusted_tools
from sprite.agent.translate import (
    BrokenStream,
    CallCosts,
    events_of,
    model_trouble,
    own_answer,
    plan_limits,
    result_of,
    size_of_calls,
)
from sprite.boot.canvas import CanvasContext
from sprite.capture.hooks import HOOK_TIMEOUT_SECONDS, hook_matchers
from sprite.capture.recorder import TurnRecorder
from sprite.common.tasks import WORDS, off_loop
from sprite.config import Settings
from sprite.memory.action_rows import Maker
from sprite.memory.actions import Actions
from sprite.memory.projection import AgentWatch
from sprite.protocol.events import TextDelta, Thinking, WholeText
from sprite.protocol.messages import CanvasUpdate, StackUpdate
from sprite.protocol.tools import FIND_TOOLS_CALL, OWN_TOOLS
from sprite.sandbox.guard import SYSTEM_REFUSAL, Guard
from sprite.sandbox.sandbox import Boundary, agent_command
from sprite.search.view import MemoryView
from sprite.workspace.database import Effect, WorkspaceDB
from sprite.workspace.feed import Feed
from sprite.workspace.user_files import UserFiles

if TYPE_CHECKING:
    from sprite.agent.runtime import AgentRuntime

log = logging.getLogger(__name__)

#: Returns the sprite's own tools for a conversation.
Tools = Callable[["AgentRuntime"], list[sdk.SdkMcpTool[Any]]]


def own_tools(
    workspace: WorkspaceDB,
    feed: Feed,
    view: MemoryView,
    sight: CanvasContext,
    actions: Actions,
    folder: Path,
    read: Ask,
    fetch: Fetch,
) -> Tools:
    """Return the tools for the canvas, memory and actions, and for untrusted text in the workspace's `folder`."""

    async def publish(update: CanvasUpdate | StackUpdate, effects: Sequence[Effect]) -> None:
        feed.publish(update, effects)
        await feed.drain()

    def tools(listener: AgentRuntime) -> list[sdk.SdkMcpTool[Any]]:
        return [
            *canvas_tools(workspace, publish, lambda: listener.stack_id, sight),
            canvas_reader(workspace, sight),
            *memory_tools(view, listener.found),
            *action_tools(actions, lambda: _maker(listener)),
            *untrusted_tools(folder, read, fetch),
        ]

    return tools


class Agent:
    """Create conversations with tools, hooks and permissions connected to the sprite's stores."""

    def __init__(
        self,
        settings: Settings,
        feed: Feed,
        recorder: TurnRecorder,
        boundary: Boundary,
        watch: AgentWatch,
        rules: RuleDesk,
        user_files: UserFiles,
        tools: Tools,
    ) -> None:
        self._settings = settings
        self._feed = feed
        self._recorder = recorder
        self._watch = watch
        self._boundary = boundary
        self._guard = Guard(settings, sandboxed=boundary.holds)
        self._desk = rules.desk
        self._desk.label.is_contained = boundary.holds and not settings.vm_socket.exists()
        self._user_files = user_files
        self._tools = tools
        self._rules = rules

    def conversation(self, listener: AgentRuntime) -> Conversation:
        """Return a new conversation, not yet connected. The listener receives its events."""
        broken = BrokenStream()
        costs = CallCosts()
        calls: dict[str, bool] = {}
        is_silent, own_words = True, ""

        async def on_message(message: sdk.Message) -> None:
            nonlocal is_silent, own_words
            own_words = own_answer(message) or own_words
            if (unsaid := broken.before(message)) is not None:
                await on_message(unsaid)
            await self._capture(message)
            if (usd := costs.take(message)) and not self._settings.is_free:
                listener.paid(usd)
            await self._follow_work(message, listener)
            if not _is_of_background(message, listener.background):
                discreet = self._recorder.private_text.others
                for event in await off_loop(WORDS * size_of_calls(message), list, events_of(message, discreet, calls)):
                    is_silent &= isinstance(event, Thinking) or (
                        isinstance(event, TextDelta | WholeText) and not event.text.strip()
                    )
                    await listener.happened(event)
            if (trouble := model_trouble(message)) is not None:
                self._feed.warn("model_away", trouble)
            if isinstance(message, sdk.RateLimitEvent):
                listener.plan_limits = plan_limits(message.rate_limit_info.raw.get("unifiedWindows", {}))
            if isinstance(message, sdk.ResultMessage):
                result = result_of(
                    message, interrupted=listener.is_interrupted, is_silent=is_silent, own_words=own_words
                )
                result = replace(result, cut_usd=0.0 if self._settings.is_free else costs.cut_usd())
                is_silent, own_words = True, ""
                await listener.ended(result)
            elif isinstance(message, sdk.SystemMessage) and message.subtype == "init":
                await listener.began(message.data["session_id"], message.data.get("model"))

        hooks = hook_matchers(
            self._recorder,
            begins=self._watch.begins,
            before_compaction=listener.before_compaction,
            news=listener.news,
            deeds=self._user_files.tell_deeds,
            origin_of=self._desk.label.tool_ended,
        )
        rules = partial(self._refusal_by_rule, listener)
        guard = guarding(self._guard, self._watch.begins, rules, self._begins_asked)
        hooks["PreToolUse"] = [guard, *hooks.get("PreToolUse", [])]
        url = self._settings.connections
        equipment = AgentOptions(
            tools=self._tools(listener),
            connections=ConnectionTools(url, binds=self._desk.label.asks) if url else None,
            hooks=hooks,
            can_use_tool=None if self._settings.permissions == "bypass" else partial(self._may_use, listener),
            cli_path=agent_command(self._settings, self._boundary),
        )
        return Conversation(
            self._settings,
            equipment,
            self._settings.boot_prompt,
            on_message=on_message,
            on_death=listener.died,
            on_end=self._watch.stops,
        )

    def _begins_asked(self, call: Call) -> bool:
        """Record the start of a tool call. Return whether a person must allow it even if the CLI would not ask."""
        label = self._desk.label
        label.tool_began(call.tool_use_id or "", call.cwd or self._settings.workspace)
        is_bare = call.tool == COMMANDS and self._settings.permissions == "ask" and not self._boundary.holds
        return is_bare or bool(label.asked_words(call.tool, call.input, call.tool_use_id))

    async def _refusal_by_rule(self, listener: AgentRuntime, call: Call, agent_id: str | None) -> str | None:
        """Return why a rule of the person's stops a call, or None."""
        begun_by = listener.background.turn_of(agent_id)
        return await self._rules.refusal(
            call,
            begun_by or listener.turn_id,
            of_background=begun_by is not None,
            waits=listener.turn_origin == "schedule",
        )

    async def _follow_work(self, message: sdk.Message, listener: AgentRuntime) -> None:
        """Track the end of a turn, and the start and end of background work."""
        background = listener.background
        match message:
            case sdk.TaskStartedMessage(task_id=task, tool_use_id=call_id):
                if call_id is not None:
                    self._recorder.agent_started(task, call_id)
                    background.started(task, call_id)
                await self._watch.begins(task)
            case sdk.TaskNotificationMessage(task_id=task, status=end):
                background.ended(task, end)
                await self._watch.ends(task)
            case sdk.TaskUpdatedMessage(task_id=task, status=status):
                background.ended(task, status)
                if status in TERMINAL_TASK_STATUSES:
                    await self._watch.ends(task)
            case sdk.SystemMessage(subtype="background_tasks_changed", data={"tasks": list(tasks)}):
                background.changed(tasks, listener.turn_id)
            case sdk.ResultMessage():
                await self._watch.ends()

    async def _capture(self, message: sdk.Message) -> None:
        """Record the parts of a turn that only the stream contains: its texts, and calls that no hook reports."""
        match message:
            case sdk.AssistantMessage(parent_tool_use_id=None, error=None):
                for block in message.content:
                    if isinstance(block, sdk.TextBlock):
                        await self._recorder.text(block.text)
                    elif isinstance(block, sdk.ToolUseBlock):
                        await self._recorder.tool_started(block.id, block.name, block.input)
            case sdk.UserMessage(content=list(blocks)):
                for block in blocks:
                    if isinstance(block, sdk.ToolResultBlock):
                        await self._recorder.tool_answered(
                            block.tool_use_id, block.content, is_error=bool(block.is_error)
                        )

    async def _may_use(
        self, listener: AgentRuntime, tool: str, tool_input: dict[str, Any], context: sdk.ToolPermissionContext
    ) -> sdk.PermissionResult:
        """Return whether a tool call may run; ask the person if necessary."""
        label, call_id = self._desk.label, context.tool_use_id
        is_asked = bool(label.asked_words(tool, tool_input, call_id))
        if (tool.startswith(OWN_TOOLS) or tool == FIND_TOOLS_CALL) and not is_asked:
            return sdk.PermissionResultAllow()
        begun_by = listener.background.turn_of(context.agent_id)
        call = Call(tool, tool_input, label.folder_of(call_id), call_id)
        # On a VM the sandbox does not confine the agent to its workspace.
        if self._boundary.holds and not self._settings.vm_socket.exists():
            word = word_of_sandbox(call, self._settings)
            if word is not None and not (is_asked and word == ALLOWED):
                return sdk.PermissionResultAllow() if word == ALLOWED else sdk.PermissionResultDeny(message=word)
        if self._desk.answers.get(call.tool_use_id or "") == "allow":
            # The person has just let it run in spite of a rule.
            return sdk.PermissionResultAllow()
        try:
            await self._desk.ask(
                begun_by or listener.turn_id,
                call,
                of_background=begun_by is not None,
                is_unattended=listener.turn_origin == "schedule",
            )
        except DeniedError as denied:
            return sdk.PermissionResultDeny(message=str(denied))
        # Give the CLI no rule: its rules cover more than the person was asked about.
        return sdk.PermissionResultAllow()


def _maker(listener: AgentRuntime) -> tuple[Maker, str | None]:
    """Return the author of action changes in this turn (`agent`, or `schedule` in a schedule's turn), and its id."""
    return ("schedule" if listener.turn_origin == "schedule" else "agent"), listener.turn_id


def _is_of_background(message: sdk.Message, background: Background) -> bool:
    """Return whether a background agent sent or received this message, which the current turn must not log."""
    if not isinstance(message, sdk.AssistantMessage | sdk.UserMessage):
        return False
    content = message.content if isinstance(message.content, list) else []
    return background.has(
        message.parent_tool_use_id, (block.id for block in content if isinstance(block, sdk.ToolUseBlock))
    )


#: The tool that runs commands.
COMMANDS = "Bash"
#: Returns why a rule stops a call, or None; the second argument is the id of the background agent that calls.
CheckRules = Callable[[Call, str | None], Awaitable[str | None]]


def guarding(
    guard: Guard,
    begins: Callable[[], Awaitable[None]],
    rules: CheckRules,
    is_asked: Callable[[Call], bool],
) -> sdk.HookMatcher:
    """Return the PreToolUse hook that checks every tool call; the CLI waits for it. `begins` is awaited first.

    `rules` returns a refusal by the person's rules and is called if `guard` has none. `is_asked` returns whether a
    person must allow a call, even if the CLI considers it harmless.
    """

    async def before_tool(event: HookInput, tool_use_id: str | None, _context: sdk.HookContext) -> HookJSONOutput:
        try:
            await begins()
            fields: dict[str, Any] = dict(event)
            tool, cwd = str(fields["tool_name"]), str(fields["cwd"])
            refusal, asks = guard.refusal(tool, fields["tool_input"], cwd), False
            if refusal is None:
                call = Call(tool, fields["tool_input"], Path(cwd), tool_use_id)
                refusal = await rules(call, fields.get("agent_id"))
                asks = refusal is None and is_asked(call)
        except Exception:
            # If the guard fails, deny the call.
            log.exception("a tool call could not be looked at and is denied")
            return _decided("deny", SYSTEM_REFUSAL)
        if refusal is not None:
            return _decided("deny", refusal)
        return _decided("ask", "The person decides on this call.") if asks else {}

    return sdk.HookMatcher(hooks=[before_tool], timeout=ANSWER_TIMEOUT_SECONDS + HOOK_TIMEOUT_SECONDS)


def _decided(decision: Literal["deny", "ask"], reason: str) -> SyncHookJSONOutput:
    return SyncHookJSONOutput(
        hookSpecificOutput=PreToolUseHookSpecificOutput(
            hookEventName="PreToolUse", permissionDecision=decision, permissionDecisionReason=reason
        )
    )
