"""A mission as another program follows it."""

from __future__ import annotations

from sprite.mcp.tools import progress, reply_of
from sprite.protocol.events import Complete, Failed, Interrupted, Started, ToolUse, WholeText
from sprite.protocol.messages import PermissionRequest


def test_progress_is_told_briefly() -> None:
    assert progress(Started("m")) == "The agent has started."
    assert progress(ToolUse("m", "t", "Bash", {"command": "ls\n -l"})) == "Bash ls -l"
    asked = PermissionRequest("r", "m", "Write", {})
    assert progress(asked) == "The agent waits for the person's permission to use Write."
    assert progress(WholeText("m", "So\nit goes." + "x" * 5_000)) == "So it goes." + "x" * 289 + "…"
    assert progress(Complete("m", "Done.", None, None, 1)) is None


def test_mission_end_of_each_kind_is_reported() -> None:
    for ending, outcome, text in (
        (Complete("m", "Done.", None, None, 1), "complete", "Done."),
        (Interrupted("m"), "interrupted", ""),
        (Failed("m", "busy", "The model is busy.", retryable=True), "error", "The model is busy."),
    ):
        reply = reply_of(ending, "m")
        assert (reply.outcome, reply.reply, reply.mission_id) == (outcome, text, "m")
