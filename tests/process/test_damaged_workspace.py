"""The real program on a tampered workspace: it refuses or repairs, and reports the problem in plain words."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sprite.config import is_root
from sprite.errors import SpriteError
from tests.command_line import command, restart_server, started
from tests.harness import PATIENCE, ROOT, observations, rows, running_sprite, sprite_environment
from tests.inspection import learnings, memory_file
from tests.scripted_model import OfflineModel

#: An old session log of Claude Code.
PROMPT = json.dumps(
    {
        "type": "user",
        "uuid": "1",
        "sessionId": "s",
        "timestamp": "2026-01-01T08:00:00Z",
        "message": {"role": "user", "content": "Hello there"},
    }
)


async def refusal(workspace: Path) -> str:
    """Return the error message of a sprite that does not start."""
    with pytest.raises((SpriteError, OSError)) as refused:
        async with running_sprite(workspace, None):
            pass
    return str(refused.value)


async def refused_process(workspace: Path) -> str:
    """Return the last line that a failing sprite process prints."""
    process = await started(workspace, "serve", "--port", "0")
    out, err = await process.communicate()
    assert (await process.wait(), out) == (2, b"")
    assert b"Traceback" not in err
    return err.decode().splitlines()[-1]


async def test_second_owner_is_refused_without_lock_file(workspace: Path) -> None:
    """The refusal also holds when the whole `run` folder is deleted."""
    async with running_sprite(workspace, None) as sprite, sprite.client() as client:
        said = await refused_process(workspace)
        assert "already owns" in said
        assert str(os.getpid()) in said
        assert (workspace / ".os/run/address").read_text().strip() == f"{sprite.host}:{sprite.port}"
        (workspace / ".os/run/lock").unlink()
        assert "already owns" in await refusal(workspace)
        shutil.rmtree(workspace / ".os/run")
        assert "owns" in await refusal(workspace)
        for arguments in (
            ("rebuild",),
            ("memory", "forget", "--text", "Hello", "--yes"),
            ("memory", "accept", "user.md"),
            ("import", str(workspace)),
        ):
            (workspace / "session.jsonl").write_text(PROMPT)
            code, _, err = await command(workspace, *arguments)
            assert (code, "owns" in err, "Traceback" in err) == (2, True, False), (arguments, err)
        made = await client.ask("canvas_interaction", {"action": "create_stack", "name": "Still here"})
        assert made["payload"]["status"] == "done"


async def test_older_log_is_reported_and_repaired(curated: Path, tmp_path: Path) -> None:
    """Every command reports a restored older log, and the next start repairs memory."""
    workspace = shutil.copytree(curated, tmp_path / "workspace")
    log = workspace / ".os/memory/transcript.db"
    with sqlite3.connect(log) as connection:
        connection.executescript("DROP TRIGGER curations_stay; DELETE FROM curations WHERE id > 1")
    for arguments in (("status",), ("memory", "search", "Ada"), ("memory", "learnings"), ("mcp",)):
        code, out, err = await command(workspace, *arguments)
        assert (code, out, "Traceback" in err) == (2, "", False), (arguments, err)
        assert "has less than memory.db" in err
        assert "python -m sprite rebuild" in err
    _, out, _ = await command(workspace, "doctor", "--without-model")
    assert "has less than memory.db" in out
    await restart_server(workspace)
    (aside,) = workspace.glob(".os/memory/memory.db.of-a-newer-log-*")
    for arguments in (("status",), ("doctor", "--without-model")):
        _, out, err = await command(workspace, *arguments)
        assert f"{aside.name}: memory.db was of a newer state of the log" in out, err
    _, out, _ = await command(workspace, "status", "--json")
    assert any(words.startswith(aside.name) for words in json.loads(out)["set_aside"])


async def test_oversized_memory_file_is_reported_to_clients(model: OfflineModel, workspace: Path) -> None:
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.until(lambda m: m["type"] == "state_sync")
        for content, words in (
            ("- x\n" * 201, "user.md would have 201 lines; 200 are allowed"),
            ("x" * 3_000_000, "it was moved to user.md.too-large"),
        ):
            (workspace / ".os/memory/user.md").write_text(content)
            client.send("system", {"action": "flush"})
            told = await client.until(lambda m: m["type"] == "error")
            assert told["payload"]["code"] == "over_limit"
            assert words in told["payload"]["message"]
    assert (workspace / ".os/memory/user.md").read_text() == "- x\n" * 201
    assert (workspace / ".os/memory/user.md.too-large").stat().st_size == 3_000_000


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def no_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")


async def test_wrong_file_type_is_reported_and_kept(curated: Path, tmp_path: Path) -> None:
    cases: list[tuple[str, Callable[[Path], object], str]] = [
        (".os/memory/transcript.db", Path.mkdir, "is a folder"),
        (".os/memory/transcript.db", link_to_itself, "unable to open"),
        (".os/run/address", Path.mkdir, "is a folder"),
        (".os/run/token", os.mkfifo, "is no file"),
        (".os/run/token", no_text, "contains no valid token. Delete it"),
        (".os/memory/shipped.json", os.mkfifo, "is no file"),
        ("documents", no_text, "is not a folder"),
        (".os/run/uploads", no_text, "is not a folder"),
    ]
    for number, (name, make, words) in enumerate(cases):
        workspace = shutil.copytree(curated, tmp_path / str(number))
        path = workspace / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        make(path)
        told = await refusal(workspace)
        assert path.name in told
        assert words in told
        path.lstat()
    assert words in await refused_process(workspace)


async def test_folder_in_place_of_file_is_quarantined(curated: Path, tmp_path: Path) -> None:
    """The memory file or database is then restored."""
    workspace = shutil.copytree(curated, tmp_path / "workspace")
    names = ("memory.db", "user.md", "soul.md")
    before = {name: memory_file(workspace, name) for name in names[1:]}
    known = learnings(workspace)
    for path in (workspace / ".os/memory" / name for name in names):
        path.unlink()
        path.mkdir()
        (path / "kept").write_text("kept")
    await restart_server(workspace)
    assert {name: memory_file(workspace, name) for name in names[1:]} == before
    assert learnings(workspace) == known
    assert len(list((workspace / ".os/memory").glob("*-*Z/kept"))) == len(names)


#: Script for a mount namespace: a small disk with the workspace, first read-only, then full, then normal.
DISK = """
mount -t tmpfs -o size=6m tmpfs {disk} && cp -a {workspace}/. {disk} || exit 99
{python} - <<'END'
import subprocess
from sprite.__main__ import main
for how, spoil, mend in (
    ("read-only", "mount -o remount,ro {disk}", "mount -o remount,rw {disk}"),
    ("full", "cat /dev/zero > {disk}/filler; true", "rm {disk}/filler"),
):
    subprocess.run(spoil, shell=True, check=True)
    for command in (
        *("serve --port 0", "status", "rebuild", "import {log}", "memory search Ada", "memory forget --text Ada --yes"),
        "doctor --without-model",
    ):
        print(how + ", " + command + ": exit", main([*command.split(), "--workspace", "{disk}"]), flush=True)
    subprocess.run(mend, shell=True, check=True)
END
cp -a {disk}/. {workspace}
"""


def test_commands_report_readonly_and_full_disk(curated: Path, tmp_path: Path) -> None:
    """No stored data is lost."""
    namespace = ["unshare", "--mount", *([] if is_root() else ["--map-root-user"])]
    if subprocess.run(
        [*namespace, "mount", "-t", "tmpfs", "tmpfs", tmp_path], check=False, capture_output=True
    ).returncode:
        pytest.skip("this machine does not allow mounts")
    workspace, disk, log = shutil.copytree(curated, tmp_path / "workspace"), tmp_path / "disk", tmp_path / "a.jsonl"
    disk.mkdir()
    log.write_text(json.dumps({"type": "user", "uuid": "u", "sessionId": "s", "timestamp": "2026-01-01T10:00:00Z",
                               "message": {"content": "Hello"}}))  # fmt: skip
    before, known = observations(workspace), learnings(workspace)
    script = DISK.format(disk=disk, workspace=workspace, log=log, python=sys.executable)
    done = subprocess.run(
        [*namespace, "bash", "-c", script],
        cwd=ROOT, env=sprite_environment(None), capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    for how in ("read-only", "full"):
        for writing in ("serve --port 0", "rebuild", f"import {log}", "memory forget --text Ada --yes"):
            assert f"{how}, {writing}: exit 2\n" in done.stdout, done.stdout + done.stderr
        for reading in ("status", "memory search Ada"):
            assert re.search(f"^{how}, {reading}: exit [02]$", done.stdout, re.MULTILINE), done.stdout + done.stderr
        assert f"{how}, doctor --without-model: exit 1\n" in done.stdout, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.count("FAIL  ") >= 2, done.stdout + done.stderr
    assert (observations(workspace), learnings(workspace)) == (before, known)
    for path in (".os/memory/transcript.db", ".os/memory/memory.db", ".os/workspace.db"):
        assert rows(workspace / path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
