"""Wake a sleeping VM for a due action: run it once, notify its person, and let the VM sleep again."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from bridge.cluster.ownership import Ownership
from bridge.db.open import open_database
from bridge.hub.hub import Relay
from bridge.notify.notifier import Notifier
from bridge.notify.rules import NotificationRules
from bridge.notify.webhook import Webhook
from bridge.wakeups.waker import DueDates, Waker
from sprite.protocol.memory import AddActionRequest
from tests.bridge_harness import bridge_environment, bridge_process, run_bridge, running_bridge
from tests.emulator import Emulator
from tests.emulator.api import TOKEN
from tests.harness import observations
from tests.inspection import eventually, memory
from tests.memory_stores import open_stores
from tests.ports import free_port
from tests.relay_stage import relaying
from tests.scripted_model import OfflineModel
from tests.vms import Disk, Tokens, host_of, this_archive
from tests.waking_stage import QUICK, died
from tests.webhook_receiver import KEY, Receiver, read_key, receiving

if TYPE_CHECKING:
    from bridge.providers.provider import Host
    from tests.emulator import Machine

HOUR = 3600.0


@dataclass
class Bridge:
    """The parts of a bridge that run without an open page."""

    relay: Relay
    due: DueDates
    waker: Waker


@asynccontextmanager
async def bridge_of(folder: Path, host: Host, receiver: Receiver, ahead: float = 0.0) -> AsyncIterator[Bridge]:
    """Open a bridge whose clock is `ahead` seconds fast."""

    async def yes(_: str) -> bool:
        return True

    def clock() -> float:
        return time.time() + ahead

    async with (
        open_database(folder / "bridge.db") as database,
        Webhook(receiver.url, KEY, yes) as webhook,
        Notifier(database, [webhook], yes, yes, died) as notifier,
        NotificationRules(database, notifier, died) as notification_rules,
        DueDates(database, died, Ownership()) as due,
        relaying(host, [due, notification_rules], linger_seconds=0.01) as relay,
    ):
        await database.write(lambda tx: tx.create_function("db_now", 0, clock))  # type: ignore[attr-defined]
        waker = Waker(relay, due, yes, died, pace=QUICK, clock=clock)
        async with waker:
            yield Bridge(relay, due, waker)


async def an_hour_passes(vm: Machine, action_id: int) -> None:
    """Move the due time of an action into the past, on the disk of the sleeping VM."""
    async with open_stores(vm.workspace / ".os/memory") as stores:
        before = stores.actions_at(lambda: time.time() - 2 * HOUR)
        await before.update(action_id, by="person", due=time.time() - 90)


def fired(vm: Machine) -> list[int]:
    return [turn["id"] for turn in observations(vm.workspace) if turn["by_schedule"]]


async def test_sleeping_vm_runs_due_action_once(
    model: OfflineModel, emulator: Emulator, disk: Disk, tmp_path: Path
) -> None:
    tokens = Tokens(model.url)
    vm = await disk.put_into(emulator, tokens)
    model_env = vm.workspace / ".os/run/model.env"
    model_env.write_text(model_env.read_text().replace(Tokens().base_url, model.url))
    async with (
        host_of(emulator, this_archive(), tokens) as host,
        receiving() as receiver,
    ):
        async with bridge_of(tmp_path, host, receiver) as bridge:
            with bridge.relay.held("ada") as room:
                answer = await room.ask(AddActionRequest(content="run `touch drawn`", due=time.time() + HOUR))
                added = msgspec.to_builtins(answer)
                await eventually(lambda: bridge.due.of("ada") is not None, "the bridge has no due date")
            await eventually(lambda: not bridge.due.dates["ada"].is_open, "the hub stays open")
        await vm.sleep("cold")
        await an_hour_passes(vm, added["action"]["id"])
        wakes = vm.wakes
        async with bridge_of(tmp_path, host, receiver, ahead=HOUR + 1) as bridge:
            await eventually(lambda: bridge.waker.wakes["looked"] >= 1, "the VM is not woken")
            await eventually(lambda: not bridge.due.dates["ada"].is_open, "the hub stays open")
            assert bridge.due.of("ada") is None
            (message,) = await receiver.received(1)
            assert message["kind"] == "ended"
            await eventually(lambda: not vm.tasks, "the VM is kept awake")
            assert await vm.doze("cold")
        assert vm.wakes == wakes + 1
        assert (vm.workspace / "drawn").exists()
        assert len(fired(vm)) == 1
        (action,) = memory(vm.workspace, "SELECT status FROM pending_actions")
        assert action["status"] == "done"
        # A restarted bridge has nothing to run and nothing to report.
        async with bridge_of(tmp_path, host, receiver, ahead=HOUR + 60) as bridge:
            assert not bridge.waker.wakes
        assert vm.wakes == wakes + 1
        assert len(receiver.messages) == 1


@pytest.mark.soak
async def test_permission_request_without_page_reaches_webhook(tmp_path: Path) -> None:
    async with (
        receiving() as receiver,
        running_bridge(tmp_path / "data", "--permissions", "ask", SPRITE_NOTIFY_URL=receiver.url) as bridge,
    ):
        receiver.key = read_key((await bridge.run("notify", "key"))[1])
        cookie = await bridge.login()
        async with bridge.page(cookie) as page:
            await page.link("ready")
            mission = await page.send("mission", {"text": "run `touch it`"})
            question = await page.type("permission_request")
            assert receiver.messages == []
        (message,) = await receiver.received(1)
        assert message["kind"] == "permission"
        assert message["person"] == message["sprite"] == "local"
        assert message["request_id"] == question["request_id"]
        assert message["title"] == "Sprite has something for you"
        async with bridge.page(cookie) as page:
            await page.type("state_sync")
            await page.ask("permission", {"request_id": question["request_id"], "decision": "allow"})
            assert (await page.end_of(mission))["event"] == "complete"
        assert len(receiver.messages) == 1


@pytest.mark.soak
async def test_restarted_bridge_reports_finished_schedule_once(emulator: Emulator, disk: Disk, tmp_path: Path) -> None:
    """The bridge was killed during the run. No page is opened again; the VM keeps running."""
    data, port = tmp_path / "data", free_port()
    emulator.image = disk.packages
    async with receiving() as receiver:
        settings: dict[str, Any] = {
            "TESTS_SPRITES_URL": emulator.url,
            "SPRITES_TOKEN": TOKEN,
            "BRIDGE_PUBLIC_URL": f"http://127.0.0.1:{port}",
            "SPRITE_NOTIFY_URL": receiver.url,
        }
        added = await run_bridge("users", "add", "ada", "--data", str(data), environment=bridge_environment(**settings))
        token = added[1].split("token")[-1].split()[0]
        async with (
            bridge_process(data, "--provider", "sprites", port=port, **settings) as bridge,
            bridge.page(token=token) as page,
        ):
            receiver.key = read_key((await bridge.run("notify", "key"))[1])
            await page.link("ready")
            text = "run `until [ -e go ]; do sleep 0.1; done; echo once >> drawn`"
            await page.ask("memory", {"op": "add_action", "content": text, "due": time.time()})
            await page.until(lambda m: m["type"] == "agent_event" and m["payload"]["event"] == "tool_use")
            bridge.process.kill()
            await bridge.process.wait()
        vm = emulator.machines["ada"]
        (vm.workspace / "go").touch()
        async with running_bridge(data, "--provider", "sprites", port=port, **settings) as again:
            (message,) = await receiver.received(1)
            assert (message["kind"], message["person"]) == ("ended", "ada")
            await eventually(lambda: not vm.tasks, "the VM is kept awake")
            # The initial state and the live events both report the end; the person is notified once.
            async with again.page(token=token) as page:
                await page.type("state_sync")
        assert (vm.workspace / "drawn").read_text() == "once\n"
        assert len(fired(vm)) == 1
        assert len(receiver.messages) == 1
