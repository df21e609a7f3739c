"""Observe a sprite from outside: its databases, the events on disk, the model's requests, its processes."""

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

from tests import looks
from tests.harness import PATIENCE, Client, Sprite, observations, rows, running_sprite
from tests.looks import files_below
from tests.scripted_model import OfflineModel, RecordedRequest

eventually = looks.eventually

ENDINGS = frozenset({"complete", "interrupted", "error"})


def transcript(workspace: Path, sql: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    """Query the log."""
    return rows(workspace / ".os/memory/transcript.db", sql, parameters)


def memory(workspace: Path, sql: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    """Query the projection."""
    return rows(workspace / ".os/memory/memory.db", sql, parameters)


def workspace_db(workspace: Path, sql: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    """Query workspace.db."""
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
    """Return every event kept for replay, in order."""
    return [json.loads(row["frame"]) for row in workspace_db(workspace, "SELECT frame FROM events ORDER BY seq")]


def endings(workspace: Path) -> dict[str, list[str]]:
    """Return the ending events of each mission."""
    found: dict[str, list[str]] = {}
    for event in durable_events(workspace):
        payload = event["payload"]
        if event["type"] == "agent_event" and payload["mission_id"] and payload["event"] in ENDINGS:
            found.setdefault(payload["mission_id"], []).append(payload["event"])
    return found


def observation_of(workspace: Path, mission_id: str) -> dict[str, Any]:
    """Return the only observation of a mission, with its tool calls decoded."""
    (found,) = [o for o in observations(workspace) if o["mission_id"] == mission_id]
    return {**found, "tool_calls": json.loads(found["tool_calls_json"])}


async def request_seen(model: OfflineModel, wanted: Callable[[RecordedRequest], bool]) -> RecordedRequest:
    """Wait, with a bound, for a matching request."""
    async with asyncio.timeout(PATIENCE):
        return await model.seen(wanted)


def found_on_disk(workspace: Path, forbidden: Sequence[str], *, session: bool = True) -> list[str]:
    """Return every place below `.os`, and in the sprite's output, that contains one of these.

    `session`: a session is open, with the CLI's own files. Copies of the person's own files, for undo, do not count.
    """
    system = workspace / ".os"
    left_out = (system / "undo", *([system / "run/claude"] if session else []))
    contents = {
        path: content
        for path, content in files_below(system).items()
        if not any(path.is_relative_to(folder) for folder in left_out)
    }
    output = workspace.parent / "stderr.log"
    contents[output] = output.read_bytes()
    return [
        f"{words[:12]}... in {file.relative_to(workspace.parent)}"
        for file, content in contents.items()
        for words in forbidden
        if words.encode() in content
    ]


def prompts(model: OfflineModel, text: str) -> list[RecordedRequest]:
    """Return the agent's requests whose newest message by the person contains this text."""
    return [r for r in model.requests if r.kind == "main" and text in r.user_text]


async def comes_to_rest(value: Callable[[], int]) -> int:
    """Wait until a value is nonzero and stable; return it."""
    seen = -1
    while seen != value() or seen == 0:
        seen = value()
        await asyncio.sleep(0.3)
    return seen


async def chat(client: Client, *texts: str) -> list[str]:
    """Run missions one after another; return their ids."""
    ids = []
    for text in texts:
        mission_id = client.send("mission", {"text": text})
        end = await client.end_of(mission_id)
        assert end["event"] == "complete", end
        ids.append(mission_id)
    return ids


def _families() -> dict[int, list[int]]:
    """Return the direct children of every process.

    They come from each process's own status: the kernel's list of children skips some if another ends while it is read
    (proc(5)).
    """
    found: dict[int, list[int]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                parent = int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])
                found.setdefault(parent, []).append(int(process.name))
    return found


def children(pid: int) -> list[int]:
    """Return the direct children of a process."""
    return _families().get(pid, [])


def agents(sprite: Sprite) -> list[int]:
    """Return the CLI's processes, without the sprite's short-lived ones."""
    return _agents(sprite, _families())


def _agents(sprite: Sprite, families: dict[int, list[int]]) -> list[int]:
    found = []
    # The agents of other in-thread sprites are children of this process, too.
    state = os.fsencode(f"CLAUDE_CONFIG_DIR={sprite.workspace / '.os/run/claude'}\0")
    for pid in families.get(sprite.pid, []):
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{pid}")
            if b"stream-json" in (process / "cmdline").read_bytes() and state in (process / "environ").read_bytes():
                found.append(pid)
    return found


def agent_process(sprite: Sprite) -> int:
    """Return the process id of the CLI."""
    (pid,) = agents(sprite)
    return pid


def family(sprite: Sprite) -> list[int]:
    """Return the CLI's processes, and every process below them."""
    # Reading all of /proc takes long, and callers poll.
    families = _families()
    return [pid for agent in _agents(sprite, families) for pid in (agent, *_below(agent, families))]


def runs(pid: int) -> bool:
    """Return whether a process runs, and is not only a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class SharedSprite:
    """A sprite shared by a file's tests, each with a separate client and missions: starting one takes seconds."""

    model: OfflineModel
    workspace: Path
    sprite: Sprite

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Open a client for one test; no turn may leave entries in the journal at its end.

        A background turn of the agent may still be running.
        """
        async with self.sprite.client() as client:
            yield client
            await eventually(lambda: journal(self.workspace) == [], "a turn has left something in the journal")


@asynccontextmanager
async def shared_sprite(
    folder: Path, *, permissions: str = "bypass", **environment: str
) -> AsyncIterator[SharedSprite]:
    """Run a model and a sprite that uses it."""
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    async with (
        OfflineModel() as model,
        running_sprite(workspace, model.url, permissions=permissions, **environment) as sprite,
    ):
        yield SharedSprite(model, workspace, sprite)


def is_running(sprite: Sprite, words: str) -> bool:
    """Return whether a command with this text runs below the agent."""
    for pid in family(sprite):
        with contextlib.suppress(OSError):
            if words.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "):
                return True
    return False


def descendants(pid: int) -> list[int]:
    """Return every process below a given one."""
    return _below(pid, _families())


def _below(pid: int, families: dict[int, list[int]]) -> list[int]:
    return [found for child in families.get(pid, []) for found in (child, *_below(child, families))]
