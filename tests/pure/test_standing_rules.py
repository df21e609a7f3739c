""" "Always" rules: the exact command in its folder, or files in the folder, and nothing similar."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sprite.agent.permissions import MAX_RULES, Call, StandingRules
from sprite.errors import PeerError
from sprite.protocol.frames import arrives_as_it_is


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path.resolve() / "ws"
    for folder in (".os/memory", "documents/2026", "documents/.git", "artifacts"):
        (workspace / folder).mkdir(parents=True)
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "authorized_keys").write_text("")
    (workspace / "documents/away").symlink_to(outside)
    (workspace / "documents/system").symlink_to("../.os")
    (workspace / "documents/round").symlink_to("round")
    (workspace / "documents/key").symlink_to(outside / "authorized_keys")
    os.link(outside / "authorized_keys", workspace / "documents/hard")
    (workspace / "inside").symlink_to("documents")
    return workspace


def run(workspace: Path, command: str, folder: str = "", **options: Any) -> Call:
    return Call("Bash", {"command": command, **options}, workspace / folder)


def write(workspace: Path, path: str, tool: str = "Write") -> Call:
    return Call(tool, {"file_path": str(workspace / path) if path[:1] not in " ~" else path}, workspace)


def always(rules: StandingRules, call: Call) -> str | None:
    """Return the text of the "always" rule offered to a person."""
    rule = rules.offer(call)
    if rule is not None:
        rules.add(rule)
    return None if rule is None else rule.words


def test_rule_of_clean_session_ends_with_exposure(workspace: Path) -> None:
    rules, call = StandingRules(workspace), run(workspace, "git push")
    always(rules, call)
    assert (rules.cover(call), rules.cover(call, exposed=True)) == (True, False)
    rule = rules.offer(call)
    assert rule is not None
    rules.add(rule, exposed=True)
    assert (rules.cover(call), rules.cover(call, exposed=True), len(rules.listed())) == (True, True, 1)


def test_connection_rule_covers_one_tool(workspace: Path) -> None:
    def use(connection: str, tool: str) -> Call:
        given = {"connection": connection, "tool": tool, "arguments": {"q": "a"}}
        return Call("mcp__connections__use_tool", given, workspace)

    rules = StandingRules(workspace)
    assert always(rules, use("mail", "search")) == "search of mail"
    assert rules.cover(Call("mcp__connections__mail__search", {"q": "b"}, workspace))
    assert not any(map(rules.cover, [use("mail", "send"), use("other", "search")]))


def test_command_is_allowed_verbatim_in_its_folder(workspace: Path) -> None:
    rules = StandingRules(workspace)
    loop = "for f in *; do echo $f; done"
    assert always(rules, run(workspace, loop, description="List")) == "this command"
    assert rules.cover(run(workspace, loop, description="Other words", timeout=1000))
    for other in (
        run(workspace, f"{loop}; rm -rf documents"),
        run(workspace, f"{loop} "),
        run(workspace, "rm -rf documents"),
        run(workspace, loop, "documents"),
        run(workspace, loop, run_in_background=True),
        run(workspace, loop, dangerouslyDisableSandbox=True),
        Call("Bash", {"command": loop}, None),
        Call("PowerShell", {"command": loop}, workspace),
    ):
        assert not rules.cover(other), other


def test_command_elsewhere_names_its_folder(workspace: Path) -> None:
    rules = StandingRules(workspace)
    assert always(rules, run(workspace, "make", "documents")) == "this command in documents/"
    assert not rules.cover(run(workspace, "make"))
    assert rules.folder_of(run(workspace, "make")) is None
    assert rules.folder_of(run(workspace, "make", "/srv")) == "/srv"


def test_files_are_allowed_in_folder_and_subfolders(workspace: Path) -> None:
    rules = StandingRules(workspace)
    assert always(rules, write(workspace, "documents/note.txt")) == "writing files in documents/ and its folders"
    for path in ("documents/other.txt", "documents/2026/a.txt", "documents/new/a.txt", "inside/a.txt"):
        assert rules.cover(write(workspace, path)), path
    assert rules.cover(write(workspace, "documents/note.txt", "Edit"))
    for path in NOWHERE:
        assert not rules.cover(write(workspace, path)), path
    assert not rules.cover(write(workspace, "artifacts/a.txt"))
    assert not rules.cover(write(workspace, "a.txt"))
    assert not rules.cover(write(workspace, "documents/note.txt", "Read"))
    assert not rules.cover(run(workspace, "touch documents/note.txt"))


#: Outside, hidden, reached by links, or ambiguous in notation.
NOWHERE = [
    "../outside/authorized_keys",
    "documents/../../outside/a",
    "documents/away/authorized_keys",
    "documents/away/new",
    "documents/key",
    "documents/hard",
    "documents/round",
    "documents/system/memory/user.md",
    ".os/memory/user.md",
    "documents/.git/hooks/pre-commit",
    "documents/.bashrc",
    ".bashrc",
    "documents/../documents/a.txt",
    "documents/a.txt ",
    "documents/a\u0301.txt",
    "documents/a\n.txt",
    "documents/\u202etxt.a",
    " documents/a.txt",
    "~/a.txt",
    "documents/a\x00.txt",
]


@pytest.mark.parametrize("path", NOWHERE)
def test_path_not_plainly_in_workspace_has_no_always(workspace: Path, path: str) -> None:
    assert always(StandingRules(workspace), write(workspace, path)) is None


def test_rule_at_workspace_root_excludes_subfolders(workspace: Path) -> None:
    rules = StandingRules(workspace)
    assert always(rules, write(workspace, "a.txt")) == "writing files directly in the workspace"
    assert rules.cover(write(workspace, "b.txt"))
    assert not rules.cover(write(workspace, "documents/b.txt"))
    assert not rules.cover(write(workspace, ".bashrc"))


def test_links_are_resolved_at_each_use(workspace: Path) -> None:
    rules = StandingRules(workspace)
    always(rules, write(workspace, "documents/2026/a.txt"))
    assert rules.cover(write(workspace, "documents/2026/b.txt"))
    (workspace / "documents/2026").rmdir()
    (workspace / "documents/2026").symlink_to(workspace.parent / "outside")
    assert not rules.cover(write(workspace, "documents/2026/b.txt"))


@pytest.mark.parametrize("tool", ["Read", "WebFetch", "WebSearch", "Agent", "TaskStop", "mcp__other__Write"])
def test_other_tool_is_allowed_once(workspace: Path, tool: str) -> None:
    assert always(StandingRules(workspace), write(workspace, "documents/a.txt", tool)) is None
    assert always(StandingRules(workspace), Call(tool, {"command": "ls", "url": "https://x.org"}, workspace)) is None


def test_rules_are_listed_and_revoked_singly_or_together(workspace: Path) -> None:
    rules = StandingRules(workspace)
    always(rules, run(workspace, "make"))
    always(rules, write(workspace, "documents/a.txt"))
    always(rules, run(workspace, "make"))
    listed = rules.listed()
    assert [(rule.words, rule.command) for rule in listed] == [
        ("this command", "make"),
        ("writing files in documents/ and its folders", ""),
    ]
    rules.revoke(listed[0].rule_id)
    assert not rules.cover(run(workspace, "make"))
    assert rules.cover(write(workspace, "documents/a.txt"))
    with pytest.raises(PeerError, match="no such permission rule"):
        rules.revoke(listed[0].rule_id)
    rules.revoke(None)
    assert rules.listed() == []


def test_rules_are_bounded_by_message_size(workspace: Path) -> None:
    """A rule too long to list is not accepted."""
    rules = StandingRules(workspace)
    assert always(rules, run(workspace, "x" * 1001)) is None
    for number in range(MAX_RULES):
        assert always(rules, run(workspace, f"make {number}"))
    assert always(rules, run(workspace, "make more")) is None


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        ({"command": "ls \u202e\x00 é 🙂", "timeout": 2**53 - 1, "deep": [{"a": [None, True, 1.5]}]}, True),
        ({"command": "ls \ud800"}, False),
        ({"a\udc00": 1}, False),
        ({"timeout": 2**53}, False),
        ({"timeout": float("nan")}, False),
        ({"timeout": float("inf")}, False),
        ({"odd": object()}, False),
    ],
)
def test_ambiguous_client_reading_is_detected(value: dict[str, Any], arrives: bool) -> None:
    assert arrives_as_it_is(value) is arrives


def test_unreadably_deep_nesting_is_detected() -> None:
    value: Any = "x"
    for _ in range(5000):
        value = [value]
    assert not arrives_as_it_is({"deep": value})
