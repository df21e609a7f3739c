"""`python -m sprite import` with real logs and real databases."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sprite.__main__ import run as sprite_command
from sprite.config import Settings
from tests.command_line import command, started
from tests.harness import PATIENCE, ROOT, observations, rows, running_sprite
from tests.inspection import curations, eventually, learnings, memory, memory_file
from tests.scripted_model import OfflineModel
from tests.session_logs import Recorded, write_many

#: Age of the fixture's logs: `import` skips logs that were written a moment ago.
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Done:
    """Exit code and output of a command."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


async def import_beside(workspace: Path, *arguments: str | Path) -> Done:
    """Run `import` in a thread, beside a sprite in this process."""
    return Done(*await command(workspace, "import", *map(str, arguments)))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command line in this process."""

    def run(workspace: Path, *arguments: str | Path, command: str = "import") -> Done:
        code = sprite_command([*command.split(), "--workspace", str(workspace), *map(str, arguments)])
        return Done(code, *capsys.readouterr())

    return run


def facts(done: Done) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def sessions(workspace: Path) -> list[dict[str, Any]]:
    return rows(workspace / ".os/memory/transcript.db", "SELECT * FROM sessions ORDER BY started_at")


@pytest.fixture
def logs(recorded: Recorded, tmp_path: Path) -> Recorded:
    """Return real logs that a test may change."""
    shutil.copytree(recorded.projects, tmp_path / "projects")
    return Recorded(tmp_path / "projects", recorded.ids)


@pytest.fixture(scope="module")
def many(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 600 turns in 4 logs, enough for two transactions."""
    folder = tmp_path_factory.mktemp("many")
    write_many(recorded.log("everyday"), folder, sessions=4, turns=150)
    return folder


# --- imported turns ---


def test_import_folder_yields_uncurated_sessions(logs: Recorded, tmp_path: Path, run: Run) -> None:
    workspace = tmp_path / "new/workspace"
    done = run(workspace, logs.projects, "--json")
    assert done.returncode == 0, done.stderr
    found = facts(done)
    assert (found["files"], found["sessions"], found["turns"]) == (11, 8, 27)
    assert (found["still_open"], found["damaged_lines"], found["refused"]) == (1, 0, [])
    turns = observations(workspace)
    assert len(turns) == found["waiting"] == 27
    assert {turn["processed"] for turn in turns} == {0}
    assert {turn["mission_id"] for turn in turns} == {None}
    assert {turn["source"] for turn in turns} == {"claude-code"}
    assert {Path(turn["project"]).name for turn in turns} == {"project"}
    kept = {session["id"]: session for session in sessions(workspace)}
    assert set(kept) == set(logs.ids.values())
    for identity, session in kept.items():
        own = [turn for turn in turns if turn["session_id"] == identity]
        assert [turn["sequence_num"] for turn in own] == list(range(1, len(own) + 1))
        assert own == sorted(own, key=lambda turn: turn["timestamp"])
        assert session["started_at"] < own[0]["timestamp"]
        assert session["ended_at"] == session["last_active_at"] == own[-1]["timestamp"]
        assert session["observation_count"] == len(own)
        assert session["message_count"] == len([turn for turn in own if turn["trigger"] == "user"])
    assert run(workspace, command="status").returncode == 0


def test_second_import_adds_nothing(logs: Recorded, workspace: Path, run: Run) -> None:
    assert run(workspace, logs.projects).returncode == 0
    before = observations(workspace), sessions(workspace)
    again = run(workspace, logs.projects, logs.log("everyday"), "--json")
    assert again.returncode == 0
    assert (facts(again)["turns"], facts(again)["sessions"]) == (0, 8)
    assert facts(again)["already_imported"] > 27
    assert (observations(workspace), sessions(workspace)) == before


def test_forgotten_turn_is_not_reimported(logs: Recorded, workspace: Path, run: Run) -> None:
    assert run(workspace, logs.log("everyday")).returncode == 0
    forgotten = run(workspace, "--turn", "5", "--yes", command="memory forget")
    assert forgotten.returncode == 0, forgotten.stderr
    assert facts(run(workspace, logs.projects, "--json"))["turns"] == 19
    assert not any("prefer tea" in turn["user_message"] for turn in observations(workspace))


@pytest.mark.parametrize("name", ["everyday", "troubled", "delegating", "commands"])
def test_import_of_grown_log_adds_new_turns(logs: Recorded, workspace: Path, name: str, run: Run) -> None:
    log = logs.log(name)
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    added = 0
    for share in (0.3, 0.5, 0.51, 0.8, 1.0):
        end = int(len(lines) * share)
        # The last line is half written, as during a session.
        log.write_text("".join(lines[:end]) + "".join(lines[end : end + 1])[:40], encoding="utf-8")
        done = run(workspace, log, "--json")
        assert done.returncode == 0, done.stderr
        added += facts(done)["turns"]
    at_once = workspace.with_name("at-once")
    assert run(at_once, log).returncode == 0
    assert observations(workspace) == observations(at_once)
    assert sessions(workspace) == sessions(at_once)
    assert added == len(observations(at_once))


def test_single_log_imports_session_with_subagents(logs: Recorded, workspace: Path, run: Run) -> None:
    log = logs.log("delegating")
    (*_, agent) = (log.parent / log.stem / "subagents").glob("*.jsonl")
    for path in (log, agent):
        found = workspace / path.stem
        assert facts(run(found, path, "--json"))["files"] == 4
        assert [turn["tool_calls_json"].count('"agent_id"') for turn in observations(found)] == [0, 1, 1, 1, 0]


def test_forked_session_imports_only_new_turns(logs: Recorded, workspace: Path, run: Run) -> None:
    assert run(workspace, logs.log("troubled")).returncode == 0
    done = facts(run(workspace, logs.log("forked"), "--json"))
    assert (done["turns"], done["already_imported"]) == (1, 7)
    assert observations(workspace)[-1]["user_message"] == "Hello, forked"
    assert observations(workspace)[-1]["session_id"] == logs.ids["forked"]


async def test_sprite_curates_import_but_not_own_logs(model: OfflineModel, logs: Recorded, workspace: Path) -> None:
    """The sprite's own conversation is a separate session, and its logs are never imported."""
    assert (await import_beside(workspace, logs.log("everyday"))).returncode == 0
    preference = 'PREFERENCE [t5]: Ada prefers tea | "I prefer tea"\n'
    line = 'USER_MD_EDIT:\nADD Preferences | [t5] - Ada prefers tea. | "I prefer tea"\n'
    model.script.curator({"raw_text": preference + line})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await eventually(lambda: bool(curations(workspace)), "the import is not curated")
        await eventually(lambda: learnings(workspace) == ["Ada prefers tea"], "nothing is learned")
        # No client proved that a person typed it.
        (learned,) = memory(workspace, "SELECT type, origin FROM learnings")
        assert learned == {"type": "FACT", "origin": "claude-code"}
        assert "tea" not in memory_file(workspace, "user.md")
        found = await client.ask("memory", {"op": "search", "query": "who prefers tea"})
        assert any("tea" in hit["text"] for hit in found["payload"]["hits"]), found
        assert (await client.mission("Hello"))["event"] == "complete"
        # Copied during the session, because the sprite deletes its logs afterwards.
        elsewhere = workspace.with_name("copied")
        own = workspace / ".os/run/claude/projects"
        shutil.copytree(own, elsewhere)
    before = observations(workspace)
    assert {turn["processed"] for turn in before} == {0, 1} or len(curations(workspace)) > 1
    assert before[-1]["session_id"] not in logs.ids.values()
    assert before[-1]["user_message"] == "Hello"
    shutil.copytree(elsewhere, own)
    for folder in (own, elsewhere):
        done = await import_beside(workspace, folder, "--json")
        assert done.returncode == 0
        assert (facts(done)["turns"], len(facts(done)["own_sessions"])) == (0, 1)
    assert observations(workspace) == before


async def test_import_beside_running_sprite_adds_turns_once(
    model: OfflineModel, logs: Recorded, workspace: Path
) -> None:
    """The running sprite writes the turns as an import without it does."""
    log = logs.log("everyday")
    async with running_sprite(workspace, model.url):
        done = await import_beside(workspace, log, "--json")
        assert done.returncode == 0, done.stderr
        assert facts(done)["turns"] == 8
        again = await import_beside(workspace, log, "--json")
        assert (again.returncode, facts(again)["turns"], facts(again)["already_imported"]) == (0, 0, 8)
    assert facts(await import_beside(workspace, log, "--json"))["turns"] == 0
    at_once = workspace.with_name("at-once")
    assert (await import_beside(at_once, log)).returncode == 0
    kept = [{**turn, "processed": 0} for turn in observations(workspace)]
    assert kept == observations(at_once)


async def test_unresponsive_sprite_is_named_in_error(model: OfflineModel, logs: Recorded, workspace: Path) -> None:
    async with running_sprite(workspace, model.url):
        Settings(workspace).address_file.unlink()
        done = await import_beside(workspace, logs.log("everyday"))
        assert done.returncode == 2
        assert f"process {os.getpid()}" in done.stderr
        assert str(workspace) in done.stderr
    assert observations(workspace) == []


# --- kills ---


async def test_import_after_kill_completes_first_run(many: Path, workspace: Path) -> None:
    at_once = workspace.with_name("at-once")
    assert facts(await import_beside(at_once, many, "--json"))["turns"] == 600
    log = workspace / ".os/memory/transcript.db"
    while not 0 < _count(log) < 600:
        # On a busy machine the import may finish before the kill.
        shutil.rmtree(workspace / ".os", ignore_errors=True)
        process = await started(workspace, "import", str(many))
        while process.returncode is None and not _count(log):  # noqa: ASYNC110 - another process cannot set an event
            await asyncio.sleep(0.005)
        process.kill()
        await process.communicate()
    assert (await import_beside(workspace, many)).returncode == 0
    assert observations(workspace) == observations(at_once)
    assert sessions(workspace) == sessions(at_once)
    assert (await command(workspace, "memory", "search", "parallel"))[0] == 0


def _count(log: Path) -> int:
    try:
        return int(rows(log, "SELECT count(*) AS n FROM observations")[0]["n"])
    except Exception:  # noqa: BLE001 - the database is being created
        return 0


# --- bad input ---


def test_damaged_lines_are_reported_and_skipped(logs: Recorded, workspace: Path, run: Run) -> None:
    log = logs.log("everyday")
    lines = log.read_text(encoding="utf-8").splitlines()
    first = next(n for n, line in enumerate(lines) if "run `ls /nowhere`" in line and '"promptSource"' in line)
    lines[first] = lines[first][:100]
    lines.insert(3, "not a line of a log")
    lines.append('{"type":"user","uuid":"x","sessionId":"s","timestamp":"never"}')
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = run(workspace, log)
    assert done.returncode == 0
    for number, problem in ((4, "not JSON"), (first + 2, "not JSON"), (len(lines), "wrong shape")):
        assert f"skipped: {log}:{number}: {problem}" in done.stderr
    assert len(observations(workspace)) == 8
    assert observations(workspace)[2]["trigger"] == "task"


def test_many_damaged_lines_are_summarized(logs: Recorded, workspace: Path, run: Run) -> None:
    with logs.log("everyday").open("a") as stream:
        stream.write("damage\n" * 1000)
    done = run(workspace, logs.log("everyday"))
    assert done.returncode == 0
    assert done.stderr.count("skipped: ") == 51
    assert "and 950 more damaged lines" in done.stderr


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Return a folder of files that are no session logs."""
    folder = tmp_path / "odd"
    (folder / "inside").mkdir(parents=True)
    (folder / "prose.jsonl").write_text("Dear diary,\n\ntoday I wrote no JSON.\n")
    (folder / "other.jsonl").write_text('{"prompt": "a", "completion": "b"}\n' * 10)
    (folder / "history.jsonl").write_text('{"display": "hello", "timestamp": 1, "sessionId": "s"}\n')
    (folder / "binary.jsonl").write_bytes(os.urandom(200_000))
    (folder / "one-line.jsonl").write_bytes(b"x" * 5_000_000)
    (folder / "circle.jsonl").symlink_to(folder / "circle.jsonl")
    (folder / "gone.jsonl").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "inside/up").symlink_to(folder)
    return folder


ODD = {"prose", "other", "history", "binary", "one-line", "circle", "gone", "pipe"}


def test_unknown_files_are_refused_others_imported(logs: Recorded, odd: Path, workspace: Path, run: Run) -> None:
    shutil.copy(logs.log("everyday"), odd / "inside/a-copy.jsonl")
    (odd / "empty.jsonl").touch()
    done = run(workspace, odd, workspace / "not-there.jsonl", "--json")
    assert done.returncode == 1
    refused = facts(done)["refused"]
    assert {Path(refusal["path"]).stem for refusal in refused} == ODD | {"not-there"}
    assert all(refusal["reason"] for refusal in refused)
    assert (facts(done)["files"], facts(done)["turns"]) == (2, 8)
    words = run(workspace, odd).stderr
    assert f"refused: {odd / 'prose.jsonl'}: is not a session log of Claude Code" in words
    assert f"refused: {odd / 'pipe.jsonl'}: is not a file" in words
    assert f"refused: {odd / 'circle.jsonl'}: cannot be read: Too many levels of symbolic links" in words


def test_unreadable_input_creates_no_workspace(odd: Path, workspace: Path, run: Run) -> None:
    for paths in ([odd], [odd / "prose.jsonl"], [workspace / "nothing"], [workspace], [Path("/proc/self/mem")]):
        done = run(workspace, *paths)
        assert done.returncode == 2, paths
        assert "refused: " in done.stderr
        assert "Traceback" not in done.stderr
    assert not (workspace / ".os").exists()


def test_empty_log_imports_without_turns(tmp_path: Path, workspace: Path, run: Run) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "summary.jsonl").write_text('{"type":"summary","summary":"About tea","leafUuid":"x"}\n')
    done = run(workspace, tmp_path / "empty.jsonl", tmp_path / "summary.jsonl", "--json")
    assert done.returncode == 0
    assert (facts(done)["files"], facts(done)["turns"]) == (2, 0)


def test_symlinked_folder_is_imported_once(logs: Recorded, workspace: Path, run: Run) -> None:
    (logs.projects / "again").symlink_to(logs.log("everyday").parent)
    (logs.projects / "up").symlink_to(logs.projects)
    done = facts(run(workspace, logs.projects, "--json"))
    assert (done["files"], done["turns"]) == (11, 27)


def test_large_log_is_read_as_stream(recorded: Recorded, tmp_path: Path, workspace: Path) -> None:
    folder = tmp_path / "large"
    size = write_many(recorded.log("everyday"), folder, sessions=1, turns=2)
    (log,) = folder.iterdir()
    noise = json.dumps({"type": "api-request-shape", "sessionId": "s", "shape": "x" * 1_000_000}) + "\n"
    with log.open("a") as stream:
        for _ in range((60_000_000 - size) // len(noise) + 1):
            stream.write(noise)
    program = (
        "import re, sys; from sprite.__main__ import main; code = main(sys.argv[1:]); "
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "import", "--workspace", workspace, log],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(observations(workspace)) == 2
    assert int(done.stderr.split()[-1]) < 100_000
