"""Translate SDK messages to agent events (pure)."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import claude_agent_sdk as sdk
import msgspec

from sprite.agent.mission_end import TurnResult
from sprite.agent.permissions import REFUSALS
from sprite.common.failures import NO_ANSWER, Failure, failure
from sprite.common.prices import cost_usd
from sprite.common.tasks import size_of
from sprite.log.transcript import Outcome
from sprite.privacy.cutting import Discreet, clean, cut, result_text, shown_input
from sprite.privacy.secret_formats import NOT_KEPT, shows_secrets
from sprite.protocol import events
from sprite.protocol.shapes import PlanLimit

log = logging.getLogger(__name__)

#: Limit of a tool result's summary; the observation keeps more.
SUMMARY_CHARS = 400
#: The attempt at which clients are told. The first retry often succeeds.
_TOLD_ATTEMPT = 2
#: Beginnings of the CLI's answer when work continues in the background; paths, ids and advice follow.
_LAUNCHED = ("Command running in background with ID:", "Async agent launched successfully")
#: Tools that ask the model, and the beginnings of their answers if it fails.
_ASK_MODEL = frozenset({"Agent", "WebFetch", "WebSearch"})
_FAILED = ("Agent terminated early", "API Error", "Failed to authenticate", "Invalid API key", "Not logged in")
#: Beginning of the CLI's result for a call that an interrupt stopped.
_STOPPED = "The user doesn't want to "
_REMINDERS = re.compile(r"<system-reminder>.*?(?:</system-reminder>|\Z)", re.DOTALL)
#: A line that instructs the model to keep something from the person.
_INSTRUCTION = re.compile(
    r"never quote|internal ID|\b(?:do not|don't) (?:mention|tell|show) (?:this |it )?(?:to )?the (?:user|person)\b",
    re.IGNORECASE,
)


def events_of(message: sdk.Message, discreet: Discreet, calls: dict[str, bool]) -> Iterator[events.AnyAgentEvent]:
    """Yield the events of a message, without their mission. Text is redacted before it is cut; the feed redacts more.

    `calls` collects the ids of calls whose results are not shown (True) or can be a failure of the model (False).
    """
    match message:
        case sdk.StreamEvent(parent_tool_use_id=None, event=event):
            yield from _streamed(event)
        case sdk.AssistantMessage(error=None):
            yield from _said(message, discreet, calls)
        case sdk.UserMessage(content=list(blocks)):
            for block in blocks:
                if isinstance(block, sdk.ToolResultBlock):
                    yield _tool_result(block, discreet, calls)
        case sdk.SystemMessage(subtype="status", data={"status": "compacting"}):
            yield events.Compacting(None)
        case sdk.SystemMessage(subtype="compact_boundary"):
            yield events.Compacted(None)
        case sdk.SystemMessage(
            subtype="model_refusal_fallback" | "model_fallback" as why,
            data={"original_model": str(before), "fallback_model": str(after), **rest},
        ) if rest.get("scope") != "local":
            reason = "declined to answer" if why == "model_refusal_fallback" else "is not available"
            yield events.ModelChanged(None, after, f"{before} {reason}: {after} continues.")


def size_of_calls(message: sdk.Message) -> int:
    """Return the size of a message's tool calls and results, which `events_of` redacts."""
    if not isinstance(message, sdk.AssistantMessage | sdk.UserMessage) or isinstance(message.content, str):
        return 0
    calls = (block.input for block in message.content if isinstance(block, sdk.ToolUseBlock))
    results = (block.content for block in message.content if isinstance(block, sdk.ToolResultBlock))
    return sum(map(size_of, [*calls, *results]))


def _streamed(event: dict[str, Any]) -> Iterator[events.TextDelta | events.Thinking]:
    match event:
        case {"type": "content_block_delta", "delta": {"text": str(text)}}:
            yield events.TextDelta(None, clean(text))
        case {"type": "content_block_delta", "delta": {"thinking": str(text)}}:
            yield events.Thinking(None, clean(text))
        case {"type": "content_block_start", "content_block": {"type": "thinking" | "redacted_thinking"}}:
            yield events.Thinking(None, "")


class BrokenStream:
    """Detect a streamed answer that broke off. The CLI then requests the rest and does not report the break."""

    def __init__(self) -> None:
        self._streamed: list[str] = []

    def before(self, message: sdk.Message) -> sdk.AssistantMessage | None:
        """Return the text that broke off before this message, as a complete CLI message, or None if there is none."""
        match message:
            case sdk.StreamEvent(
                parent_tool_use_id=None, event={"type": "content_block_delta", "delta": {"text": str(text)}}
            ):
                self._streamed.append(text)
            case sdk.AssistantMessage(parent_tool_use_id=None, error=None):
                self._streamed.clear()
            case sdk.StreamEvent(parent_tool_use_id=None, event={"type": "message_start"}) | sdk.ResultMessage():
                text = "".join(self._streamed)
                self._streamed.clear()
                return sdk.AssistantMessage([sdk.TextBlock(text)], model="") if text.strip() else None
        return None


def own_answer(message: sdk.Message) -> str:
    """Return the CLI's own answer in a message, and mark it as an error; return "" for other messages."""
    match message:
        case sdk.AssistantMessage(model="<synthetic>", error=None, content=[sdk.TextBlock(text=text)]):
            message.error = "unknown"
            return text
    return ""


def model_trouble(message: sdk.Message) -> str | None:
    """Return a notice that the model does not answer, once for each call that the CLI retries."""
    match message:
        case sdk.SystemMessage(subtype="api_retry", data={"attempt": int(attempt), **rest}) if attempt == _TOLD_ATTEMPT:
            status = rest.get("error_status")
            sentence = failure("Connection lost", status if isinstance(status, int) else None).sentence
            return f"{sentence} Trying again, for some minutes if necessary."
    return None


def _said(message: sdk.AssistantMessage, discreet: Discreet, calls: dict[str, bool]) -> Iterator[events.AnyAgentEvent]:
    for block in message.content:
        if isinstance(block, sdk.TextBlock) and message.parent_tool_use_id is None and block.text:
            yield events.WholeText(None, clean(block.text))
        elif isinstance(block, sdk.ToolUseBlock):
            if (is_secret := shows_secrets(block.input)) or block.name in _ASK_MODEL:
                calls[block.id] = is_secret
            yield events.ToolUse(None, block.id, block.name, shown_input(block.input, discreet))


def _tool_result(block: sdk.ToolResultBlock, discreet: Discreet, calls: dict[str, bool]) -> events.ToolResult:
    said, is_secret = result_text(block.content, discreet), calls.get(block.tool_use_id)
    is_failure = is_secret is False and said.startswith(_FAILED)
    if block.is_error and said.startswith(_STOPPED):
        said = "Stopped by you."
    elif not (block.is_error and said in REFUSALS):
        said = NOT_KEPT if is_secret else failure(said).sentence if is_failure else _for_people(said)
    return events.ToolResult(
        None, tool_use_id=block.tool_use_id, is_error=bool(block.is_error), summary=cut(said, SUMMARY_CHARS, discreet)
    )


def _for_people(text: str) -> str:
    """Return a tool's result as people see it, without the instructions that the CLI adds for the model."""
    if text.startswith(_LAUNCHED):
        return "Started in the background."
    return "\n".join(line for line in _REMINDERS.sub("", text).splitlines() if not _INSTRUCTION.search(line)).strip()


def result_of(
    message: sdk.ResultMessage, *, interrupted: bool, is_silent: bool = False, own_words: str = ""
) -> TurnResult:
    """Return how a turn ended. If nobody asked to stop it (`interrupted`), an abort is a crash.

    `is_silent`: it had no text and no tool call, a failure unless the agent began it. `own_words` are the CLI's answer.
    """
    if own_words and message.num_turns == 0:
        message = replace(message, is_error=True, result=own_words)
    outcome = _outcome(message, interrupted=interrupted)
    taken_in = message.user_message_uuids or ([message.user_message_uuid] if message.user_message_uuid else [])
    origin = message.origin["kind"] if message.origin else "human"
    failed = _failure(message, outcome)
    if outcome == "complete" and is_silent and origin == "human" and not (message.result or "").strip():
        outcome, failed = "error", NO_ANSWER
    return TurnResult(
        for_messages=tuple(taken_in),
        by_itself=origin != "human",
        outcome=outcome,
        failure=failed,
        text=clean(message.result or ""),
        usage=message.usage,
        total_cost_usd=message.total_cost_usd,
    )


def _outcome(message: sdk.ResultMessage, *, interrupted: bool) -> Outcome:
    aborted = (message.terminal_reason or "").startswith("aborted")
    if interrupted and (aborted or message.subtype == "error_during_execution"):
        return "interrupted"
    if aborted:
        return "crashed"
    if message.subtype == "error_max_turns":
        return "max_turns"
    return "error" if message.is_error else "complete"


def _failure(message: sdk.ResultMessage, outcome: Outcome) -> Failure | None:
    if outcome in {"complete", "interrupted", "crashed"}:
        return None
    if outcome == "max_turns":
        words = f"The agent stopped after {message.num_turns} steps without finishing. Tell it how to continue."
        return Failure("max_turns", words, "change")
    text = message.result or "; ".join(message.errors or [])
    log.info("the model failed (%s): %s", message.api_error_status, text)
    return failure(text, message.api_error_status)


def plan_limits(windows: Any) -> list[PlanLimit]:
    """Return the usage limits of a Claude plan from the CLI's data, or none if its form is unknown."""
    try:
        found = msgspec.convert(windows, dict[str, _Window])
    except msgspec.ValidationError:
        return []
    return [PlanLimit(name.replace("_", " "), each.utilization, each.resetsAt) for name, each in found.items()]


class _Window(msgspec.Struct):
    utilization: float
    resetsAt: float  # noqa: N815 - the CLI's name


#: Remembered subagent messages, because each arrives once per block.
_MOST_MESSAGES = 200


class CallCosts:
    """Sum up the costs of model calls. Pass every message to `take` in order; it returns the added US dollars."""

    def __init__(self) -> None:
        self._is_whole = True
        self._cut_usd = 0.0
        self._model = ""
        self._usage: dict[str, Any] = {}
        self._counted: OrderedDict[str, float] = OrderedDict()

    def take(self, message: sdk.Message) -> float:
        """Return the cost that this message adds, in US dollars."""
        match message:
            case sdk.StreamEvent(parent_tool_use_id=None, event={"type": "message_start", "message": dict(begun)}):
                self._close()
                self._model, self._usage, self._is_whole = str(begun.get("model")), {}, False
                return self._grown(begun.get("usage"))
            case sdk.StreamEvent(parent_tool_use_id=None, event={"type": "message_delta", "usage": usage, **rest}):
                # The CLI ends a stream that was cut by itself, without a reason.
                self._is_whole = (rest.get("delta") or {}).get("stop_reason") is not None
                return self._grown(usage)
            case sdk.AssistantMessage(
                parent_tool_use_id=str(), message_id=str(message_id), model=model, usage=dict(usage)
            ):
                cost = cost_usd(model, usage) or 0.0
                before = self._counted.pop(message_id, 0.0)
                self._counted[message_id] = max(cost, before)
                if len(self._counted) > _MOST_MESSAGES:
                    self._counted.popitem(last=False)
                return max(cost - before, 0.0)
        return 0.0

    def cut_usd(self) -> float:
        """Return the cost of the calls that were cut in the turn that ends now."""
        self._close()
        cut, self._cut_usd = self._cut_usd, 0.0
        return cut

    def _close(self) -> None:
        if not self._is_whole:
            self._is_whole = True
            self._cut_usd += cost_usd(self._model, self._usage) or 0.0

    def _grown(self, usage: Any) -> float:
        before = cost_usd(self._model, self._usage) or 0.0
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}
        return max((cost_usd(self._model, self._usage) or 0.0) - before, 0.0)
