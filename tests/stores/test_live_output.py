"""Live output is read from regular files of the CLI only, and not for commands that print secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sprite.agent.live_output import LiveOutput, last_lines
from sprite.privacy.redaction import redact
from sprite.protocol.events import Interrupted, ToolResult, ToolUse


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "claude/tmp/claude-0/project/session/tasks"
    folder.mkdir(parents=True)
    return folder


def test_last_lines_are_redacted(tmp_path: Path, tasks: Path) -> None:
    (tasks / "b1.output").write_text("old\n" * 9000 + "password: hunter2hunter2\nlast\n")
    text = last_lines(tmp_path / "claude", frozenset(), redact)
    assert text.endswith("\nlast")
    assert "hunter2" not in text
    assert text.count("\n") == 11


def test_link_and_pipe_are_not_read(tmp_path: Path, tasks: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    (tasks / "b1.output").symlink_to(tmp_path / "secret")
    assert last_lines(tmp_path / "claude", frozenset(), str) == ""
    (tasks / "b1.output").unlink()
    os.mkfifo(tasks / "b1.output")
    assert last_lines(tmp_path / "claude", frozenset(), str) == ""


def test_oldest_command_without_secrets_is_followed(tmp_path: Path) -> None:
    live = LiveOutput(tmp_path, lambda _: None, str)
    live.happened(ToolUse("m", "1", "Bash", {"command": "cat ~/.ssh/id_rsa"}))
    live.happened(ToolUse("m", "0", "Bash", {"command": "ls"}))
    assert live.call is None, "the file is that of the first one"
    live.happened(Interrupted("m"))
    live.happened(first := ToolUse("m", "2", "Bash", {"command": "make"}))
    assert live.call is first
    live.happened(second := ToolUse("m", "3", "Bash", {"command": "make test"}))
    assert live.call is first
    live.happened(ToolResult("m", "2", is_error=False, summary=""))
    assert live.call is second


def test_output_of_parallel_commands_is_not_guessed(tmp_path: Path, tasks: Path) -> None:
    for name in ("b1.output", "b2.output"):
        (tasks / name).write_text("line\n")
    assert last_lines(tmp_path / "claude", frozenset(), str) == ""
    assert last_lines(tmp_path / "claude", frozenset([tasks / "b1.output"]), str) == "line"
