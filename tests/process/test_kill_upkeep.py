"""Random kills of rebuild, forget, import and re-extract: no turn is lost or processed twice."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
from pathlib import Path
from typing import Any

import pytest

from sprite.config import LEAST_TURNS
from sprite.errors import PeerError
from sprite.memory.files import CURATED
from tests.command_line import command, forget, killed, rebuild, restart_server
from tests.curated_workspace import TYPED, files_containing
from tests.harness import dump, observations, rows
from tests.inspection import curations, journal, learnings, memory_file, transcript
from tests.memory_stores import open_stores
from tests.scripted_model import OfflineModel
from tests.session_logs import Recorded, write_many

#: Number of kills, or 0 for one kill of each command.
LIVES = int(os.environ.get("SOAK_KILLS", "0")) // 4
#: Sessions in the imported logs, and turns in each.
SESSIONS, TURNS = 2, 30
LONGEST_SECONDS = {"rebuild": 0.15, "forget": 0.15, "import": 0.3, "re-extract": 0.6}


@pytest.mark.soak
async def test_memory_survives_random_kills_of_upkeep(
    curated: Path, recorded: Recorded, tmp_path: Path, model: OfflineModel
) -> None:
    seed = int(os.environ.get("KILL_SEED") or secrets.randbits(32))
    print(f"KILL_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    rng = random.Random(seed)  # noqa: S311 - no secret
    workspace = shutil.copytree(curated, tmp_path / "workspace")
    write_many(recorded.log("everyday"), tmp_path / "logs", sessions=SESSIONS, turns=TURNS)
    model.script.curator(lambda _body: {"delay": rng.choice([0.0, 0.0, 0.02])})
    deaths = dict.fromkeys(LONGEST_SECONDS, 0)
    toys: dict[str, bool] = {}
    while len(toys) < LIVES or not all(deaths.values()):
        toy = f"Zorblat{len(toys)}x"
        await _play_with(workspace, toy)
        toys[toy] = False
        errand = rng.choice([each for each, count in deaths.items() if LIVES or not count])
        arguments = {
            "rebuild": ["rebuild"],
            "re-extract": ["rebuild", "--re-extract"],
            "import": ["import", str(tmp_path / "logs")],
            "forget": ["memory", "forget", "--text", unlucky := rng.choice(list(toys))],
        }[errand]
        seconds = rng.uniform(0.0, LONGEST_SECONDS[errand])
        code, _ = await killed(workspace, *arguments, model=model, seconds=seconds, SPRITE_BATCH_TURNS="4")
        deaths[errand] += code < 0
        if rng.random() < 0.3:
            for path in (workspace / ".os/memory").glob("memory.db*"):
                path.unlink()
        await restart_server(workspace, model)
        if errand == "forget":
            toys[unlucky] |= code == 0
        _check(workspace, toys)

    for toy in toys:
        if rng.random() < 0.5:
            with contextlib.suppress(PeerError):  # already forgotten
                await forget(workspace, text=toy)
            toys[toy] = True
    assert (await command(workspace, "import", str(tmp_path / "logs")))[0] == 0
    await restart_server(workspace, model)
    _check(workspace, toys)
    assert transcript(workspace, "SELECT count(*) AS n FROM observations WHERE import_key IS NOT NULL") == [
        {"n": SESSIONS * TURNS}
    ]
    before = _memory_of(workspace)
    await rebuild(workspace)
    assert _memory_of(workspace) == before
    # The learnings of the recorded sessions remain; every toy may have been forgotten.
    assert len(learnings(workspace)) >= 5
    assert TYPED in memory_file(workspace, "user.md")


async def _play_with(workspace: Path, toy: str) -> None:
    """Log a turn about a toy, as a sprite would."""
    async with open_stores(workspace / ".os/memory") as stores:
        session = await stores.transcript.start_session(f"session {toy[7:-1]}")
        await stores.turn(f"My toy number {toy[7:-1]} is {toy}.", f"Noted: {toy}", session=session.id)
        await stores.transcript.end_sessions()


def _check(workspace: Path, toys: dict[str, bool]) -> None:
    """Check that no turn is lost or duplicated and that forgotten toys are gone from all files."""
    for path in (".os/memory/transcript.db", ".os/memory/memory.db", ".os/workspace.db"):
        assert rows(workspace / path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    turns = observations(workspace)
    assert len([turn for turn in turns if turn["import_key"] is None]) == 9 + len(toys)
    keys = [turn["import_key"] for turn in turns if turn["import_key"] is not None]
    assert len(keys) == len(set(keys))
    marks = [turn["processed"] for turn in turns]
    waiting = marks.count(0)
    # Turns too few for a curator call wait at the end.
    assert marks == [1] * (len(turns) - waiting) + [0] * waiting
    assert waiting < LEAST_TURNS
    batches: dict[int, list[int]] = {}
    for batch in [c for c in curations(workspace) if c["kind"] == "batch"]:
        span = range(batch["first_observation_id"], batch["last_observation_id"] + 1)
        batches.setdefault(batch["generation"], []).extend(span)
    for generation, curated in batches.items():
        assert len(curated) == len(set(curated)), f"generation {generation} curated something twice"
    sql = "SELECT coalesce(max(json_extract(response, '$.generation')), 0) AS n FROM curations WHERE kind = 'edit'"
    assert batches[transcript(workspace, sql)[0]["n"]] == [turn["id"] for turn in turns if turn["processed"]]
    assert journal(workspace) == []
    said = " ".join(turn["user_message"] + turn["agent_response"] for turn in turns)
    assert files_containing(workspace, *(toy for toy, gone in toys.items() if gone or toy not in said)) == []
    assert TYPED in memory_file(workspace, "user.md")


def _memory_of(workspace: Path) -> dict[str, Any]:
    folder = workspace / ".os/memory"
    return {**dump(folder / "memory.db"), **{name: (folder / name).read_bytes() for name in CURATED}}
