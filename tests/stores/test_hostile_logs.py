"""Importing hostile session logs: each is reported, skipped or taken literally, without crash or hang."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from sprite.cli.import_logs import import_logs
from sprite.config import Settings
from tests.looks import observations

ENTRY = {"type": "user", "uuid": "u", "sessionId": "s", "timestamp": "2026-01-01T10:00:00Z"}


def entry(text: str = "Hello", **more: Any) -> bytes:
    return json.dumps({**ENTRY, "message": {"role": "user", "content": text}, **more}).encode() + b"\n"


def answer(uuid: str, *blocks: dict[str, Any]) -> bytes:
    return entry(uuid=uuid, type="assistant", message={"role": "assistant", "content": list(blocks)})


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


async def imported(
    workspace: Path, *paths: Path, capsys: pytest.CaptureFixture[str], as_json: bool = True
) -> tuple[int, dict[str, Any], str]:
    """Return (exit code, output for programs, output for people)."""
    code = await import_logs(Settings(workspace), Namespace(paths=list(paths), dry_run=False, json=as_json))
    out, err = capsys.readouterr()
    return code, json.loads(out) if as_json else {}, err


@pytest.mark.parametrize(
    "time",
    [
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-14:00",
        "0001-01-01T00:00:00+14:00",
        "1969-12-31T23:59:59Z",
        "99999-01-01T00:00:00Z",
        "-0001-01-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "NaN",
        -5,
        1e300,
        float("nan"),
        None,
        {},
    ],
)
async def test_impossible_time_is_damaged_line(
    time: Any, logs: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "a.jsonl").write_bytes(entry(uuid="first") + entry(uuid="second", timestamp=time) + entry(uuid="third"))
    _, told, _ = await imported(workspace, logs, capsys=capsys)
    assert (told["turns"], told["damaged_lines"]) == (2, 1)
    assert {turn["timestamp"] for turn in observations(workspace)} == {1767261600.0}


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", "1" + "0" * 6000, '"\\ud800"', '"\\u0000"', "[" * 5000])
async def test_values_outside_json_are_kept_or_reported(
    value: str, logs: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if value.startswith("["):
        value += "]" * len(value)
    called = answer("call", {"type": "tool_use", "id": "t", "name": "Bash", "input": {"x": "@"}})
    (logs / "a.jsonl").write_bytes(
        entry(uuid="first") + called.replace(b'"@"', value.encode()) + entry("@", uuid="next").replace(b'"@"', b'"ok"')
    )
    _, told, _ = await imported(workspace, logs, capsys=capsys)
    assert told["turns"] == 2
    for turn in observations(workspace):
        json.loads(turn["tool_calls_json"])


async def test_cyclic_parents_and_duplicate_keys_yield_turns_once(
    logs: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "a.jsonl").write_bytes(
        entry(uuid="a", parentUuid="b")
        + entry(uuid="b", parentUuid="a")
        + entry(uuid="b") * 100
        + entry(uuid="c", parentUuid="c")
    )
    _, told, _ = await imported(workspace, logs, capsys=capsys)
    assert (told["turns"], told["damaged_lines"]) == (3, 0)


async def test_turn_of_many_messages_is_read_linearly(
    logs: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Joining messages one by one would copy a hundred megabytes."""
    attached = {"type": "queued_command", "prompt": "p" * 100, "commandMode": "prompt"}
    (logs / "a.jsonl").write_bytes(
        entry() + b"".join(entry(uuid=f"a{n}", type="attachment", attachment=attached) for n in range(1_000))
    )
    _, told, _ = await imported(workspace, logs, capsys=capsys)
    assert told["turns"] == 1
    assert observations(workspace)[0]["user_message"].count("p" * 100) == 1_000


async def test_pipes_devices_and_links_are_skipped(
    logs: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agents = logs / "s" / "subagents"
    agents.mkdir(parents=True)
    (logs / "s.jsonl").write_bytes(entry())
    for name in ("a", "b"):
        (agents / f"agent-{name}.jsonl").write_bytes(entry(uuid=name, isSidechain=True, agentId=name))
    os.mkfifo(logs / "pipe.jsonl")
    (logs / "zero.jsonl").symlink_to("/dev/zero")
    (logs / "up").symlink_to(logs)
    _, told, _ = await imported(workspace, logs, capsys=capsys)
    assert (told["files"], told["turns"]) == (3, 1)
    assert {(Path(refused["path"]).name, refused["reason"]) for refused in told["refused"]} == {
        ("pipe.jsonl", "is not a file"),
        ("zero.jsonl", "is not a file"),
    }


async def test_file_name_cannot_break_report_or_terminal(
    logs: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (b"\xff\xfe.jsonl", b"\x1b[31mred\nsprite: All is well.jsonl", "\x9b31m.jsonl".encode()):
        Path(os.fsdecode(os.fsencode(logs) + b"/" + name)).write_text("nothing\n")
    _, told, _ = await imported(workspace, logs, capsys=capsys)
    assert len(told["refused"]) == 3
    _, _, err = await imported(workspace, logs, capsys=capsys, as_json=False)
    assert err.count("\n") == err.count("refused: ") == 3
    assert not {"\x1b", "\x9b"} & set(err)


async def test_turn_belongs_to_sessions_project_at_its_start(
    logs: Path, workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        (tmp_path / name / ".git").mkdir(parents=True)
        (tmp_path / name / ".git/HEAD").write_text("ref: refs/heads/main")
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    (logs / "a.jsonl").write_bytes(
        entry(uuid="first", cwd=f"{one}/src")
        + entry(uuid="answer", type="assistant", cwd=two, message={"role": "assistant", "content": "Gone there."})
        + entry(uuid="second", cwd=two)
        + entry(uuid="third", cwd=str(workspace))
        + entry(uuid="fourth", cwd="../..")
        + entry(uuid="fifth", cwd={"a": 1})
    )
    await imported(workspace, logs, capsys=capsys)
    assert [turn["project"] for turn in observations(workspace)] == [one, two, None, None, None]
