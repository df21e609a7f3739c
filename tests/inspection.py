"""Looks at a sprite from outside: its databases, the events on disk, the model's requests, its processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.fake_model.model import OfflineModel, RecordedRequest
from tests import looks
from tests.harness import PATIENCE, Client, Sprite, observations, rows, running_sprite
from tests.looks import files_below

eventually = looks.eventually

ENDINGS = frozenset({"complete", "interrupted", "error"})


def transcript(workspace: Path, sql: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    """Rows of the log."""
    return rows(workspace / ".os/memory/transcript.db", sql, parameters)


def memory(workspace: Path, sql: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    """Rows of the projection."""
    return rows(workspace / ".os/memory/memory.db", sql, parameters)


def workspace_db(workspace: Path, sql: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    """Rows of workspace.db."""
    return rows(workspace / ".os/workspace.db", sql, parameters)


def curations(workspace: Path) -> list[dict[str, Any]]:
    return transcript(workspace, "SELECT * FROM curations ORDER BY id")


def journal(workspace: Path) -> list[dict[str, Any]]:
    return transcript(workspace, "SELECT * FROM turn_journal ORDER BY id")


def learnings(workspace: Path) -> list[str]:
    return [row["content"] for row in memory(workspace, "SELECT content FROM learnings ORDER BY id")]


def memory_file(workspace: Path, name: str) -> str:
    return (workspace / ".os/memory" / name).read_text()


def durable_events(workspace: Path) -> list[dict[str, Any]]:
    """Every event kept for replay, in order."""
    return [json.loads(row["frame"]) for row in workspace_db(workspace, "SELECT frame FROM events ORDER BY seq")]


def endings(workspace: Path) -> dict[str, list[str]]:
    """The ending events of each mission."""
    found: dict[str, list[str]] = {}
    for event in durable_events(workspace):
        payload = event["payload"]
        if event["type"] == "agent_event" and payload["mission_id"] and payload["event"] in ENDINGS:
            found.setdefault(payload["mission_id"], []).append(payload["event"])
    return found


def observation_of(workspace: Path, mission_id: str) -> dict[str, Any]:
    """The one observation of a mission, its tool calls decoded."""
    (found,) = [o for o in observations(workspace) if o["mission_id"] == mission_id]
    return {**found, "tool_calls": json.loads(found["tool_calls_json"])}


async def request_seen(model: OfflineModel, wanted: Callable[[RecordedRequest], bool]) -> RecordedRequest:
    """Waits, with a bound, for a request that matches."""
    async with asyncio.timeout(PATIENCE):
        return await model.seen(wanted)


def found_on_disk(workspace: Path, forbidden: Sequence[str], *, session: bool = True) -> list[str]:
    """Every place below `.os`, and in the sprite's own output, that holds one of these.

    `session`: one lasts, and the CLI's own files with it.
    """
    system = workspace / ".os"
    left_out = system / "run/claude" if session else system / "none"
    contents = {path: content for path, content in files_below(system).items() if not path.is_relative_to(left_out)}
    output = workspace.parent / "stderr.log"
    contents[output] = output.read_bytes()
    return [
        f"{words[:12]}... in {file.relative_to(workspace.parent)}"
        for file, content in contents.items()
        for words in forbidden
        if words.encode() in content
    ]


def prompts(model: OfflineModel, text: str) -> list[RecordedRequest]:
    """The agent's requests in which a person has just said this."""
    return [r for r in model.requests if r.kind == "main" and text in r.user_text]


async def comes_to_rest(value: Callable[[], int]) -> int:
    """What it is when it changes no more; it is waited for until it is not 0."""
    seen = -1
    while seen != value() or seen == 0:
        seen = value()
        await asyncio.sleep(0.3)
    return seen


async def chat(client: Client, *texts: str) -> list[str]:
    """Missions one after another, each complete; returns their ids."""
    ids = []
    for text in texts:
        mission_id = client.send("mission", {"text": text})
        end = await client.end_of(mission_id)
        assert end["event"] == "complete", end
        ids.append(mission_id)
    return ids


def _families() -> dict[int, list[int]]:
    """The direct children of every process.

    By each process's own word: the kernel's list of children skips some when another ends while it is read (proc(5)).
    """
    found: dict[int, list[int]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                parent = int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])
                found.setdefault(parent, []).append(int(process.name))
    return found


def children(pid: int) -> list[int]:
    """The direct children of a process."""
    return _families().get(pid, [])


def agents(sprite: Sprite) -> list[int]:
    """The CLI's processes; the sprite has short-lived ones beside."""
    return _agents(sprite, _families())


def _agents(sprite: Sprite, families: dict[int, list[int]]) -> list[int]:
    found = []
    # An in-thread sprite is not the only one whose agents are children of this process.
    state = os.fsencode(f"CLAUDE_CONFIG_DIR={sprite.workspace / '.os/run/claude'}\0")
    for pid in families.get(sprite.pid, []):
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{pid}")
            if b"stream-json" in (process / "cmdline").read_bytes() and state in (process / "environ").read_bytes():
                found.append(pid)
    return found


def agent_process(sprite: Sprite) -> int:
    """The process id of the CLI."""
    (pid,) = agents(sprite)
    return pid


def family(sprite: Sprite) -> list[int]:
    """The CLI's processes, and every process below them."""
    # Reading all of /proc takes long, and callers poll.
    families = _families()
    return [pid for agent in _agents(sprite, families) for pid in (agent, *_below(agent, families))]


def runs(pid: int) -> bool:
    """Whether a process is more than an entry that nobody has collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class SharedSprite:
    """A sprite that a file's tests share, each with a client and missions of its own: starting one takes seconds."""

    model: OfflineModel
    workspace: Path
    sprite: Sprite

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A client for one test; at its end no turn may have left anything in the journal.

        One that the agent began by itself, when something in the background ended, may still be under way.
        """
        async with self.sprite.client() as client:
            yield client
            await eventually(lambda: journal(self.workspace) == [], "a turn has left something in the journal")


@asynccontextmanager
async def shared_sprite(
    folder: Path, *, permissions: str = "bypass", **environment: str
) -> AsyncIterator[SharedSprite]:
    """A model and a sprite that talks to it."""
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    async with (
        OfflineModel() as model,
        running_sprite(workspace, model.url, permissions=permissions, **environment) as sprite,
    ):
        yield SharedSprite(model, workspace, sprite)


def is_running(sprite: Sprite, words: str) -> bool:
    """Whether a command with these words runs below the agent."""
    for pid in family(sprite):
        with contextlib.suppress(OSError):
            if words.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "):
                return True
    return False


def descendants(pid: int) -> list[int]:
    """Every process below one."""
    return _below(pid, _families())


def _below(pid: int, families: dict[int, list[int]]) -> list[int]:
    return [found for child in families.get(pid, []) for found in (child, *_below(child, families))]
