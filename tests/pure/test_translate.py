"""The CLI's messages as people see them."""

from __future__ import annotations

import pytest
from claude_agent_sdk import AssistantMessage, ResultMessage, StreamEvent, TextBlock, ToolResultBlock, UserMessage

from sprite.agent.translate import BrokenStream, events_of, result_of
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
def test_tool_output_for_model_only_is_hidden(said: str, shown: str) -> None:
    assert summary(said) == shown


@pytest.mark.parametrize(("status", "words"), [(None, "set ANTHROPIC_API_KEY"), (401, "check ANTHROPIC_API_KEY")])
def test_key_error_explains_fix(status: int | None, words: str) -> None:
    message = ResultMessage(
        "success", 1, 1, True, 1, "s", result="Not logged in · Please run /login", api_error_status=status
    )  # fmt: skip
    result = result_of(message, interrupted=False)
    assert result.failure is not None
    code, said, retryable = result.failure
    assert (code, retryable) == ("unauthorized_model", False)
    assert words in said
    assert "/login" not in said


@pytest.mark.parametrize(
    ("said", "code", "words", "again"),
    [
        ("API Error: Opus 5's safeguards flagged this message. Request ID: req_1", "declined", "another way", False),
        (
            "API Error: Claude's response exceeded the 128000 output token maximum. Set CLAUDE_CODE_MAX_OUTPUT_TOKENS.",
            "answer_too_long",
            "in parts",
            False,
        ),
        ("API Error: The model has reached its context window limit.", "context_full", "new session", False),
        ("[ede_diagnostic] result_type=assistant stop_reason=pause_turn", "agent_error", "go on", True),
        ("[ede_diagnostic] result_type=user", "agent_error", "could not finish", True),
        (
            "API Error: Connection dropped (ECONNRESET). Check the gateway set in ANTHROPIC_BASE_URL, then try again.",
            "model_error",
            "broke off",
            True,
        ),
    ],
)
def test_cli_errors_are_explained_to_people(said: str, code: str, words: str, *, again: bool) -> None:
    result = result_of(ResultMessage("success", 1, 1, True, 1, "s", result=said), interrupted=False)
    assert result.failure is not None
    assert (result.failure[0], result.failure[2]) == (code, again)
    assert words in result.failure[1]
    assert not any(part in result.failure[1] for part in ("API Error", "ede_", "ANTHROPIC", "CLAUDE_CODE", "req_"))


def test_gateway_address_is_hidden() -> None:
    said = "API Error: 529 busy. Try again in a moment. If it persists, check your inference gateway (127.0.0.1:4)."
    message = ResultMessage("success", 1, 1, True, 1, "s", result=said, api_error_status=529)
    failure = result_of(message, interrupted=False).failure
    assert failure == ("overloaded", "API Error: 529 busy. Try again in a moment.", True)


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
