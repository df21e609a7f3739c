"""Nobody dies silently: each kind of task that has to live is killed, in the program as it runs.

What a program cannot be without takes it along, in order: the turn is stored, memory is written, the exit status is 1.
What one person's connection cannot be without takes only that along.
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
from bridge.fake_model.model import OfflineModel
from sprite.common.tasks import TaskDiedError
from sprite.common.tasks import TaskDiedError as SpriteTaskDiedError
from sprite.config import Settings
from sprite.server import serve
from tests.acp_stage import acp_stage
from tests.bridge_harness import bridge_process, running_bridge
from tests.emulator import Emulator, Machine
from tests.harness import PATIENCE, ROOT, observations, running_sprite, sprite_process, start_forked, started_sprite
from tests.inspection import descendants, endings, eventually, memory_file, request_seen

#: What a sprite cannot be without, as long as it runs.
SPRITE = ("accept", "announcer", "awake", "boot files", "curation", "feed", "runtime", "scheduler", "slow work")
#: And what it cannot begin without.
AT_START = "agent import"
#: What one connection cannot be without.
CONNECTION = "connection sender"
#: What a bridge cannot be without, and what the connection to one sprite cannot.
BRIDGE = ("accept", "ledger", "notices", "store checks", "store upkeep", "waker", "write behind")
#: What it cannot be without where there is a webhook.
WEBHOOK = "webhook"
#: What it cannot be without where it shares its database with others.
SHARED = (
    *("due dates", "lease beats", "lease news", "lease watch", "other bridges"),
    *("revocations", "revocations that were missed", "sprite tokens", "notices that were left"),
)
LINK = "link {}"
#: What an editor's program cannot be without.
EDITOR = "acp-follow"


def owned_names(program: str) -> set[str]:
    """The names of all tasks whose death is told, as they are written in the source."""
    found = set()
    for path in (ROOT / program).rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "owned_task(" in source else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "owned_task":
                (name,) = [keyword.value for keyword in node.keywords if keyword.arg == "name"]
                parts = name.values if isinstance(name, ast.JoinedStr) else [name]
                found.add("".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts))
    return found


def test_each_kind_of_task_that_may_not_die_is_killed_here() -> None:
    assert owned_names("sprite") == {*SPRITE, AT_START, CONNECTION}
    assert owned_names("bridge") == {*BRIDGE, *SHARED, WEBHOOK, LINK, EDITOR}


async def test_an_editors_program_that_cannot_hear_the_bridge_any_more_ends_with_an_error() -> None:
    async def editor() -> None:
        async with acp_stage() as stage:
            await stage.begin()
            (reader,) = (task for task in asyncio.all_tasks() if task.get_name() == EDITOR)
            reader.cancel()
            async with asyncio.timeout(PATIENCE):
                await stage.end.wait()
            assert stage.end.status == 1

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


async def test_a_sprite_at_rest_runs_these_tasks_and_no_other(
    model: OfflineModel, workspace: Path, vm: Machine
) -> None:
    listening, stop = asyncio.Event(), asyncio.Event()
    # No agent that was started ahead: the SDK's tasks have no names.
    settings = Settings(
        workspace, port=0, api_key="offline", base_url=model.url, vm_socket=vm.socket, prewarm_seconds=0
    )
    before = task_names()
    serving = asyncio.create_task(serve(settings, lambda _host, _port: listening.set(), stop), name="test")
    await listening.wait()
    await eventually(lambda: set(SPRITE) <= task_names(), "all of it is there")
    # The one that imports the agent waits: nothing has needed it yet.
    assert task_names() - before == {*SPRITE, AT_START, "test"}
    stop.set()
    await serving
    assert task_names() == before


@pytest.mark.parametrize("name", SPRITE)
async def test_sprite_ends_when_one_of_its_tasks_dies(name: str, workspace: Path, vm: Machine) -> None:
    before, stop = task_names(), asyncio.Event()
    listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    settings = Settings(workspace, port=0, vm_socket=vm.socket, prewarm_seconds=0)
    serving = asyncio.create_task(serve(settings, lambda _host, _port: listening.set_result(None), stop), name="test")
    await listening
    await eventually(lambda: name in task_names(), "it runs")
    next(task for task in asyncio.all_tasks() if task.get_name() == name).cancel()
    with pytest.raises(SpriteTaskDiedError, match=f'The task "{name}" was cancelled'):
        await asyncio.wait_for(serving, PATIENCE)
    assert stop.is_set(), "who runs the sprite was told, and not only at its end"
    assert task_names() == before


#: Those with a part in ending a turn: its VM, its memory, its events, and the turn itself.
WITH_A_TURN = ("runtime", *(pytest.param(name, marks=pytest.mark.soak) for name in ("awake", "curation", "feed")))


@pytest.mark.parametrize("name", WITH_A_TURN)
async def test_a_sprite_one_of_whose_tasks_dies_stores_the_turn_writes_memory_and_ends_with_an_error(
    name: str, model: OfflineModel, workspace: Path, vm: Machine
) -> None:
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    async with (
        sprite_process(
            workspace,
            model.url,
            program=("tests.killable", "sprite"),
            KILL_TASK=name,
            TESTS_VM_SOCKET=str(vm.socket),
            # So that two turns are worth a call.
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
    assert not vm.tasks, "the VM is let go"
    if name == "runtime":
        # Who would have told of the mission's end is dead; the next start does.
        assert mission not in endings(workspace)
        async with sprite_process(workspace, None):
            pass
    assert endings(workspace)[mission] == ["error"]


async def test_a_sprite_whose_agent_cannot_be_imported_says_so_and_ends(
    model: OfflineModel, workspace: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    settings = {"PYTHONPATH": str(broken), "SPRITE_PREWARM_SECONDS": "600"}
    (broken / "claude_agent_sdk.py").write_text("raise ImportError('half of it is missing')\n")
    # With a command it is not forked from a process that has imported the agent's.
    async with started_sprite(workspace, model.url, within=("env",), **settings) as process, asyncio.timeout(PATIENCE):
        assert await process.wait() == 1
    log = (workspace.parent / "stderr.log").read_text()
    assert f'CRITICAL sprite.common.tasks: the task "{AT_START}" failed (ImportError)' in log
    assert "half of it is missing" in log
    assert log.splitlines()[-1] == f'sprite: The task "{AT_START}" failed (ImportError); see the log.'


async def test_a_connection_whose_sender_dies_is_cut_and_the_sprite_lives_on(workspace: Path) -> None:
    async with running_sprite(workspace, None) as sprite:
        async with sprite.client() as client:
            sprite.cancel_task(CONNECTION)
            with suppress(ConnectionError):
                assert await client.next() is None or await client.next() is None
        async with sprite.client() as client:
            assert (await client.ask("system", {"action": "status"}))["type"] == "status"
    assert f'CRITICAL sprite.common.tasks: the task "{CONNECTION}"' in (workspace.parent / "stderr.log").read_text()


# --- the bridge ---


async def test_a_bridge_at_rest_runs_these_tasks_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It leaves a note there of where memory is.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    before = task_names()
    async with running(from_environment({"data": tmp_path / "data", "port": 0}), asyncio.Event().set):
        assert task_names() - before == set(BRIDGE)
    assert task_names() == before


async def test_bridge_whose_task_dies_stops_its_sprites(tmp_path: Path) -> None:
    # The agents' model is paid by it.
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
    assert log[-1] == f'bridge: The task "{name}" was cancelled; see the log.'
    said = {line["message"] for line in map(json.loads, log[:-1]) if line["level"] == "critical"}
    assert said == {f'the task "{name}" was cancelled'}
    assert not runs(sprite)


@pytest.mark.parametrize("name", BRIDGE)
async def test_a_bridge_ends_when_one_of_its_tasks_dies_and_leaves_none_behind(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    await dies_of(name, set(BRIDGE), tmp_path)


@pytest.mark.parametrize("name", SHARED)
async def test_a_bridge_that_shares_its_database_ends_when_one_of_the_tasks_for_that_dies(
    name: str, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("BRIDGE_DATABASE_URL", postgres_url)
    await dies_of(name, {*BRIDGE, *SHARED}, tmp_path)


async def dies_of(name: str, runs_on: set[str], folder: Path) -> None:
    """A bridge that runs these tasks, until one of them dies: what that comes to."""
    before, ended = task_names(), asyncio.Event()

    async def one_dies() -> None:
        async with running(from_environment({"data": folder / "data", "port": 0}), ended.set):
            assert task_names() - before == runs_on
            # Operators' connections are accepted by a task of the same name.
            next(task for task in asyncio.all_tasks() if task.get_name() == name).cancel()
            async with asyncio.timeout(PATIENCE):
                await ended.wait()

    with pytest.raises(TaskDiedError, match=f'The task "{name}" was cancelled'):
        await one_dies()
    assert ended.is_set(), "who runs the bridge was told, and not only at its end"
    assert task_names() == before


@pytest.mark.parametrize("name", [LINK.format("local"), "room local"])
async def test_a_room_that_cannot_go_on_is_closed_and_whoever_comes_again_gets_a_new_one(
    name: str, tmp_path: Path
) -> None:
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


async def test_a_sprite_that_nobody_keeps_up_any_more_is_started_again_by_the_next_wish(tmp_path: Path) -> None:
    async with (
        running_bridge(tmp_path / "data", start_sprite=start_forked) as bridge,
        bridge.page(await bridge.login()) as page,
    ):
        await page.link("ready")
        bridge.cancel_task("keeper of local")
        # The cancellation is handled before the next answer is.
        await page.ask("system", {"action": "status"})
        os.kill(int((bridge.workspace / ".os/run/lock").read_text()), signal.SIGKILL)
        await page.link("unavailable")
        await page.link("ready")
        assert (await page.ask("system", {"action": "status"}))["type"] == "status"
