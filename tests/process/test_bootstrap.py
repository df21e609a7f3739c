"""A VM becomes a sprite and stays one: deployed, looked at, updated when it wakes, rolled back, repaired."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest

from bridge.hosts.archive import Archive
from bridge.hosts.host import Egress, HostError
from bridge.offline.model import OfflineModel
from tests.emulator import Emulator, Fault
from tests.emulator.api import TOKEN
from tests.harness import PATIENCE, ROOT, observations
from tests.vms import (
    MODEL_TOKEN,
    Disk,
    Heard,
    Tokens,
    another_version,
    checkout,
    everything_asked,
    greeting,
    host_of,
    talking,
    version_of,
)

ARCHIVE = Archive.of(ROOT)


async def test_a_first_deploy_ends_in_a_sprite_that_lets_us_in_and_leaks_nothing(
    emulator: Emulator, tokens: Tokens
) -> None:
    heard = Heard()
    async with host_of(emulator, ARCHIVE, tokens, SPRITE_BATCH_TURNS="7", HOME="/not/for/it") as host:
        await host.deploy("ada", heard)
        reached = await host.reach("ada", heard)
        await greeting(reached)
        assert (await host.state("ada")).version == version_of(emulator.machines["ada"])
    machine = emulator.machines["ada"]
    system = machine.workspace / ".os"
    for secret in ("run/token", "run/model.env"):
        assert (system / secret).stat().st_mode & 0o777 == 0o600
    assert (system / "run/model.env").read_text().splitlines() == [
        "SPRITE_BATCH_TURNS=7",
        "ANTHROPIC_BASE_URL=http://127.0.0.1:9",
        f"ANTHROPIC_API_KEY={MODEL_TOKEN}-1",
    ]
    assert {p.name for p in (system / "memory").glob("*.md")} >= {"soul.md", "os.md"}
    assert version_of(machine).startswith("0.1.0+")
    assert machine.policy == [], "the open internet: it is the person's computer"
    definition = str(machine.services["sprite"].definition)
    assert "--host 0.0.0.0 --port 8765" in definition
    writes = [call for call in emulator.calls if call.method == "PUT" and call.path.endswith("fs/write")]
    assert "VERSION" in writes[-1].query
    assert "VERSION" in [call for call in emulator.calls if not call.path.endswith(("/proxy", "/ada"))][-1].query
    for planted in (MODEL_TOKEN, reached.token):
        assert planted not in everything_asked(emulator) + definition + heard.words
    on_disk = [path for path in machine.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not any(TOKEN.encode() in path.read_bytes() for path in on_disk if "site-packages" not in path.parts)


@pytest.mark.parametrize(
    ("egress", "reached"),
    [("packages", ["127.0.0.1", "pypi.org", "files.pythonhosted.org"]), ("bridge", ["127.0.0.1"])],
)
async def test_an_operator_can_close_the_network_of_a_vm(
    egress: Egress, reached: list[str], emulator: Emulator, tokens: Tokens, disk: Disk
) -> None:
    machine = await disk.put_into(emulator, tokens)
    async with host_of(emulator, ARCHIVE, tokens, egress=egress) as host:
        await host.deploy("ada", Heard())
    allowed = [{"domain": domain, "action": "allow"} for domain in reached]
    assert machine.policy == [*allowed, {"domain": "*", "action": "deny"}]
    told = (machine.workspace / ".os/run/model.env").read_text()
    assert f"SPRITE_EGRESS={egress}\n" in told


async def test_a_redeploy_with_nothing_to_change_costs_three_calls(
    emulator: Emulator, tokens: Tokens, disk: Disk
) -> None:
    await disk.put_into(emulator, tokens)
    async with host_of(emulator, ARCHIVE, tokens) as host:
        await greeting(await host.reach("ada", Heard()))
        emulator.calls.clear()
        await host.deploy("ada", Heard())
    assert [(call.method, call.path.rpartition("/")[2]) for call in emulator.calls] == [
        ("GET", "ada"),
        ("GET", "exec"),
        ("GET", "proxy"),
    ]


async def test_people_who_deploy_at_once_take_turns(emulator: Emulator, tokens: Tokens, disk: Disk) -> None:
    machine = await disk.put_into(emulator, tokens)
    (machine.workspace / ".os/VERSION").unlink()
    async with host_of(emulator, ARCHIVE, tokens) as host:
        await asyncio.gather(*(host.deploy("ada", Heard()) for _ in range(3)))
    assert emulator.counted("PUT", "services") == 1
    assert tokens.minted == 2


async def test_a_wake_brings_the_new_code_and_keeps_conversation_memory_and_a_persons_edits(
    emulator: Emulator, tokens: Tokens, disk: Disk, tmp_path: Path
) -> None:
    machine = await disk.put_into(emulator, tokens)
    system = machine.workspace / ".os"
    async with host_of(emulator, ARCHIVE, tokens) as host:
        before = await greeting(await host.reach("ada", Heard()))
        (system / "memory/os.md").write_text("Only tea.\n")
    with sqlite3.connect(system / "workspace.db") as connection:
        connection.execute("INSERT INTO stacks (stack_id, name, created_at) VALUES ('s', 'kept', 0)")
    environments = sorted(path.name for path in (system / "venvs").iterdir())
    await machine.sleep("warm")

    new = checkout(
        tmp_path / "new", another_version(), ("sprite/memory/templates/soul.md", lambda text: text + "New.\n")
    )
    heard = Heard()
    async with host_of(emulator, new, tokens) as host:
        after = await greeting(await host.reach("ada", heard))
    assert heard.phases == ["waking", "updating"]
    assert (before.server_version, after.server_version) == ("0.1.0", "0.2.0")
    assert after.epoch == before.epoch
    assert version_of(machine).startswith("0.2.0+")
    assert (system / "memory/os.md").read_text() == "Only tea.\n"
    assert (system / "memory/soul.md").read_text().endswith("New.\n")
    with sqlite3.connect(system / "workspace.db") as connection:
        assert connection.execute("SELECT name FROM stacks WHERE stack_id = 's'").fetchone() == ("kept",)
    assert sorted(path.name for path in (system / "venvs").iterdir()) == environments
    assert [checkpoint["comment"] for checkpoint in machine.checkpoints] == [f"before {version_of(machine)}"]


@pytest.mark.parametrize("change", ["edit", "add", "remove"])
async def test_a_vm_that_claims_the_version_and_has_other_code_gets_the_code_back(
    emulator: Emulator, tokens: Tokens, disk: Disk, change: str
) -> None:
    machine = await disk.put_into(emulator, tokens)
    source = machine.workspace / ".os/src/sprite"
    if change == "edit":
        (source / "server.py").write_text((source / "server.py").read_text() + "\n# changed by the agent\n")
    elif change == "add":
        (source / "sitecustomize.py").write_text("# added by the agent\n")
    else:
        (source / "awake.py").unlink()
    heard = Heard()
    async with host_of(emulator, ARCHIVE, tokens) as host:
        await greeting(await host.reach("ada", heard))
    assert "updating" in heard.phases
    assert Archive.of(ROOT).hashes["sprite/server.py"]
    assert not (source / "sitecustomize.py").exists()
    assert (source / "awake.py").exists()
    assert "changed by the agent" not in (source / "server.py").read_text()


async def test_a_mission_under_way_is_not_interrupted_by_a_new_version(
    emulator: Emulator, model: OfflineModel, disk: Disk, tmp_path: Path
) -> None:
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    tokens = Tokens(model.url)
    machine = await disk.put_into(emulator, tokens)
    new = checkout(tmp_path / "new", another_version())
    async with host_of(emulator, ARCHIVE, tokens) as host, talking(await host.reach("ada", Heard())) as talk:
        mission = await talk.say("mission", {"text": "think for ever"})
        await talk.until(lambda m: m["type"] == "agent_event")
        heard = Heard()
        async with host_of(emulator, new, tokens) as newer:
            assert (await greeting(await newer.reach("ada", heard))).server_version == "0.1.0"
            assert "waits for the mission under way" in heard.words
            await talk.say("interrupt", {})
            await talk.until(lambda m: m["type"] == "agent_event" and m["payload"]["event"] == "interrupted")
            assert (await greeting(await newer.reach("ada", Heard()))).server_version == "0.2.0"
    turns = [(turn["mission_id"], turn["outcome"]) for turn in observations(machine.workspace)]
    assert turns == [(mission, "interrupted")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_what_belongs_to_another_user_of_the_vm_is_made_ours(
    emulator: Emulator, tokens: Tokens, disk: Disk
) -> None:
    machine = await disk.put_into(emulator, tokens)
    (machine.workspace / ".os/VERSION").unlink()
    for path in (machine.workspace, machine.workspace / ".os/run/token", machine.workspace / ".os/memory"):
        os.chown(path, 65534, 65534)
    async with host_of(emulator, ARCHIVE, tokens) as host:
        await greeting(await host.reach("ada", Heard()))
    for path in (machine.workspace, machine.workspace / ".os/run/token", machine.workspace / ".os/memory"):
        assert path.stat().st_uid == 0


async def test_a_revoked_model_token_is_replaced_when_the_vm_is_looked_at(
    emulator: Emulator, tokens: Tokens, disk: Disk
) -> None:
    machine = await disk.put_into(emulator, tokens)
    tokens.owners.clear()
    async with host_of(emulator, ARCHIVE, tokens) as host:
        await greeting(await host.reach("ada", Heard()))
    assert f"{MODEL_TOKEN}-2" in (machine.workspace / ".os/run/model.env").read_text()


async def test_a_busy_api_is_asked_again_and_one_that_stays_so_is_said(emulator: Emulator, tokens: Tokens) -> None:
    busy = '{"error": "sprite_creation_rate_limited", "message": "slow down", "retry_after_seconds": 0.1}'
    emulator.faults.append(Fault("POST", "/v1/sprites$", times=2, status=429, body=busy))
    emulator.faults.append(Fault("POST", "/policy/", times=100, status=429, body=busy))
    async with host_of(emulator, ARCHIVE, tokens) as host:
        with pytest.raises(HostError, match="too busy") as caught:
            await host.deploy("ada", Heard())
    assert caught.value.retryable
    assert emulator.counted("POST", "/v1/sprites$") == 3
    assert 3 <= emulator.counted("POST", "/policy/") < 10


async def test_a_refused_token_is_said_at_once_and_not_shown(emulator: Emulator, tokens: Tokens) -> None:
    emulator.faults.append(Fault("GET", "ada", times=9, status=401, body=TOKEN))
    async with host_of(emulator, ARCHIVE, tokens) as host:
        with pytest.raises(HostError, match="SPRITES_TOKEN") as caught:
            async with asyncio.timeout(PATIENCE):
                await host.reach("ada", Heard())
    assert TOKEN not in str(caught.value)
    assert not caught.value.retryable
    assert len(emulator.calls) == 1
