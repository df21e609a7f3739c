"""Guard of `.os/`: tool calls with paths in any notation, and with patterns."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sprite.config import Settings
from sprite.sandbox.guard import KEYS_REFUSAL, Guard


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "ws"
    for folder in (".os/memory", ".os/run/claude/projects/p/s/tool-results", "documents"):
        (workspace / folder).mkdir(parents=True)
    for file in (".os/memory/user.md", ".os/run/token", ".os/run/claude/projects/p/s/tool-results/long.txt", "a.txt"):
        (workspace / file).write_text("text")
    (workspace / "link").symlink_to(".os")
    (workspace / "documents/far").symlink_to("/proc/self/cwd")
    (workspace / "round").symlink_to("round")
    os.link(workspace / ".os/memory/user.md", workspace / "hard")
    return workspace


def refuses(workspace: Path, tool: str, *, sandboxed: bool = True, cwd: str = "", **tool_input: Any) -> bool:
    guard = Guard(Settings(workspace), sandboxed=sandboxed)
    return guard.refusal(tool, tool_input, cwd or str(workspace)) is not None


@pytest.mark.parametrize(
    "path",
    [
        ".os/run/token",
        ".os",
        "./documents/../.os/memory/user.md",
        "link/run/token",
        "link/../.os/run/token",
        "hard",
        "documents/far/.os/run/token",
        "/proc/self/cwd/.os/run/token",
        "/proc/thread-self/root/etc/passwd",
        "/proc/1/environ",
        "/dev/fd/3",
        ".os/run/claude/.claude.json",
        ".os/memory/not-there-yet.md",
        "round",
    ],
)
@pytest.mark.parametrize("key", ["file_path", "notebook_path", "path"])
def test_path_into_os_is_refused_in_any_notation(workspace: Path, path: str, key: str) -> None:
    relative: dict[str, Any] = {key: path}
    absolute: dict[str, Any] = {key: str(workspace / path)}
    assert refuses(workspace, "Edit", **relative)
    assert refuses(workspace, "Read", **absolute)


@pytest.mark.parametrize(
    "path",
    [
        "a.txt",
        "documents",
        "new/folder/x",
        "/etc/hosts",
        "/proc/cpuinfo",
        "/proc/self/status",
        ".osx",
        "documents/.os",
        "~nobody-of-that-name/x",
    ],
)
def test_other_paths_are_allowed(workspace: Path, path: str) -> None:
    assert not refuses(workspace, "Read", file_path=path)
    assert not refuses(workspace, "Write", file_path=path, content="about .os/run/token")


def test_path_is_relative_to_agents_directory(workspace: Path) -> None:
    assert refuses(workspace, "Read", cwd=str(workspace / "documents"), file_path="../.os/run/token")
    assert refuses(workspace, "Read", cwd=str(workspace / ".os/run"), file_path="token")


def test_paths_in_lists_are_checked(workspace: Path) -> None:
    assert refuses(workspace, "MultiEdit", edits=[{"file_path": "a.txt"}, {"file_path": "link/run/token"}])


def test_cli_folder_allows_reading_results_only(workspace: Path) -> None:
    result = ".os/run/claude/projects/p/s/tool-results/long.txt"
    assert not refuses(workspace, "Read", file_path=result)
    assert refuses(workspace, "Write", file_path=result, content="")
    assert refuses(workspace, "Read", file_path=".os/run/claude/projects/p/s/tool-results/../x.jsonl")
    printed = ".os/run/claude/tmp/claude-0/p/s/tasks/b.output"
    assert not refuses(workspace, "Read", file_path=printed)
    assert refuses(workspace, "Edit", file_path=printed, old_string="a", new_string="b")
    for closed in (".", "tmp", "tmp/claude-0/p/s/other/b.output", "tasks/b.output", "projects/p/s.jsonl"):
        assert refuses(workspace, "Read", file_path=f".os/run/claude/{closed}")


@pytest.mark.parametrize("pattern", [".os/**", "**/../.os/*", ".o?/run/*", "link/**", "{.os,x}/*"])
def test_pattern_into_os_is_refused(workspace: Path, pattern: str) -> None:
    assert refuses(workspace, "Glob", pattern=pattern)
    assert refuses(workspace, "Grep", pattern="token", glob=str(workspace / pattern))


def test_broad_search_is_refused_only_around_os(workspace: Path) -> None:
    assert not refuses(workspace, "Grep", pattern="x", path=str(workspace))
    assert refuses(workspace, "Grep", sandboxed=False, pattern="x", path=str(workspace))
    assert not refuses(workspace, "Grep", sandboxed=False, pattern="x", path=str(workspace / "documents"))


def test_command_is_checked_only_without_sandbox(workspace: Path) -> None:
    for command in ("cat .os/run/token", f"cat {workspace}/.os/run/token", "cd .os", "ls ./.os;"):
        assert not refuses(workspace, "Bash", command=command)
        assert refuses(workspace, "Bash", sandboxed=False, command=command)
    assert not refuses(workspace, "Bash", sandboxed=False, command="import os; print(foo.os, x.osx)")


def test_non_object_input_is_harmless(workspace: Path) -> None:
    guard = Guard(Settings(workspace), sandboxed=False)
    assert not guard.refusal("Read", None, "")
    assert not guard.refusal("Read", "file_path", "")
    assert not guard.refusal("Read", {"file_path": 7, "command": ["x"]}, "")
    assert not guard.refusal("Read", {"file_path": "a\0b"}, "")


def test_bridge_data_is_refused_around_workspace(tmp_path: Path) -> None:
    """Workspace and data folder may contain each other: the inner one decides."""
    workspace = tmp_path / "data/workspaces/ada"
    inner = workspace / "inner"
    for folder in (workspace / ".os/memory", tmp_path / "data/run", inner / "run"):
        folder.mkdir(parents=True)
    (tmp_path / "data/run/bridge.lock").touch()
    (workspace / "link").symlink_to("../../store.key")
    guard = Guard(Settings(workspace, bridge_data=inner), sandboxed=True)
    for path in ("../../store.key", "../bob/documents/a.txt", "link", "inner/bridge.db", "../..", f"{tmp_path}/data"):
        assert guard.refusal("Read", {"file_path": path}, "") == KEYS_REFUSAL, path
    for path in ("a.txt", "documents/b", str(tmp_path / "other"), "../../../other"):
        assert guard.refusal("Write", {"file_path": path}, "") is None, path
    assert guard.refusal("Grep", {"path": str(tmp_path)}, "") is None
    open_guard = Guard(Settings(workspace, bridge_data=inner), sandboxed=False)
    assert open_guard.refusal("Grep", {"path": str(tmp_path)}, "") is not None


def test_path_on_card_is_text(workspace: Path) -> None:
    assert not refuses(workspace, "mcp__sprite__create_card", blocks=[{"data": {"path": ".os/memory/user.md"}}])
    assert refuses(workspace, "mcp__other__read", path=".os/memory/user.md")
