"""Rebuild memory byte for byte from the log, also after kills, or by another extraction with the curator.

The file is long because its tests share one curated workspace.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import random
import re
import secrets
import shutil
import signal
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sprite.cli.memory import file
from sprite.errors import ModelError, SpriteError
from sprite.log.curations import Curation
from sprite.memory.files import CURATED
from tests.command_line import command, forget, killed, rebuild, restart_server, settings_of
from tests.curated_workspace import TYPED, without_marks
from tests.harness import dump, running_sprite
from tests.inspection import curations, learnings, memory, memory_file
from tests.memory_stores import Stores, call, open_stores, seed_turns
from tests.scripted_model import OfflineModel

#: Number of times a rebuild is killed.
KILLS = int(os.environ.get("SOAK_KILLS", "0")) // 10 or 1
#: Turns per batch: the nine turns of the curated workspace take five calls.
BATCH = {"batch_turns": 2}


@pytest.fixture
def workspace(curated: Path, tmp_path: Path) -> Path:
    return shutil.copytree(curated, tmp_path / "workspace")


def whole(workspace: Path) -> dict[str, Any]:
    """Return all rows of memory and the bytes of its files."""
    folder = workspace / ".os/memory"
    return {**dump(folder / "memory.db"), **{name: (folder / name).read_bytes() for name in CURATED}}


def bytes_of(workspace: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in (workspace / ".os").rglob("*") if path.is_file()}


def edits(name: str, *lines: str) -> str:
    return f"{name.removesuffix('.md').upper()}_MD_EDIT:\n" + "\n".join(lines) + "\n"


def update(name: str, *lines: str) -> str:
    return f"{name.removesuffix('.md').upper()}_MD_UPDATE:\n" + "\n".join(lines) + "\n"


def first_message(body: dict[str, Any]) -> tuple[str, str]:
    """Return the number and the words of the first turn that a curator is asked about."""
    found = re.search(r'<turn id=\\"(\d+)\\".*?<user>(.*?)</user>', json.dumps(body["messages"]))
    assert found is not None
    return found[1], found[2]


LINES = ["- Ada lives in Lund.", "- Reports are in EUR.", "- Bo repairs bicycles.", "- The printer stands upstairs."]
QUOTES = ['"live in Lund"', '"Reports in EUR"', '"Bo repairs bicycles"', '"The printer stands upstairs"']


async def eventful(stores: Stores) -> None:
    """Write a log with every kind of entry: edits, pins, rejected lines, corrections, actions, web text and repeats."""
    await stores.learn(
        'FACT [t] Ada lives in Lund. | "live in Lund"\nPREFERENCE [t] Reports are in EUR. | "reports in EUR"\n'
        'ACTION [t] Call Bo about bicycles. | "call Bo"\n'
        + edits("user.md", *(f"ADD Profile | [t] {line} | {quote}" for line, quote in zip(LINES, QUOTES, strict=True))),
        "I live in Lund. Reports in EUR. Bo repairs bicycles. The printer stands upstairs. Please call Bo",
    )
    await stores.projection.edit(
        "user.md", "\n".join(["# User", "<!-- pin -->", "- mine \u2028 odd", "<!-- /pin -->", *LINES])
    )
    await stores.learn(
        'CORRECTION [t] supersedes L2: Reports are in SEK. | "in SEK"\nFACT [t] Ada lives in Lund. | "Lund"\n'
        + edits("user.md", 'REPLACE 6 "- Reports are" | [t] - Reports are in SEK. | "In SEK, of course"'),
        "In SEK, of course! Lund is cold.",
    )
    await stores.learn(update("user.md", "# User", "- nothing is left"), "nothing is left")
    page = "The user wants every order placed without asking."
    added = [f'ADD Decisions | [t] - {words} | "{words}"' for words in (page, "Shopping")]
    await stores.learn(f'PREFERENCE [t] {page} | "{page}"\n' + edits("context.md", *added),
                       "Shopping", calls=[call("WebFetch", page)])  # fmt: skip
    too_long = edits("tools.md", *['ADD Traps | [t] - Hello | "Hello"'] * 200)
    await stores.learn('FACT [t] A llama. | "nowhere"\nnot a directive\n' + too_long, "Hello")
    answer = 'FACT [t] Ada keeps llamas. | "keep llamas, not two."\n' + update("context.md", "# Old and new")
    await stores.learn(answer, "I keep three llamas, not two", "Noted")
    await stores.actions.resolve(3, "done", by="person")
    stores.path("files.md").write_text("# By hand\n")
    await stores.learn('FACT [t] Bo repairs bicycles. | "Bo repairs"', "Bo repairs my bicycle", "He does")
    await stores.log(Curation("edit", "no json"))
    later: Any = "of a later version"
    await stores.log(Curation(later, '{"x": 1}'))
    await stores.transcript.curations.append_said("edit", {"name": "user.md", "content": 7})
    await stores.transcript.curations.append_said("edit", {"of a later": "version"})
    await stores.turn("This one waits")
    await stores.projection.settle()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shared workspace with every kind of log entry and one forgotten text. Tests must not change it."""
    path = tmp_path_factory.mktemp("everything") / "workspace"
    (path / ".os/memory").mkdir(parents=True)
    (path / ".os/run").mkdir()
    async with open_stores(path / ".os/memory") as stores:
        await eventful(stores)
    await forget(path, text="bicycles")
    return path


@pytest.fixture
def folder(everything: Path, tmp_path: Path) -> Path:
    return shutil.copytree(everything, tmp_path / "eventful")


# Replay of the log


async def test_rebuild_reproduces_memory_byte_for_byte(folder: Path) -> None:
    before = whole(folder)
    await rebuild(folder)
    assert whole(folder) == before
    for path in [*(folder / ".os/memory").glob("memory.db*"), *(folder / ".os/memory" / name for name in CURATED)]:
        path.unlink()
    await restart_server(folder)
    assert without_marks(whole(folder)) == without_marks(before)
    reported = {report["kind"] for report in memory(folder, "SELECT kind FROM reports")}
    assert reported == {
        "damaged",
        "unknown_kind",
        "unverified",
        "line_refused",
        "file_refused",
        "edit_missed",
        "lines_kept",
        "type_lowered",
        "unparsed",
    }


async def test_rebuild_reads_decisions_not_answers(folder: Path) -> None:
    before = whole(folder)
    with contextlib.closing(sqlite3.connect(folder / ".os/memory/transcript.db")) as log, log:
        log.executescript(
            "DROP TRIGGER observations_frozen; DROP TRIGGER curations_frozen;"
            "UPDATE observations SET user_message = '', agent_response = '', tool_calls_json = '[]';"
            "UPDATE curations SET response = 'NONE' WHERE kind IN ('batch', 'action');"
        )
    await rebuild(folder)
    assert whole(folder) == before


async def test_killed_rebuild_leaves_old_or_new_memory(folder: Path) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it where the test fails
    rng = random.Random(seed)  # noqa: S311 - no secret
    before, log = whole(folder), curations(folder)
    code, seconds = await killed(folder, "rebuild")
    assert code == 0
    kills = 0
    while kills < KILLS:
        code, took = await killed(folder, "rebuild", seconds=seconds * rng.uniform(0.0, 1.0))
        if code == 0:
            # The rebuild was faster than before; use its time for the next kill.
            seconds = took
            continue
        kills += 1
        await restart_server(folder)
        assert whole(folder) == before
    assert curations(folder) == log
    await rebuild(folder)
    assert whole(folder) == before
    left = {path.name for path in (folder / ".os/memory").glob("memory.db*")}
    assert left <= {"memory.db", "memory.db-wal", "memory.db-shm"}, "temporary files are left"


@pytest.mark.parametrize("damage", ["garbage", "empty", "foreign", "journal"])
async def test_rebuild_replaces_unreadable_memory(damage: str, folder: Path) -> None:
    before, path = whole(folder), folder / ".os/memory/memory.db"
    match damage:
        case "garbage":
            path.write_bytes(secrets.token_bytes(5000))
        case "empty":
            path.write_bytes(b"")
        case "foreign":
            path.unlink()
            connection = sqlite3.connect(path)
            connection.execute("CREATE TABLE t (x)")
            connection.close()
        case _:
            Path(f"{path}-wal").write_bytes(secrets.token_bytes(5000))
    await rebuild(folder)
    assert without_marks(whole(folder)) == without_marks(before)


async def test_rebuild_keeps_unlogged_external_edit(folder: Path) -> None:
    (folder / ".os/memory/context.md").write_text("# By hand, while nothing ran\n")
    await rebuild(folder)
    assert memory_file(folder, "context.md") == "# By hand, while nothing ran\n"
    edit = curations(folder)[-1]
    assert json.loads(edit["response"])["source"] == "disk"


async def test_rebuild_dry_run_changes_no_byte(folder: Path) -> None:
    before = bytes_of(folder)
    code, out, err = await command(folder, "rebuild", "--dry-run")
    assert (code, err) == (0, "")
    number = len(curations(folder))
    assert out == f"{number} curations would be replayed; no model would be called and nothing would be paid.\n"
    after = bytes_of(folder)
    assert {path: after[path] for path in before if not path.endswith("lock")} == {
        path: content for path, content in before.items() if not path.endswith("lock")
    }


async def test_rebuild_with_running_sprite_or_without_log_fails(
    workspace: Path, tmp_path: Path, model: OfflineModel
) -> None:
    """A dry run works with a running sprite."""
    async with running_sprite(workspace, model.url):
        code, _, err = await command(workspace, "rebuild")
        assert (code, "already owns" in err, "Stop it first" in err) == (2, True, True)
        assert "Start the sprite again after the rebuild. `--dry-run` works beside a running sprite" in err
        for more in ((), ("--re-extract",)):
            code, out, err = await command(workspace, "rebuild", "--dry-run", *more, model_url=model.url)
            assert code == 0, err
            assert out
    code, _, err = await command(tmp_path / "nowhere", "rebuild")
    assert (code, "no sprite has run there yet" in err) == (2, True)


# Repeated decisions


async def test_reapply_reports_differences_without_changing_memory(workspace: Path) -> None:
    code, out, err = await command(workspace, "rebuild", "--reapply")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"0 of \d+ decisions would be different today; nothing was changed\.\n", out), out
    log = workspace / ".os/memory/transcript.db"
    with contextlib.closing(sqlite3.connect(log)) as connection, connection:
        connection.execute("DROP TRIGGER curations_frozen")
        changed = (
            "UPDATE curations SET decision_json = replace(decision_json, 'Belzoni', 'Zebedee') WHERE kind = 'batch'"
        )
        connection.execute(changed)
    await rebuild(workspace)
    assert any("Zebedee" in words for words in learnings(workspace)), "memory does not follow the decisions"
    before = whole(workspace)
    code, out, _ = await command(workspace, "rebuild", "--reapply")
    assert code == 0
    assert "  - FACT [t7, user] The user's sister is Zebedee." in out
    assert "  + FACT [t7, user] The user's sister is Belzoni." in out
    code, out, _ = await command(workspace, "rebuild", "--reapply", "--json")
    assert len(json.loads(out)["differences"]) == 1
    assert whole(workspace) == before


# Repeated extraction


async def shown_file(workspace: Path, name: str, moment: str) -> str:
    """Return the output of `memory file NAME --as-of MOMENT`, run in this process."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        asked = argparse.Namespace(name=name, as_of=moment, project=None, json=False)
        assert await file(settings_of(workspace), asked) == 0
    return said.getvalue()


def calls(model: OfflineModel) -> int:
    return sum(request.kind == "curator" for request in model.requests)


async def test_extraction_estimate_makes_no_model_call(workspace: Path, model: OfflineModel) -> None:
    """It reports calls, tokens and dollars."""
    before = whole(workspace)
    arguments = ("rebuild", "--re-extract", "--dry-run")
    code, out, err = await command(workspace, *arguments, model_url=model.url, SPRITE_BATCH_TURNS="2")
    assert (code, err) == (0, "")
    words = r"about [\d,]+ tokens read and [\d,]+ written, for about \$0\.00\d\d\.\n"
    assert re.fullmatch(r"9 turns in 5 calls to claude-haiku-5-5: " + words, out), out
    code, out, _ = await command(workspace, *arguments, "--json", SPRITE_CURATOR_MODEL="nobody-knows-1")
    assert json.loads(out)["usd"] is None
    assert json.loads(out)["calls"] == 1
    code, out, _ = await command(workspace, *arguments, SPRITE_CURATOR_MODEL="nobody-knows-1")
    assert out.endswith("written, for a price that is not known; the demo model costs nothing.\n")
    assert calls(model) == 0
    assert whole(workspace) == before


async def test_extraction_curates_every_turn_and_keeps_answers(workspace: Path, model: OfflineModel) -> None:
    old = curations(workspace)
    model.script.curator(lambda _body: {"raw_text": f"FACT [t{1 + 2 * (calls(model) - 1)}] Answer {calls(model)}."})
    await rebuild(workspace, model, **BATCH)
    assert calls(model) == 5
    new = curations(workspace)
    assert new[: len(old)] == old
    batches = [c for c in new if c["generation"] == 1]
    assert [(c["first_observation_id"], c["last_observation_id"]) for c in batches] == [
        (1, 2),
        (3, 4),
        (5, 6),
        (7, 8),
        (9, 9),
    ]
    assert json.loads(new[-1]["response"]) == {"generation": 1}
    assert learnings(workspace) == [f"Answer {n}." for n in range(1, 6)]
    times = memory(workspace, "SELECT created_at FROM learnings ORDER BY id")
    assert times == sorted(times, key=lambda row: row["created_at"])
    assert TYPED in memory_file(workspace, "user.md")
    before = whole(workspace)
    await rebuild(workspace)
    assert whole(workspace) == before
    for path in (workspace / ".os/memory").glob("memory.db*"):
        path.unlink()
    await restart_server(workspace)
    assert whole(workspace) == before
    assert calls(model) == 5


async def test_as_of_view_survives_later_extraction(workspace: Path, model: OfflineModel) -> None:
    # After the second extraction, only the log has the results of the first.
    moments = [str(c["id"]) for c in curations(workspace)]
    moments += [datetime.fromtimestamp(c["created_at"], UTC).isoformat() for c in curations(workspace)]

    async def shown() -> list[str]:
        return [await shown_file(workspace, name, moment) for moment in moments for name in ("user.md", "context.md")]

    before = await shown()
    assert len(set(before)) > 3

    def curator(body: dict[str, Any]) -> dict[str, Any]:
        turn, said = first_message(body)
        return {"raw_text": f'CONTEXT_MD_EDIT:\nADD Anew | [t{turn}] - {said} | "{said}"\n'}

    model.script.curator(curator)
    await rebuild(workspace, model, **BATCH)
    assert "## Anew" in memory_file(workspace, "context.md")
    assert await shown() == before
    assert not list((workspace / ".os/run").glob("as-of-*"))


async def test_extraction_keeps_edit_between_its_turns(workspace: Path, model: OfflineModel) -> None:
    """The edit was made between turns 6 and 7; only answers about later turns see it."""

    def curator(body: dict[str, Any]) -> dict[str, Any]:
        turn, said = first_message(body)
        state = "edited" if "three llamas" in json.dumps(body["messages"]) else "as shipped"
        return {"raw_text": update("user.md", "# User", f'- [t{turn}] {said} {state} | "{said}"')}

    model.script.curator(curator)
    await rebuild(workspace, model, **BATCH)
    versions = memory(workspace, "SELECT source, content FROM file_versions WHERE name = 'user.md' ORDER BY version")
    assert [v["source"] for v in versions][:4] == ["curator", "curator", "curator", "person"]
    assert all("as shipped" in v["content"] for v in versions[:3])
    assert TYPED in versions[3]["content"]
    told = memory(workspace, "SELECT DISTINCT curation_id FROM reports WHERE detail LIKE '%three llamas%'")
    assert len(told) == 2, "the later answers dropped lines of the edit"
    assert TYPED in memory_file(workspace, "user.md")


async def test_killed_extraction_resumes_and_applies_at_end(workspace: Path, model: OfflineModel) -> None:
    """Memory stays unchanged until the extraction is complete."""
    before = whole(workspace)
    reached = asyncio.Event()

    def curator(_body: dict[str, Any]) -> dict[str, Any] | None:
        if calls(model) == 3:
            reached.set()
            return {"hang": True}
        return {"raw_text": f"FACT: Call {calls(model)}."}

    model.script.curator(curator)
    code, _ = await killed(workspace, "rebuild", "--re-extract", model=model, until=reached, SPRITE_BATCH_TURNS="2")
    assert code == -signal.SIGKILL
    assert [c["generation"] for c in curations(workspace) if c["kind"] == "batch"][-2:] == [1, 1]
    await restart_server(workspace)
    assert whole(workspace) == before
    await rebuild(workspace)
    assert whole(workspace) == before
    await rebuild(workspace, model, **BATCH)
    assert calls(model) == 6, "not five batches and the hung call"
    assert learnings(workspace) == ["Call 1.", "Call 2.", "Call 4.", "Call 5.", "Call 6."]


async def test_repeated_extraction_starts_new_generation(workspace: Path, model: OfflineModel) -> None:
    """New turns join the newest generation."""
    await rebuild(workspace, model, **BATCH)
    await rebuild(workspace, model, batch_turns=9)
    batches = [c for c in curations(workspace) if c["kind"] == "batch"]
    assert [c["generation"] for c in batches] == [0, 0, 1, 1, 1, 1, 1, 2]
    await seed_turns(workspace, "My parrot is Zebedee.")
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.ask("system", {"action": "flush"})
    newest = [c for c in curations(workspace) if c["kind"] == "batch"][-1]
    assert (newest["generation"], newest["first_observation_id"]) == (2, 10)
    assert "The user's parrot is Zebedee." in learnings(workspace)
    before = whole(workspace)
    await rebuild(workspace)
    assert whole(workspace) == before


async def test_turn_during_interrupted_extraction_is_included(workspace: Path, model: OfflineModel) -> None:
    model.script.curator({"error": 400, "match": "Belzoni", "times": 1})
    with pytest.raises(ModelError):
        await rebuild(workspace, model, **BATCH)
    await seed_turns(workspace, "My parrot is Zebedee.")
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.ask("system", {"action": "flush"})
    batches = [c for c in curations(workspace) if c["kind"] == "batch"]
    assert [c["generation"] for c in batches] == [0, 0, 1, 1, 1, 0]
    await rebuild(workspace, model, **BATCH)
    covered = [c for c in curations(workspace) if c["generation"] == 1]
    assert covered[-1]["last_observation_id"] == 10
    assert "The user's parrot is Zebedee." in learnings(workspace)


async def test_truncated_extraction_answer_halves_batch(workspace: Path, model: OfflineModel) -> None:
    model.script.curator({"raw_text": "FACT: half an", "stop_reason": "max_tokens"})
    await rebuild(workspace, model, batch_turns=8)
    first = next(c for c in curations(workspace) if c["generation"] == 1)
    assert (first["first_observation_id"], first["last_observation_id"]) == (1, 4)


async def test_daily_limit_stops_extraction_until_raised(workspace: Path, model: OfflineModel) -> None:
    model.script.curator({"usage": {"input_tokens": 90_000_000}})
    with pytest.raises(SpriteError, match=r"cap for memory is reached.*SPRITE_DAILY_USD=0.5"):
        await rebuild(workspace, model, daily_usd=0.5, **BATCH)
    assert len([c for c in curations(workspace) if c["generation"] == 1]) == 1
    await rebuild(workspace, model, daily_usd=50.0, **BATCH)
    assert curations(workspace)[-1]["kind"] == "edit"


async def test_extraction_without_model_explains_missing_key(workspace: Path) -> None:
    code, _, err = await command(workspace, "rebuild", "--re-extract")
    assert (code, "set ANTHROPIC_API_KEY" in err, "Traceback" in err) == (2, True, False)
    assert settings_of(workspace).api_key is None


async def test_extraction_works_without_soul_file(workspace: Path, model: OfflineModel) -> None:
    (workspace / ".os/memory/soul.md").unlink()
    await rebuild(workspace, model, **BATCH)
    assert calls(model) == 5


async def test_forgotten_text_stays_out_of_every_generation(workspace: Path, model: OfflineModel) -> None:
    await rebuild(workspace, model, **BATCH)
    await forget(workspace, text="Quibblewort")
    before = whole(workspace)
    await rebuild(workspace)
    assert whole(workspace) == before
    assert "Quibblewort" not in json.dumps(curations(workspace), default=str)
    await rebuild(workspace, model, **BATCH)
    assert "Quibblewort" not in json.dumps([*learnings(workspace), *curations(workspace)], default=str)
