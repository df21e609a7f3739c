"""The life of a VM with a sprite: deployed, probed, updated on wake, rolled back and repaired."""

from __future__ import annotations

import asyncio
import os
import sqlite3

import pytest

from bridge.providers.provider import HostError
from tests.emulator import Emulator, Fault
from tests.emulator.api import TOKEN
from tests.harness import PATIENCE, observations
from tests.scripted_model import OfflineModel
from tests.vms import (
    MODEL_TOKEN,
    Disk,
    Heard,
    Tokens,
    greeting,
    host_of,
    newer_archive,
    talking,
    this_archive,
    version_of,
)


def test_first_deploy_works_and_leaks_nothing(disk: Disk) -> None:
    """The deploy reuses the VM of a refused one; tests/vms.py has connected to its sprite."""
    deploy, system = disk.deploy, disk.root / "workspace/.os"
    assert [path for method, path, _ in deploy.calls if method == "POST"].count("/v1/sprites") == 1
    assert deploy.version == (system / "VERSION").read_text().strip()
    assert deploy.version.startswith("0.1.0+")
    for secret in ("run/token", "run/model.env"):
        assert (system / secret).stat().st_mode & 0o777 == 0o600
    assert (system / "run/model.env").read_text().splitlines() == [
        "ANTHROPIC_BASE_URL=http://127.0.0.1:9",
        f"ANTHROPIC_API_KEY={MODEL_TOKEN}-1",
        f"SPRITE_CONNECTIONS=http://connections:{MODEL_TOKEN}-1.key@127.0.0.1:9",
    ]
    assert {p.name for p in (system / "memory").glob("*.md")} >= {"soul.md", "os.md"}
    assert deploy.policy == [], "the VM must reach the open internet: it is the person's computer"
    definition = str(disk.definition)
    assert "--host 0.0.0.0 --port 8765" in definition
    writes = [query for method, path, query in deploy.calls if method == "PUT" and path.endswith("fs/write")]
    assert "VERSION" in writes[-1]
    assert "VERSION" in [query for _, path, query in deploy.calls if not path.endswith(("/proxy", "/ada"))][-1]
    assert deploy.token == (system / "run/token").read_text().strip()
    for planted in (MODEL_TOKEN, deploy.token):
        assert planted not in str(deploy.calls) + definition + deploy.words
    on_disk = [path for path in disk.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not any(TOKEN.encode() in path.read_bytes() for path in on_disk if "site-packages" not in path.parts)


async def test_update_waits_for_mission_and_keeps_data(
    emulator: Emulator, tokens: Tokens, model: OfflineModel, disk: Disk
) -> None:
    model.script.agent({"match": "think for ever", "hang": True, "times": -1})
    machine = await disk.put_into(emulator, tokens)
    system = machine.workspace / ".os"
    model_env = system / "run/model.env"
    model_env.write_text(model_env.read_text().replace(tokens.base_url, model.url))
    environments = sorted(path.name for path in (system / "venvs").iterdir())
    async with (
        host_of(emulator, this_archive(), tokens) as host,
        host_of(emulator, newer_archive(), tokens) as newer,
    ):
        async with talking(await host.reach("ada", Heard())) as talk:
            (system / "memory/os.md").write_text("Only tea.\n")
            with sqlite3.connect(system / "workspace.db") as connection:
                connection.execute("INSERT INTO stacks (stack_id, name, created_at) VALUES ('s', 'kept', 0)")
            mission = await talk.say("mission", {"text": "think for ever"})
            await talk.until(lambda m: m["type"] == "agent_event")
            heard = Heard()
            before = await greeting(await newer.reach("ada", heard))
            assert before.server_version == "0.1.0"
            assert "waits for the running mission" in heard.words
            await talk.say("interrupt", {})
            await talk.until(lambda m: m["type"] == "agent_event" and m["payload"]["event"] == "interrupted")
        await machine.sleep("warm")
        # Each request is retried after one cut; the first request to the sprite asks whether it is busy.
        cut = [Fault("", path, cut=True) for path in ("/policy/", "/fs/write", "/exec", "/services/")]
        emulator.faults += [*cut, Fault("", "/proxy", cut=True, times=2)]
        heard = Heard()
        after = await greeting(await newer.reach("ada", heard))
        assert not any(fault.times for fault in emulator.faults)
    assert heard.phases == ["waking", "updating"]
    assert after.server_version == "0.2.0"
    assert after.epoch == before.epoch
    assert version_of(machine).startswith("0.2.0+")
    turns = [(turn["mission_id"], turn["outcome"]) for turn in observations(machine.workspace)]
    assert turns == [(mission, "interrupted")]
    assert (system / "memory/os.md").read_text() == "Only tea.\n"
    assert (system / "memory/soul.md").read_text().endswith("New.\n")
    with sqlite3.connect(system / "workspace.db") as connection:
        assert connection.execute("SELECT name FROM stacks WHERE stack_id = 's'").fetchone() == ("kept",)
    assert sorted(path.name for path in (system / "venvs").iterdir()) == environments


async def test_changed_vm_is_repaired_once(emulator: Emulator, tokens: Tokens, disk: Disk) -> None:
    """Changed code or a revoked model token is noticed, and concurrent deploys run one after another."""
    machine = await disk.put_into(emulator, tokens)
    # The sprite need not run before the repair.
    machine.services["sprite"].wanted = False
    source = machine.workspace / ".os/src/sprite"
    server, owners = (source / "server.py").read_text(), dict(tokens.owners)

    def edit() -> None:
        (source / "server.py").write_text(server + "\n# changed by the agent\n")

    def add() -> None:
        (source / "sitecustomize.py").write_text("# added by the agent\n")

    def remove() -> None:
        (source / "owner.py").rename(source.parent.parent / "owner.py")

    def put_back() -> None:
        (source / "server.py").write_text(server)
        (source / "sitecustomize.py").unlink(missing_ok=True)
        if not (source / "owner.py").exists():
            (source.parent.parent / "owner.py").rename(source / "owner.py")
        tokens.owners.update(owners)

    refused = Fault("POST", "/policy/", times=4, status=400, body="planted")
    emulator.faults.append(refused)
    async with host_of(emulator, this_archive(), tokens) as host:
        for change in (edit, add, remove, tokens.owners.clear):
            change()
            with pytest.raises(HostError, match="planted"):
                await host.deploy("ada", Heard())
            put_back()
        assert refused.times == 0
    for change in (edit, add, remove, tokens.owners.clear):
        change()
    ours = (machine.workspace, machine.workspace / ".os/run/token", machine.workspace / ".os/memory")
    if os.geteuid() == 0:
        # The paths belong to another user of the VM; the deploy changes the owner.
        for path in ours:
            os.chown(path, 65534, 65534)
    emulator.calls.clear()
    heard = Heard()
    async with host_of(
        emulator, this_archive(), tokens, egress="packages", SPRITE_BATCH_TURNS="7", HOME="/not/for/it"
    ) as host:
        await asyncio.gather(*(host.deploy("ada", heard) for _ in range(3)))
        await greeting(await host.reach("ada", Heard()))
    assert emulator.counted("PUT", "services") == 1
    assert tokens.minted == 2
    assert {path.stat().st_uid for path in ours} == {os.geteuid()}
    # The operator has closed the network.
    allowed = [{"domain": name, "action": "allow"} for name in ("127.0.0.1", "pypi.org", "files.pythonhosted.org")]
    assert machine.policy == [*allowed, {"domain": "*", "action": "deny"}]
    assert sorted((machine.workspace / ".os/run/model.env").read_text().splitlines()) == [
        f"ANTHROPIC_API_KEY={MODEL_TOKEN}-2",
        "ANTHROPIC_BASE_URL=http://127.0.0.1:9",
        "SPRITE_BATCH_TURNS=7",
        f"SPRITE_CONNECTIONS=http://connections:{MODEL_TOKEN}-2.key@127.0.0.1:9",
        "SPRITE_EGRESS=packages",
    ]
    assert "updating" in heard.phases
    assert not (source / "sitecustomize.py").exists()
    assert (source / "owner.py").exists()
    assert (source / "server.py").read_text() == server


async def test_busy_api_is_retried_then_reported(emulator: Emulator, tokens: Tokens) -> None:
    busy = '{"error": "sprite_creation_rate_limited", "message": "slow down", "retry_after_seconds": 0.1}'
    emulator.faults.append(Fault("POST", "/v1/sprites$", times=2, status=429, body=busy))
    emulator.faults.append(Fault("POST", "/policy/", times=100, status=429, body=busy))
    async with host_of(emulator, this_archive(), tokens) as host:
        with pytest.raises(HostError, match="too busy") as caught:
            await host.deploy("ada", Heard())
    assert caught.value.retryable
    assert emulator.counted("POST", "/v1/sprites$") == 3
    assert 3 <= emulator.counted("POST", "/policy/") < 10


async def test_rejected_provider_token_is_reported_but_hidden(emulator: Emulator, tokens: Tokens) -> None:
    emulator.faults.append(Fault("GET", "ada", times=9, status=401, body=TOKEN))
    async with host_of(emulator, this_archive(), tokens) as host:
        with pytest.raises(HostError, match="SPRITES_TOKEN") as caught:
            async with asyncio.timeout(PATIENCE):
                await host.reach("ada", Heard())
    assert TOKEN not in str(caught.value)
    assert not caught.value.retryable
    assert len(emulator.calls) == 1
