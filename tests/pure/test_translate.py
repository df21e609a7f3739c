"""What people are shown of the CLI's messages."""

from __future__ import annotations

import pytest
from claude_agent_sdk import ResultMessage, ToolResultBlock, UserMessage

from sprite.agent.translate import events_of, result_of
from sprite.privacy.redaction import discreet
from sprite.protocol.events import ToolResult


def summary(content: str) -> str:
    message = UserMessage(content=[ToolResultBlock("t1", content, None)])
    [event] = events_of(message, discreet)
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
def test_what_a_tool_says_to_the_model_alone_is_not_shown(said: str, shown: str) -> None:
    assert summary(said) == shown


@pytest.mark.parametrize(("status", "words"), [(None, "set ANTHROPIC_API_KEY"), (401, "check ANTHROPIC_API_KEY")])
def test_a_missing_or_wrong_key_is_said_with_what_to_do_here(status: int | None, words: str) -> None:
    message = ResultMessage(
        "success", 1, 1, True, 1, "s", result="Not logged in · Please run /login", api_error_status=status
    )  # fmt: skip
    result = result_of(message, interrupted=False)
    assert result.failure is not None
    code, said, retryable = result.failure
    assert (code, retryable) == ("unauthorized_model", False)
    assert words in said
    assert "/login" not in said
