"""The CLI's messages as people see them."""

from __future__ import annotations

import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ResultMessage,
    StreamEvent,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from sprite.agent.translate import BrokenStream, events_of
from sprite.privacy.redaction import discreet
from sprite.privacy.secret_formats import NOT_KEPT
from sprite.protocol.events import ToolResult


def summary(content: str, tool: str = "Bash") -> str:
    calls: dict[str, bool] = {}
    assert list(events_of(AssistantMessage([ToolUseBlock("t1", tool, {})], "m"), discreet, calls))
    message = UserMessage(content=[ToolResultBlock("t1", content, None)])
    [event] = events_of(message, discreet, calls)
    assert isinstance(event, ToolResult)
    return event.summary


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("two files\n<system-reminder>\nThink of malware.\n</system-reminder>", "two files"),
        ("a <system-reminder>x</system-reminder>b<system-reminder>never ends", "a b"),
        ("agentId: a1 (internal ID - do not mention to user)\nDone.", "Done."),
        ("Done.\nThis result is bookkeeping: never quote it.", "Done."),
        ("Command running in background with ID: b1. Output is being written to: /x.", "Started in the background."),
        ("Async agent launched successfully.\nagentId: a1", "Started in the background."),
        ("The user said: quote me.", "The user said: quote me."),
    ],
)
def test_tool_output_for_model_only_is_hidden(said: str, shown: str) -> None:
    assert summary(said) == shown


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("The person said no to this. Ask what they would prefer.", "The person said no to this."),
        ("The user doesn't want to proceed with this tool use. STOP what you are doing.", "Stopped by you."),
        ("String to replace not found: KEY=1", NOT_KEPT),
        ("The person said no to this. KEY=1", NOT_KEPT),
    ],
)
def test_refusal_of_secret_call_is_shown(said: str, shown: str) -> None:
    calls: dict[str, bool] = {}
    call = ToolUseBlock("t1", "Write", {"file_path": "/w/.envrc"})
    assert list(events_of(AssistantMessage([call], "m"), discreet, calls))
    [event] = events_of(UserMessage(content=[ToolResultBlock("t1", said, is_error=True)]), discreet, calls)
    assert isinstance(event, ToolResult)
    assert event.summary.startswith(shown)


def test_failed_model_of_tool_is_told_by_table() -> None:
    said = "API Error: 529 Overloaded. Check your inference gateway (127.0.0.1:4)."
    assert summary(said, "WebFetch") == "The model is overloaded."
    assert summary(said, "Bash") == said, "a command prints what it likes"


def streamed(kind: str, **fields: object) -> StreamEvent:
    return StreamEvent("u", "s", {"type": kind, **fields})


def test_text_of_broken_stream_is_kept_once() -> None:
    broken = BrokenStream()

    def delta(text: str) -> StreamEvent:
        return streamed("content_block_delta", delta={"type": "text_delta", "text": text})

    unsaid = [
        broken.before(message)
        for message in (
            *(streamed("message_start"), delta("one "), delta("half")),
            *(streamed("message_start"), delta("all"), AssistantMessage([TextBlock("all")], model="m")),
            *(streamed("message_start"), delta("end"), ResultMessage("success", 1, 1, False, 1, "s")),
            ResultMessage("success", 1, 1, False, 1, "s"),
        )
    ]
    assert [message.content for message in unsaid if message is not None] == [
        [TextBlock("one half")],
        [TextBlock("end")],
    ]
    assert [number for number, message in enumerate(unsaid) if message is not None] == [3, 8]
