"""Death of required tasks: each kind is cancelled in the running program and must be reported.

A program that loses a required task shuts down in order: it stores the turn, writes memory and exits with status 1.
A connection that loses a required task closes without stopping the program.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from bridge.app import running
from bridge.config import from_environment
from sprite.common.tasks import TaskDiedError
from sprite.common.tasks import TaskDiedError as SpriteTaskDiedError
from sprite.config import Settings
from sprite.server import serve
from tests.acp_stage import acp_stage
from tests.bridge_harness import bridge_process, running_bridge
from tests.emulator import Emulator, Machine
from tests.harness import PATIENCE, ROOT, observations, running_sprite, sprite_process, start_forked, started_sprite
from tests.inspection import descendants, endings, eventually, memory_file, request_seen
from tests.scripted_model import OfflineModel

#: Tasks that a sprite requires while it runs.
SPRITE = (
    *("accept", "announcer", "awake", "boot files", "curation", "feed"),
    *("live output", "runtime", "scheduler", "slow work"),
)
#: Task that a sprite requires to start.
AT_START = "agent import"
#: Ends by itself, like the import; a failure is logged, and undo does not work until the next start.
SNAPSHOT = "first snapshot"
#: Task that searches by meaning require, where they are on.
MEANING = "meaning"
#: Task that a connection requires.
CONNECTION = "connection sender"
#: Tasks that a bridge requires. `LINK` names those of the connection to one sprite.
BRIDGE = (
    *("accept", "connections", "due dates", "ledger", "notices"),
    *("store checks", "store upkeep", "waker", "write behind"),
)
#: Tasks that a bridge requires when it shares its database.
SHARED = (
    *("lease beats", "lease news", "lease watch"),
    *("revocations", "notices that were left"),
)
LINK = "link {}"
#: Task that the editor's program requires.
EDITOR = "acp-follow"


def owned_names(program: str) -> set[str]:
    """Return the names of all `owned_task` calls, as written in the source."""
    found = set()
    for path in (ROOT / program).rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "owned_task(" in source else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "owned_task":
                (name,) = [keyword.value for keyword in node.keywords if keyword.arg == "name"]
                parts = name.values if isinstance(name, ast.JoinedStr) else [name]
                found.add("".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts))
    return found


def test_all_owned_tasks_are_covered() -> None:
    assert owned_names("sprite") == {*SPRITE, AT_START, SNAPSHOT, CONNECTION, MEANING}
    assert owned_names("bridge") == {*BRIDGE, *SHARED, LINK, EDITOR}


async def test_acp_program_exits_when_follower_dies() -> None:
    """The exit status is 1."""

    async def editor() -> None:
        async with acp_stage() as stage:
            await stage.begin()
            (reader,) = (task for task in asyncio.all_tasks() if task.get_name() == EDITOR)
            reader.cancel()
            async with asyncio.timeout(PATIENCE):
                assert await stage.end.status == 1

    with pytest.raises(TaskDiedError, match=EDITOR):
        await editor()


def task_names() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}


def runs(pid: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, 0)
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.fixture
async def vm(tmp_path: Path) -> AsyncIterator[Machine]:
    async with Emulator(tmp_path / "vms") as emulator:
        yield await emulator.add("ada")


# --- the sprite ---


async def test_idle_sprite_runs_expected_tasks(model: OfflineModel, workspace: Path, vm: Machine) -> None:
    listening, stop = asyncio.Event(), asyncio.Event()
    # The SDK's tasks have no names, so no agent is prewarmed.
    settings = Settings(
        workspace, port=0, api_key="offline", base_url=model.url, vm_socket=vm.socket, prewarm_seconds=0
    )
    before = task_names()
    serving = asyncio.create_task(serve(settings, lambda _host, _port: listening.set(), stop), name="test")
    await listening.wait()
    await eventually(lambda: set(SPRITE) <= task_names(), "the sprite's tasks are not running")
    # The task that imports the agent waits until an agent is needed.
    assert task_names() - before == {*SPRITE, AT_START, "test"}
    stop.set()
    await serving
    assert task_names() == before


@pytest.mark.parametrize("name", SPRITE)
async def test_sprite_ends_when_task_dies(name: str, workspace: Path, vm: Machine) -> None:
    before, stop = task_names(), asyncio.Event()
    listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    settings = Settings(workspace, port=0, vm_socket=vm.socket, prewarm_seconds=0)
    serving = asyncio.create_task(serve(settings, lambda _host, _port: listening.set_result(None), stop), name="test")
    await listening
    await eventually(lambda: name in task_names(), "the task is not running")
    next(task for task in asyncio.all_tasks() if task.get_name() == name).cancel()
    with pytest.raises(SpriteTaskDiedError, match=f'The task "{name}" was cancelled'):
        await asyncio.wait_for(serving, PATIENCE)
    assert stop.is_set(), "the stop event was not set"
    assert task_names() == before


#: Tasks that take part in ending a turn: for its VM, memory and events, and the turn itself.
WITH_A_TURN = ("runtime", *(pytest.param(name, marks=pytest.mark.soak) for name in ("awake", "curation", "feed")))


@pytest.mark.parametrize("name", WITH_A_TURN)
async def test_task_death_mid_turn_saves_turn_and_memory(
    name: str, model: OfflineModel, workspace: Path, vm: Machine
) -> None:
    """The sprite exits with status 1 and releases the VM."""
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    async with (
        sprite_process(
            workspace,
            model.url,
            program=("tests.killable", "sprite"),
            KILL_TASK=name,
            TESTS_VM_SOCKET=str(vm.socket),
            # With a batch of two turns, curation calls the model.
            SPRITE_BATCH_TURNS="2",
        ) as sprite,
        sprite.client() as client,
    ):
        await client.mission("my name is Wilhelmina")
        mission = client.send("mission", {"text": "think for ever"})
        await request_seen(model, lambda r: "think for ever" in r.user_text)
        processes = descendants(sprite.process.pid)
        assert processes
        sprite.process.send_signal(signal.SIGUSR1)
        assert await sprite.ended() == 1
    log = (workspace.parent / "stderr.log").read_text().splitlines()
    assert sum(f'CRITICAL sprite.common.tasks: the task "{name}" was cancelled' in line for line in log) == 1
    assert log[-1] == f'sprite: The task "{name}" was cancelled; see the log.'
    assert [row["outcome"] for row in observations(workspace)] == ["complete", "crashed"]
    assert "Wilhelmina" in memory_file(workspace, "user.md")
    assert not [pid for pid in processes if runs(pid)]
    assert not vm.tasks, "the VM is still kept awake"
    if name == "runtime":
        # The dead task would have sent the mission's end; the next start sends it.
        assert mission not in endings(workspace)
        async with sprite_process(workspace, None):
            pass
    assert endings(workspace)[mission] == ["error"]


async def test_agent_import_failure_ends_sprite_with_error(
    model: OfflineModel, workspace: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    settings = {"PYTHONPATH": str(broken), "SPRITE_PREWARM_SECONDS": "600"}
    (broken / "claude_agent_sdk.py").write_text("raise ImportError('half of it is missing')\n")
    # `within` starts a new process: a forked one would have imported the agent already.
    async with started_sprite(workspace, model.url, within=("env",), **settings) as process, asyncio.timeout(PATIENCE):
        assert await process.wait() == 1
    log = (workspace.parent / "stderr.log").read_text()
    assert f'CRITICAL sprite.common.tasks: the task "{AT_START}" failed (ImportError)' in log
    assert "half of it is missing" in log
    assert log.splitlines()[-1] == f'sprite: The task "{AT_START}" failed (ImportError); see the log.'


async def test_connection_closes_when_sender_dies(workspace: Path) -> None:
    """The sprite keeps running."""
    async with running_sprite(workspace, None) as sprite:
        async with sprite.client() as client:
            sprite.cancel_task(CONNECTION)
            with suppress(ConnectionError):
                assert await client.next() is None or await client.next() is None
        async with sprite.client() as client:
            assert (await client.ask("system", {"action": "status"}))["type"] == "status"
    assert f'CRITICAL sprite.common.tasks: the task "{CONNECTION}"' in (workspace.parent / "stderr.log").read_text()


# --- the bridge ---


async def test_idle_bridge_runs_expected_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The bridge writes a pointer to its memory into this folder.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    before = task_names()
    async with running(from_environment({"data": tmp_path / "data", "port": 0}), asyncio.Event().set):
        assert task_names() - before == set(BRIDGE)
    assert task_names() == before


async def test_bridge_task_death_stops_its_sprites(tmp_path: Path) -> None:
    # The ledger task accounts for the agents' model calls.
    name = "ledger"
    async with bridge_process(
        tmp_path / "data", program=("tests.killable", "bridge"), forks_sprites=True, KILL_TASK=name
    ) as bridge:
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            sprite = int((bridge.workspace / ".os/run/lock").read_text())
            bridge.process.send_signal(signal.SIGUSR1)
            assert await page.closed() == 1001
        assert await bridge.ended() == 1
    log = bridge.stderr.read_text().splitlines()
    assert log[-1] == f'python -m bridge serve: The task "{name}" was cancelled; see the log.'
    said = {line["message"] for line in map(json.loads, log[:-1]) if line["level"] == "critical"}
    assert said == {f'the task "{name}" was cancelled'}
    assert not runs(sprite)


@pytest.mark.parametrize("name", BRIDGE)
async def test_bridge_ends_when_task_dies(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    await dies_of(name, set(BRIDGE), tmp_path)


@pytest.mark.parametrize("name", SHARED)
async def test_clustered_bridge_ends_when_shared_task_dies(
    name: str, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("BRIDGE_DATABASE_URL", postgres_url)
    await dies_of(name, {*BRIDGE, *SHARED}, tmp_path)


async def dies_of(name: str, runs_on: set[str], folder: Path) -> None:
    """Cancel the task `name` of a bridge and check that the bridge ends with an error."""
    before, ended = task_names(), asyncio.Event()

    async def one_dies() -> None:
        async with running(from_environment({"data": folder / "data", "port": 0}), ended.set):
            assert task_names() - before == runs_on
            # The accept task for operators' connections has the same name.
            next(task for task in asyncio.all_tasks() if task.get_name() == name).cancel()
            async with asyncio.timeout(PATIENCE):
                await ended.wait()

    with pytest.raises(TaskDiedError, match=f'The task "{name}" was cancelled'):
        await one_dies()
    assert ended.is_set(), "the end callback was not called"
    assert task_names() == before


@pytest.mark.parametrize("name", [LINK.format("local"), "room local"])
async def test_hub_is_replaced_after_task_death(name: str, tmp_path: Path) -> None:
    """Open pages are closed, and the next page gets a new hub."""
    async with running_bridge(tmp_path / "data") as bridge:
        cookie = await bridge.login()
        async with bridge.page(cookie) as page:
            await page.link("ready")
            bridge.cancel_task(name)
            await page.closed()
        async with bridge.page(cookie) as page:
            await page.link("ready")
            assert (await page.ask("system", {"action": "status"}))["type"] == "status"
    assert '"level":"critical"' in bridge.log


async def test_sprite_restarts_without_keeper_task(tmp_path: Path) -> None:
    """The next connection attempt starts the sprite when its keeper task is dead."""
    async with (
        running_bridge(tmp_path / "data", start_sprite=start_forked) as bridge,
        bridge.page(await bridge.login()) as page,
    ):
        await page.link("ready")
        bridge.cancel_task("keeper of local")
        # The answer arrives after the cancellation was handled.
        await page.ask("system", {"action": "status"})
        os.kill(int((bridge.workspace / ".os/run/lock").read_text()), signal.SIGKILL)
        await page.link("unavailable")
        await page.link("ready")
        assert (await page.ask("system", {"action": "status"}))["type"] == "status"
