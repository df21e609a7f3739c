"""The agent's tool calls as an editor shows them."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.client.turns import Call
from sprite.protocol.events import ToolResult, ToolUse
from sprite.protocol.messages import PermissionRequest


def call(name: str, **tool_input: Any) -> ToolUse:
    return ToolUse("m", "t1", name, tool_input)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Read", "read"),
        ("Edit", "edit"),
        ("Bash", "execute"),
        ("Grep", "search"),
        ("WebFetch", "fetch"),
        ("mcp__sprite__search_memory", "search"),
        ("mcp__sprite__create_card", "other"),
        ("NewTool", "other"),
    ],
)
def test_tool_kind_follows_its_action(name: str, kind: str) -> None:
    from bridge.acp import tool_calls

    assert tool_calls.kind_of(name) == kind


def test_edit_shows_diff_and_location_until_end() -> None:
    """Both are still shown after the end."""
    from bridge.acp import tool_calls

    event = call("Edit", file_path="/w/a.py", old_string="old", new_string="new")
    started = tool_calls.started(event)
    assert (started.kind, started.title, started.status) == ("edit", "Edit: /w/a.py", "in_progress")
    (diff,) = started.content or []
    assert (diff.type, diff.path, diff.old_text, diff.new_text) == ("diff", "/w/a.py", "old", "new")
    assert [place.path for place in started.locations or []] == ["/w/a.py"]
    assert tool_calls.ended(Call(event, ToolResult("m", "t1", False, "done")), is_stopped=False).content is None
    failed = tool_calls.ended(Call(event, ToolResult("m", "t1", True, "no such file")), is_stopped=False)
    assert failed.status == "failed"
    assert failed.content is not None


def test_write_is_new_file_and_multiedit_many_diffs() -> None:
    from bridge.acp import tool_calls

    (diff,) = tool_calls.started(call("Write", file_path="/w/a", content="text")).content or []
    assert (diff.old_text, diff.new_text) == (None, "text")
    edits = [{"old_string": "a", "new_string": "b"}, "broken", {"new_string": 3}, {"new_string": "c"}]
    diffs = tool_calls.started(call("MultiEdit", file_path="/w/a", edits=edits)).content or []
    assert [diff.new_text for diff in diffs] == ["b", "c"]


@pytest.mark.parametrize("tool_input", [{"file_path": 3}, {"edits": {}}, {"file_path": "/a", "new_string": None}])
def test_malformed_input_has_no_diff(tool_input: dict[str, Any]) -> None:
    from bridge.acp import tool_calls

    assert tool_calls.started(call("Edit", **tool_input)).content == []


def test_permission_question_shows_every_character() -> None:
    from bridge.acp import tool_calls

    command = "ls ``` \u202e gnihton\n" + "x" * 5000
    request = PermissionRequest("r", "m", "Bash", {"description": "harmless", "command": command}, folder="/srv")
    title, (content, *_) = tool_calls.question(request)
    assert title.startswith("Bash: ls ```")
    assert "\u202e" not in title
    text = content.content.text
    assert "<U+202E>" in text
    assert "x" * 5000 in text
    assert text.startswith("````\nin folder:\n/srv\ncommand:\n")
    assert text.index("description:") > text.index("command:")
