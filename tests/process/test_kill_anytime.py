"""Random kills of a sprite: it keeps every accepted mission and runs none twice."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sprite.memory.files import CURATED
from tests.harness import (
    PATIENCE,
    Client,
    Process,
    SpriteProcess,
    dump,
    observations,
    rows,
    sprite_process,
    started_sprite,
)
from tests.inspection import curations, endings, journal, transcript, workspace_db
from tests.scripted_model import OfflineModel

KILLS = int(os.environ.get("SOAK_KILLS", "0"))
#: Number of workspaces; pytest workers share them (see conftest.py).
WORKSPACES = 5 if KILLS else 1
#: Kills per workspace. The default is one at the start and one at work; `make soak` sets many more.
LIVES = KILLS // WORKSPACES or 2
BATCH_TURNS = "3"
#: Ranges in seconds. `AT_START` counts from the start, while the sprite opens its files or imports the SDK. `AT_WORK`
#: counts from the agent's first event and applies to four lives of five.
AT_START = [("start", 0.0, 0.3), ("start", 0.3, 1.2)]
AT_WORK = ("work", 0.0, 0.8)
#: Yields a learning, whatever the random missions are.
FIRST_MISSION = "My name is Ada."
MISSIONS = [
    "Hello there",
    "My name is Ada the {n}th.",
    "I prefer tables of {n} columns.",
    "No, it should be {n} for dates.",
    "Remember to water plant {n}.",
    "run `echo {n}`",
    "run `python3 -c 'import time; time.sleep(0.2)'`",
    "run `ls /nowhere/{n}`",
    "Write a file note{n}.md with plant {n}",
    "make a table of apples {n}, pears 5",
    "search memory for plants",
    "use a subagent to run `echo below {n}`",
    "/compact",
]


class Person:
    """Sends two missions at a time, and resends unacknowledged ones after a restart."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.texts: dict[str, str] = {}
        self.accepted: set[str] = set()
        #: Set at the first event of the agent in this life.
        self.at_work = asyncio.Event()

    async def talk(self, client: Client) -> None:
        for mission in self.texts.keys() - self.accepted:
            client.send("mission", {"text": self.texts[mission]}, mission)
        if self._rng.random() < 0.2:
            client.send("system", {"action": "new_session"})
        if self._rng.random() < 0.2:
            content = f"# User\n\n- Likes {self._rng.random()}\n"
            client.send("memory", {"op": "edit", "name": "user.md", "content": content})
        self._send(client)
        self._send(client)
        while (message := await client.next()) is not None:
            if message["type"] == "ack" and message["reply_to"] in self.texts:
                self.accepted.add(message["reply_to"])
            elif message["type"] == "agent_event" and message["payload"]["event"] != "started":
                self.at_work.set()
                if message["payload"]["event"] in {"complete", "error"}:
                    self._send(client)

    def _send(self, client: Client) -> None:
        mission = str(uuid.UUID(int=self._rng.getrandbits(128)))
        self.texts[mission] = self._rng.choice(MISSIONS).format(n=len(self.texts)) if self.texts else FIRST_MISSION
        client.send("mission", {"text": self.texts[mission]}, mission)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(WORKSPACES))
async def test_missions_survive_random_kills_exactly_once(model: OfflineModel, workspace: Path, number: int) -> None:
    """Each accepted mission has one observation and one curation, and a rebuild yields the same memory."""
    seed = int(os.environ.get("KILL_SEED") or secrets.randbits(32))
    print(f"KILL_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    rng = random.Random(seed + number)  # noqa: S311 - no secret
    curator_calls = _slowed(model, rng)
    person = Person(rng)
    for since, earliest, latest in _moments(rng):
        await _a_life(workspace, model, person, since, rng.uniform(earliest, latest))

    async with (
        sprite_process(workspace, model.url, SPRITE_BATCH_TURNS=BATCH_TURNS) as sprite,
        sprite.client() as client,
    ):
        for mission in person.texts:
            client.send("mission", {"text": person.texts[mission]}, mission)
            assert (await client.reply(mission))["type"] == "ack"
        await client.ask("heartbeat")
        await client.ask("system", {"action": "new_session"})
        status = await client.ask("system", {"action": "flush"})
        assert status["payload"]["memory"]["waiting"] == 0
        assert await sprite.stop() == 0

    _check_missions(workspace, person)
    _check_curations(workspace)
    for path in (".os/memory/transcript.db", ".os/memory/memory.db", ".os/workspace.db"):
        assert rows(workspace / path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]

    before, calls = _memory_of(workspace), len(curator_calls)
    for lost in (workspace / ".os/memory").iterdir():
        if lost.name.startswith("memory.db") or lost.name in CURATED:
            lost.unlink()
    async with sprite_process(workspace, model.url, SPRITE_BATCH_TURNS=BATCH_TURNS):
        pass
    assert _memory_of(workspace) == before
    assert len(curator_calls) == calls
    assert before["learnings"]


def _moments(rng: random.Random) -> list[tuple[str, float, float]]:
    """Return the moment of the kill for each life: phase, earliest and latest second."""
    moments = [rng.choice(AT_START) if life % 5 == 0 else AT_WORK for life in range(LIVES)]
    rng.shuffle(moments)
    return moments


def _slowed(model: OfflineModel, rng: random.Random) -> list[int]:
    """Add random delays to the model; return a list that grows with each curator call."""
    curator_calls: list[int] = []

    def curator(_body: dict[str, Any]) -> dict[str, Any]:
        curator_calls.append(1)
        return {"delay": rng.choice([0.0, 0.05, 0.3])}

    model.script.agent(lambda _body: {"delay": rng.choice([0.0, 0.02, 0.1]), "for": "any"}, audience="any")
    model.script.curator(curator)
    return curator_calls


async def _a_life(workspace: Path, model: OfflineModel, person: Person, since: str, seconds: float) -> None:
    """Start a sprite, talk to it, and kill it `seconds` after its start or the agent's first event."""
    person.at_work.clear()
    async with started_sprite(workspace, model.url, SPRITE_BATCH_TURNS=BATCH_TURNS) as process:
        talking = asyncio.create_task(_talk(workspace, process, person))
        if since == "work":
            async with asyncio.timeout(PATIENCE):
                await person.at_work.wait()
        await asyncio.wait({talking}, timeout=seconds)
        process.kill()
        await process.wait()
        # The task ends with the connection, or fails if there was none.
        await asyncio.gather(talking, return_exceptions=True)


async def _talk(workspace: Path, process: Process, person: Person) -> None:
    async with _client(workspace, process) as client:
        await person.talk(client)


@asynccontextmanager
async def _client(workspace: Path, process: Process) -> AsyncIterator[Client]:
    assert process.stdout is not None
    host, port = (await process.stdout.readline()).decode().split()[-1].rsplit(":", 1)
    async with SpriteProcess(workspace, process, host, int(port)).client() as client:
        yield client


def _check_missions(workspace: Path, person: Person) -> None:
    missions = [o["mission_id"] for o in observations(workspace) if o["trigger"] == "user"]
    assert len(missions) == len(set(missions))
    assert set(missions) == set(person.texts)
    own_turns = set()
    for observation in observations(workspace):
        if observation["trigger"] == "user":
            assert observation["user_message"] == person.texts[observation["mission_id"]]
        elif observation["mission_id"] is not None:
            # The agent started this turn itself, when a background task ended.
            own_turns.add(observation["mission_id"])
    ends = endings(workspace)
    assert {mission: len(events) for mission, events in ends.items()} == dict.fromkeys([*person.texts, *own_turns], 1)
    assert workspace_db(workspace, "SELECT * FROM missions WHERE status IN ('queued', 'running')") == []
    assert journal(workspace) == []
    outcomes = {o["outcome"] for o in observations(workspace)}
    assert "complete" in outcomes
    # The default two kills may interrupt no turn.
    assert "crashed" in outcomes or not KILLS


def _check_curations(workspace: Path) -> None:
    batches = [c for c in curations(workspace) if c["kind"] == "batch"]
    curated = [n for c in batches for n in range(c["first_observation_id"], c["last_observation_id"] + 1)]
    assert curated == [o["id"] for o in observations(workspace)]
    assert all(o["processed"] == 1 for o in observations(workspace))
    assert transcript(workspace, "SELECT * FROM sessions WHERE ended_at IS NULL") == []


def _memory_of(workspace: Path) -> dict[str, Any]:
    """Return the rows of memory.db and the bytes of the memory files."""
    folder = workspace / ".os/memory"
    return {**dump(folder / "memory.db"), **{name: (folder / name).read_bytes() for name in CURATED}}
