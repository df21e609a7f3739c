"""The command line for people and programs: status, memory, restore, doctor, help and exit codes.

The file is long because its tests share one curated workspace.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sprite.__main__ import run as sprite_command
from sprite.log.transcript import ImportedTurn, NewObservation
from sprite.memory.files import template
from sprite.memory.folders import note_error
from sprite.protocol.frames import json_schema
from tests.command_line import command
from tests.curated_workspace import TYPED
from tests.harness import PATIENCE, ROOT, running_sprite, sprite_process
from tests.inspection import curations, memory_file
from tests.memory_stores import open_stores, seed_turns
from tests.scripted_model import OfflineModel

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def workspace(curated: Path, tmp_path: Path) -> Path:
    return shutil.copytree(curated, tmp_path / "workspace")


@pytest.fixture
def run(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command on the workspace and return (exit code, stdout, stderr)."""

    def run(*arguments: str, at: Path = workspace) -> tuple[int, str, str]:
        given = list(arguments)
        if "--help" not in given:
            place = given.index("--") if "--" in given else len(given)
            given[place:place] = ["--workspace", str(at)]
        try:
            code = sprite_command(given)
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def as_json(result: tuple[int, str, str]) -> Any:
    code, out, err = result
    assert (code, err) == (0, "")
    return json.loads(out)


COMMANDS = [
    [], ["serve"], ["status"], ["memory"], ["rebuild"], ["import"], ["mcp"], ["doctor"], ["schema"],
    *(["memory", name] for name in ("search", "file", "history", "diff", "learnings", "restore", "forget")),
]  # fmt: skip


def test_schema_needs_no_workspace(capsys: pytest.CaptureFixture[str]) -> None:
    assert sprite_command(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_command_prints_help(name: list[str], run: Run) -> None:
    code, out, err = run(*name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: python -m sprite {' '.join(name)}".rstrip())
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        [],
        ["memory"],
        ["memory", "nonsense"],
        ["memory", "diff", "user.md", "x", "1"],
        ["memory", "forget"],
        ["memory", "search", "x", "--limit", "0"],
    ],
    ids=" ".join,
)
def test_invalid_arguments_print_usage(arguments: list[str], run: Run) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["memory", "search", "x"],
        ["memory", "file", "user.md"],
        ["memory", "history", "user.md"],
        ["memory", "diff", "user.md", "0", "1"],
        ["memory", "learnings"],
        ["memory", "restore", "user.md", "1"],
        ["memory", "forget", "--turn", "1"],
        ["rebuild"],
        ["rebuild", "--re-extract", "--dry-run"],
    ],
    ids=" ".join,
)
def test_commands_report_missing_workspace(arguments: list[str], run: Run, tmp_path: Path) -> None:
    code, out, err = run(*arguments, at=tmp_path / "nowhere")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"sprite: There is no .*: no sprite has run there yet\.\n", err)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["memory", "file", "evil.md"], "There is no memory file 'evil.md'"),
        (["memory", "history", "../x"], "There is no memory file"),
        (["memory", "diff", "evil.md", "0", "0"], "There is no memory file"),
        (["memory", "diff", "user.md", "0", "99"], "user.md has no version 99."),
        (["memory", "diff", "user.md", "0", str(2**70)], "user.md has no version "),
        (["memory", "diff", "user.md", "-1", "0"], "user.md has no version -1."),
        (["memory", "restore", "evil.md", "0"], "There is no memory file"),
        (["memory", "restore", "user.md", "99"], "user.md has no version 99."),
        (["memory", "restore", "user.md", str(2**70)], "user.md has no version "),
        (["memory", "restore", "soul.md", "0"], "'soul.md' cannot be edited"),
        (["memory", "file", "user.md", "--as-of", "yesterday"], "'yesterday' is neither a time"),
        (["memory", "forget", "--turn", str(2**70)], "There is no such turn."),
        (["memory", "forget", "--turn", "-1"], "There is no such turn."),
        (["memory", "forget", "--learning", str(2**70)], "There is no learning "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_missing_target_is_reported(arguments: list[str], words: str, run: Run) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


# status


def test_status_reports_healthy_memory(run: Run, workspace: Path) -> None:
    code, out, err = run("status")
    assert (code, err) == (0, "")
    first, *lines = out.splitlines()
    assert first == f"Memory of {workspace}: well"
    said = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert said["sprite"] == "not running"
    assert said["sessions"] == "2"
    assert said["turns"] == "9, all learned from"
    assert said["learnings"] == "5, 1 open to-do"
    assert said["curations"].startswith("2, the last 2")
    assert said["user.md"].endswith("of 200 lines")
    assert "█" in said["user.md"]
    assert re.fullmatch(r"memory \$0\.\d{4} today, \$0\.\d{4} in all, \$0\.\d{4} per 100 turns", said["spend"])
    assert said["last"] == "error none"


def test_status_json_contains_same_facts(run: Run) -> None:
    facts = as_json(run("status", "--json"))
    wanted: dict[str, Any] = {
        "sessions": 2,
        "turns": 9,
        "waiting": 0,
        "learnings": 5,
        "unverified": 0,
        "open_actions": 1,
        "curations": 2,
        "running": None,
        "calls_of_unknown_price": 0,
        "daily_cap_usd": None,
        "refusals": [],
        "last_error": None,
    }
    assert {key: facts[key] for key in wanted} == wanted
    assert [file["name"] for file in facts["files"]] == [
        "soul.md",
        "os.md",
        "tools.md",
        "user.md",
        "files.md",
        "context.md",
    ]
    assert facts["usd_per_100_turns"] == pytest.approx(facts["spend_usd"] / 9 * 100)


def test_status_shows_errors_and_refusals(run: Run, workspace: Path) -> None:
    note_error(workspace / ".os/run", "the curator's model refused the call: 401")
    connection = sqlite3.connect(workspace / ".os/memory/memory.db")
    with connection:
        connection.execute(
            "INSERT INTO reports (curation_id, kind, detail) VALUES (1, 'x', 'user.md: it drops 3 of 8 lines')"
        )
    connection.close()
    _, out, _ = run("status")
    assert out.startswith(f"Memory of {workspace}: needs attention\n")
    assert "refused     curation 1: user.md: it drops 3 of 8 lines\n" in out
    assert "last error  the curator's model refused the call: 401\n" in out


def test_status_shows_spend_of_agent(run: Run, workspace: Path) -> None:
    before = as_json(run("status", "--json"))["agent_spend_today_usd"]
    connection = sqlite3.connect(workspace / ".os/workspace.db")
    with connection:
        connection.execute(
            "INSERT INTO missions (id, text, status, received_at, ended_at, cost_usd, estimated_usd)"
            " VALUES ('spent', 'x', 'complete', ?1, ?1, 0.25, 0.05)",
            (time.time(),),
        )
    connection.close()
    assert as_json(run("status", "--json"))["agent_spend_today_usd"] == pytest.approx(before + 0.3)
    assert f"the agent ${before + 0.3:.4f} today\n" in run("status")[1]


async def test_unpriced_call_counts_as_zero(workspace: Path, model: OfflineModel) -> None:
    """The status reports the number of such calls."""
    await seed_turns(workspace, "My parrot is Zebedee.")
    async with (
        running_sprite(workspace, model.url, SPRITE_CURATOR_MODEL="nobody-knows-1") as sprite,
        sprite.client() as client,
    ):
        await client.ask("system", {"action": "flush"})
        code, out, _ = await command(workspace, "status")
        assert code == 0
        assert f"sprite      running on 127.0.0.1:{sprite.port}" in out
        assert "and 1 call to a model whose price is not known" in out
        _, out, _ = await command(workspace, "status", "--json")
    facts = json.loads(out)
    assert facts["calls_of_unknown_price"] == 1
    assert curations(workspace)[-1]["cost_usd"] is None
    assert facts["spend_usd"] == pytest.approx(sum(c["cost_usd"] or 0 for c in curations(workspace)))


# memory


def test_search_prints_hits_and_curation_progress(run: Run) -> None:
    code, out, err = run("memory", "search", "what", "is", "my", "codename?")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    # Turn 6 asks the same question and has the answer, so it ranks first.
    assert [line.split()[0] for line in lines[:2]] == ["t6", "L2"]
    assert re.match(r"L2 +FACT .*The user's codename is Quibblewort\.$", lines[1])
    assert lines[-1].endswith(". Learnings reach up to turn 9; 0 newer turns not learned from yet.")
    found = as_json(run("memory", "search", "codename type:FACT", "--json", "--limit", "1"))
    assert (found["indexed_through"], found["waiting"]) == (9, 0)
    (hit,) = found["hits"]
    assert (hit["kind"], hit["id"], hit["turn_id"], hit["origin"]) == ("learning", 2, 2, "user")
    code, out, _ = run("memory", "search", "xylophone")
    assert (code, out.splitlines()[-1][:10]) == (1, "0 hits. Le")


ODD = ['"', "AND OR NOT", "*", "a" * 10_000, "😀", "你好", "مرحبا", "NEAR(a b)", "-- '; DROP", "\\"]


def test_odd_search_queries_raise_no_error(run: Run) -> None:
    for query in ODD:
        code, _, err = run("memory", "search", "--", query)
        assert (code in {0, 1}, err) == (True, ""), query


def test_file_is_shown_now_and_as_of(run: Run, workspace: Path) -> None:
    assert run("memory", "file", "user.md")[1] == memory_file(workspace, "user.md")
    assert run("memory", "file", "user.md", "--as-of", "0")[1] == template("user.md")
    first, edit, second = curations(workspace)
    one = run("memory", "file", "user.md", "--as-of", str(first["id"]))[1]
    assert "Quibblewort" in one
    assert "llamas" not in one
    two = run("memory", "file", "user.md", "--as-of", str(edit["id"]))[1]
    assert two == one + TYPED + "\n"
    assert "Belzoni" in run("memory", "file", "user.md", "--as-of", str(second["id"]))[1]
    moment = datetime.fromtimestamp(first["created_at"], UTC) + timedelta(milliseconds=1)
    assert run("memory", "file", "user.md", "--as-of", moment.isoformat())[1] == one
    assert run("memory", "file", "user.md", "--as-of", moment.replace(tzinfo=None).isoformat())[1] == one
    assert run("memory", "file", "user.md", "--as-of", "2001-01-01")[1] == template("user.md")
    shown = as_json(run("memory", "file", "user.md", "--as-of", str(edit["id"]), "--json"))
    assert shown == {"name": "user.md", "version": 2, "content": two}
    assert run("memory", "file", "soul.md")[1] == template("soul.md")


def test_file_history_is_listed(run: Run) -> None:
    code, out, _ = run("memory", "history", "user.md")
    assert code == 0
    assert [re.sub(r" +", " ", re.sub(r"\d{4}-\S+ \S+ UTC", "WHEN", line)) for line in out.splitlines()] == [
        "version 1 WHEN 11 lines by curator (curation 1)",
        "version 2 WHEN 15 lines by person (curation 2)",
        "version 3 WHEN 16 lines by curator (curation 3)",
    ]
    versions = as_json(run("memory", "history", "user.md", "--json"))
    assert [version["source"] for version in versions] == ["curator", "person", "curator"]
    assert run("memory", "history", "files.md")[1] == "files.md is as shipped.\n"
    assert as_json(run("memory", "history", "soul.md", "--json")) == []


def test_diff_shows_changed_lines(run: Run) -> None:
    code, out, _ = run("memory", "diff", "user.md", "1", "2")
    assert code == 0
    assert out.startswith("--- user.md version 1\n+++ user.md version 2\n")
    assert [line for line in out.splitlines() if line.startswith("+")][1:] == [
        f"+{line}" for line in TYPED.splitlines()
    ]
    assert "+- The user's name is Ada." in run("memory", "diff", "user.md", "0", "1")[1]
    assert run("memory", "diff", "user.md", "2", "2")[1] == "The two versions are the same.\n"
    assert as_json(run("memory", "diff", "user.md", "1", "2", "--json"))["diff"][0] == "--- user.md version 1"


def test_learnings_are_paginated(run: Run) -> None:
    lines = run("memory", "learnings")[1].splitlines()
    assert [line.split()[0] for line in lines] == ["L1", "L2", "L3", "L4", "L5"]
    assert re.fullmatch(r"L1 +FACT +\S+ \S+ UTC t1 \(user\)  The user's name is Ada\.  \"My name is Ada\"", lines[0])
    rows = as_json(run("memory", "learnings", "--after", "3", "--limit", "1", "--json"))
    assert [(row["id"], row["content"], row["evidence"]) for row in rows] == [
        (4, "Water the ficus.", "Remember to water the ficus")
    ]
    assert run("memory", "learnings", "--after", "99")[1] == "Nothing has been learned yet.\n"
    assert run("memory", "learnings", "--after", str(2**70))[0] == 0


def test_restore_keeps_versions_in_between(run: Run, workspace: Path) -> None:
    one = run("memory", "file", "user.md", "--as-of", "1")[1]
    code, out, err = run("memory", "restore", "user.md", "1")
    assert (code, err) == (0, "")
    assert out == "user.md is as it was in version 1; the versions in between are kept.\n"
    assert memory_file(workspace, "user.md") == one
    assert run("memory", "restore", "user.md", "0")[0] == 0
    assert memory_file(workspace, "user.md") == template("user.md")
    versions = as_json(run("memory", "history", "user.md", "--json"))
    assert [v["source"] for v in versions] == ["curator", "person", "curator", "person", "person"]
    assert run("rebuild")[0] == 0
    assert memory_file(workspace, "user.md") == template("user.md")


async def test_commands_work_beside_running_sprite(workspace: Path, model: OfflineModel) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        results = await asyncio.gather(
            command(workspace, "status"),
            command(workspace, "memory", "search", "codename"),
            command(workspace, "memory", "history", "user.md"),
            command(workspace, "memory", "learnings"),
        )
        assert [(code, err) for code, _, err in results] == [(0, "")] * 4
        code, out, err = await command(workspace, "memory", "restore", "user.md", "1")
        assert (code, err) == (0, "")
        changed = await client.until(lambda m: m["type"] == "memory_update")
        assert changed["payload"]["files"] == ["user.md"]
        assert "llamas" not in memory_file(workspace, "user.md")
        code, out, err = await command(workspace, "memory", "restore", "user.md", "99")
        assert (code, out) == (2, "")
        assert "no version 99" in err
        await sprite.kill()
    # The address file is still on disk, but no server listens there.
    assert (workspace / ".os/run/address").exists()
    assert (await command(workspace, "memory", "restore", "user.md", "2"))[0] == 0
    assert "llamas" in memory_file(workspace, "user.md")


# doctor


async def test_doctor_passes_or_names_repairs(workspace: Path, model: OfflineModel) -> None:
    code, out, err = await command(workspace, "doctor", model_url=model.url)
    assert (code, err) == (0, ""), out
    assert out.endswith("All is well.\n")
    names = [line.split()[1] for line in out.splitlines()[:-1]]
    files = ["workspace", "databases", "token"]
    assert names == [
        "python",
        "sqlite",
        "agent",
        "agent",
        *files,
        "sandbox",
        "meaning",
        "sprite",
        "agent",
        "memory",
        "curation",
        "model",
    ]

    path = workspace / ".os/memory/memory.db"
    path.write_bytes(path.read_bytes()[:5000])
    (workspace / ".os/run/token").chmod(0o644)
    code, out, _ = await command(workspace, "doctor", "--json")
    wrong = {finding["check"]: finding["detail"] for finding in json.loads(out) if not finding["ok"]}
    assert code == 1
    assert sorted(wrong) == ["databases", "model", "token"]
    assert "run rebuild" in wrong["databases"]
    assert "chmod 600" in wrong["token"]
    assert "ANTHROPIC_API_KEY" in wrong["model"]


def test_follow_needs_existing_logs(run: Run, tmp_path: Path) -> None:
    code, _, err = run("follow", str(tmp_path / "typo"))
    assert (code, f"{tmp_path / 'typo'} does not exist" in err) == (2, True)


def test_rebuild_takes_one_way_at_a_time(run: Run) -> None:
    code, _, err = run("rebuild", "--reapply", "--re-extract")
    assert (code, "not allowed with argument" in err) == (2, True)


async def test_sandbox_is_that_of_running_sprite(workspace: Path, model: OfflineModel) -> None:
    async with running_sprite(workspace, model.url, SPRITE_SANDBOX="off") as sprite, sprite.client() as client:
        await client.mission("Hello")
        _, shown, _ = await command(workspace, "status", SPRITE_SANDBOX="on")
        assert re.search(r"sandbox +none: .*SPRITE_SANDBOX is off", shown), shown
        _, shown, _ = await command(workspace, "doctor", "--without-model", SPRITE_SANDBOX="on")
        assert re.search(r"sandbox +none: .*SPRITE_SANDBOX is off.*a test here reports: bubblewrap", shown), shown


async def test_doctor_names_missing_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "claude_agent_sdk", raising=False)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not each.endswith("site-packages")])
    code, said, _ = await command(tmp_path, "doctor", "--without-model")
    assert code == 1
    assert "agent sdk" in said
    assert "pip install" in said


async def test_doctor_tries_sandbox_before_first_start(tmp_path: Path) -> None:
    _, shown, _ = await command(tmp_path, "doctor", "--without-model", SPRITE_SANDBOX="on")
    assert re.search(r"sandbox +bubblewrap: .*tried to: ", shown), shown
    assert list(tmp_path.iterdir()) == []


async def test_status_counts_learnings_without_evidence(tmp_path: Path) -> None:
    folder = tmp_path / ".os/memory"
    folder.mkdir(parents=True)
    async with open_stores(folder) as stores:
        await stores.projection.settle()
        await stores.learn('PREFERENCE [t] Ada owns nine purple llamas. | "nine purple llamas"', "Hello there")
    code, shown, _ = await command(tmp_path, "status")
    assert code == 0
    assert "unverified  1 learning without evidence in the turn named as source" in shown
    _, machine, _ = await command(tmp_path, "status", "--json")
    assert json.loads(machine)["unverified"] == 1


async def test_oversized_file_needs_attention(tmp_path: Path) -> None:
    folder = tmp_path / ".os/memory"
    folder.mkdir(parents=True)
    async with open_stores(folder) as stores:
        await stores.projection.settle()
        await stores.turn("Hello there")
    assert ": well\n" in (await command(tmp_path, "status"))[1]
    (folder / "os.md").write_text("line\n" * 201)
    shown = (await command(tmp_path, "status"))[1]
    assert ": needs attention\n" in shown
    assert "attention   os.md has 201 lines; 200 are allowed\n" in shown
    found = json.loads((await command(tmp_path, "doctor", "--without-model", "--json"))[1])
    assert "os.md has 201 lines; 200 are allowed" in [one["detail"] for one in found if not one["ok"]]


async def test_turn_waiting_for_day_needs_attention(tmp_path: Path) -> None:
    folder = tmp_path / ".os/memory"
    folder.mkdir(parents=True)
    async with open_stores(folder) as stores:
        await stores.projection.settle()
        for _ in range(4):
            await stores.turn("Hello there", at=time.time() - 86_500)
    # Four turns are too few to curate and may wait.
    assert ": well\n" in (await command(tmp_path, "status"))[1]
    async with open_stores(folder) as stores:
        await stores.turn("Hello there", at=time.time() - 86_500)
    shown = (await command(tmp_path, "status"))[1]
    assert "attention   turn 1 has waited to be learned from for more than a day\n" in shown


async def test_imported_turns_have_not_waited(tmp_path: Path) -> None:
    folder = tmp_path / ".os/memory"
    folder.mkdir(parents=True)
    then = time.time() - 86_500
    async with open_stores(folder) as stores:
        await stores.projection.settle()
        new = NewObservation("elsewhere", "Hello there", (), "Hi.", "complete")
        await stores.transcript.add_imported([ImportedTurn(f"key {number}", then, then, new) for number in range(5)])
    assert ": well\n" in (await command(tmp_path, "status"))[1]


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
async def test_nearly_full_disk_needs_attention(tmp_path: Path) -> None:
    folder = tmp_path / ".os/memory"
    folder.mkdir(parents=True)
    async with open_stores(folder) as stores:
        await stores.projection.settle()
        await stores.turn("Hello there")
    # A small disk for the workspace, visible only to this process.
    on_a_small_disk = (
        'cp -a "$1" "$1.kept" && mount -t tmpfs -o size=64m none "$1" && cp -a "$1.kept/." "$1" && '
        'exec "$2" -m sprite status --workspace "$1"'
    )
    within = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", on_a_small_disk, "sh")
    status = await asyncio.create_subprocess_exec(
        *within, str(tmp_path), sys.executable, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        shown = (await status.communicate())[0].decode()
    assert ": needs attention\n" in shown
    assert re.search(r"attention   the disk is nearly full: [0-9]+ MiB are free\n", shown)
