"""Acceptance test of the whole stack, driven by a WebSocket client.

It runs the emulated Sprites API, `bridge serve`, a deployed sprite, the SDK and its CLI, the model proxy and the
offline model.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.bridge_harness import BridgeProcess, PageClient, bridge_environment, listening
from tests.emulator import Emulator, Machine
from tests.emulator.api import TOKEN
from tests.forking import fork_module
from tests.harness import ROOT, Message, observations
from tests.inspection import eventually
from tests.ports import free_port
from tests.vms import Disk

#: The command runs until the test creates the file `go`.
SLOW = "run `until [ -e go ]; do sleep 0.1; done; echo slept well`"


@asynccontextmanager
async def serving(code: Path, data: Path, emulator: Emulator, port: int) -> AsyncIterator[BridgeProcess]:
    """Run `bridge serve --provider sprites` from a checkout, with the emulator's address."""
    stderr = data.parent / "bridge.log"
    environment = bridge_environment(
        SPRITES_TOKEN=TOKEN,
        TESTS_SPRITES_URL=emulator.url,
        BRIDGE_PUBLIC_URL=f"http://127.0.0.1:{port}",
        # No turn waits for a rest, which would keep the VM awake.
        SPRITE_BATCH_TURNS="1",
    )
    arguments = ("serve", "--provider", "sprites", "--port", str(port), "--data", str(data))
    with stderr.open("ab") as log:
        process = await fork_module(
            "bridge", *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=log, cwd=code
        )
    async with listening(process, data, stderr) as bridge:
        yield bridge
        assert await bridge.stop() == 0


class Person:
    """A person who follows the conversation across bridges, with the received messages and the resume position."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.cookie = ""

    @property
    def durable(self) -> list[int]:
        return [message["seq"] for message in self.heard if message.get("seq") is not None]

    @asynccontextmanager
    async def at(self, bridge: BridgeProcess) -> AsyncIterator[PageClient]:
        resume = None
        if self.heard:
            welcome = next(m for m in self.heard if m["type"] == "auth_ok")["payload"]
            resume = {"epoch": welcome["epoch"], "last_seq": max(self.durable)}
        async with bridge.page(self.cookie, resume=resume) as page:
            try:
                yield page
            finally:
                self.heard += page.received

    def events(self, name: str) -> list[Message]:
        return [m["payload"] for m in self.heard if m["type"] == "agent_event" and m["payload"]["event"] == name]


async def model_calls(bridge: BridgeProcess) -> float:
    """Return the number of successful model calls, as reported by the operator's metrics."""
    async with bridge.http() as session, session.get("/metrics", headers=bridge.operator) as response:
        figures = await response.text()
    return sum(
        float(line.split()[-1])
        for line in figures.splitlines()
        if line.startswith("bridge_model_calls_total{") and '"200"' in line
    )


def newer_checkout(folder: Path) -> Path:
    """Copy this checkout with a sprite of the next version."""
    for name in ("bridge", "sprite"):
        shutil.copytree(ROOT / name, folder / name)
    version = folder / "sprite/__init__.py"
    version.write_text(version.read_text().replace("0.1.0", "0.2.0"))
    return folder


async def test_sleep_wake_and_update_lose_nothing(emulator: Emulator, disk: Disk, tmp_path: Path) -> None:
    # The packages are installed already: tests of the bootstrap install them.
    """The VM is frozen in the middle of a mission and updated afterwards."""
    emulator.image = disk.root
    data, port, person = tmp_path / "data", free_port(), Person()
    async with serving(ROOT, data, emulator, port) as bridge:
        person.cookie = await bridge.login()
        async with person.at(bridge) as page:
            await deploys_says_hello_and_makes_a_card(page)
            machine = emulator.machines["local"]
            await sleeps_in_the_middle_of_a_mission(page, machine)
    assert await machine.doze("cold"), "the idle VM is kept awake"

    async with serving(newer_checkout(tmp_path / "newer"), data, emulator, port) as bridge:
        async with person.at(bridge) as page:
            await is_updated_and_goes_on(page)
        async with bridge.page(person.cookie) as page:
            await a_new_page_sees_it_all(page)
        assert await model_calls(bridge) > 0
        code, out, _ = await bridge.run("status", "--json")
        assert code == 0
        (row,) = json.loads(out)
        assert (row["sprite"], row["state"]) == ("local", "running")
        assert row["version"].startswith("0.2.0")
    nothing_is_lost(person, machine)
    nothing_has_leaked(person, emulator, machine, bridge)


async def deploys_says_hello_and_makes_a_card(page: PageClient) -> None:
    await page.link("ready")
    states = [m["payload"]["state"] for m in page.received if m["type"] == "link"]
    assert "updating" in states
    welcome = await page.type("auth_ok")
    assert welcome["server_version"] == "0.1.0"
    assert (await page.type("state_sync"))["chat"] == []
    end = await page.mission("Hi, my name is Ada and I prefer tea. Make a table of apples 3, pears 5")
    assert end["event"] == "complete", end
    assert any(m["type"] == "canvas_update" and m["payload"]["command"] == "create_card" for m in page.received)


async def sleeps_in_the_middle_of_a_mission(page: PageClient, machine: Machine) -> None:
    """Freeze the VM while a tool runs and another mission arrives; both missions end exactly once."""
    slow = await page.send("mission", {"text": SLOW})
    await page.until(lambda m: m["type"] == "agent_event" and m["payload"]["event"] == "tool_use")
    await eventually(lambda: bool(machine.tasks), "the VM is not kept awake")
    assert not await machine.doze()
    # The provider may freeze a VM despite the hold.
    await machine.sleep("warm")
    typed = await page.send("mission", {"text": "Hello, are you awake?"})
    await page.link("waking")
    await page.link("ready")
    (machine.workspace / "go").touch()
    assert (await page.end_of(slow))["event"] == "complete"
    assert (await page.end_of(typed))["event"] == "complete"
    assert machine.status == "running"
    await eventually(lambda: not machine.tasks, "the VM is still kept awake")


async def is_updated_and_goes_on(page: PageClient) -> None:
    await page.link("updating")
    await page.link("ready")
    assert (await page.type("auth_ok"))["server_version"] == "0.2.0"
    end = await page.mission("What is my name?")
    assert "Ada" in end["text"], end
    answer = await page.ask("system", {"action": "new_session"})
    assert answer["type"] != "error", answer
    end = await page.mission("What do you remember about me?")
    assert "tea" in end["text"], end


async def a_new_page_sees_it_all(page: PageClient) -> None:
    state = await page.type("state_sync")
    assert [card["title"] for card in state["cards"]] == ["Apples, pears"]
    said = [message["text"] for message in state["chat"] if message["role"] == "user"]
    assert said[1:3] == [SLOW, "Hello, are you awake?"]
    assert len(said) == 5


def nothing_is_lost(person: Person, machine: Machine) -> None:
    assert person.durable == list(range(1, len(person.durable) + 1)), "events are missing, repeated or out of order"
    ends = [e["mission_id"] for name in ("complete", "interrupted", "error") for e in person.events(name)]
    assert len(ends) == len(set(ends)) == 5
    assert not person.events("error")
    assert not person.events("interrupted")
    turns = [turn for turn in observations(machine.workspace) if turn["user_message"]]
    assert [turn["outcome"] for turn in turns] == ["complete"] * 5
    assert "slept well" in turns[1]["tool_calls_json"]


def nothing_has_leaked(person: Person, emulator: Emulator, machine: Machine, bridge: BridgeProcess) -> None:
    own = (machine.workspace / ".os/run/token").read_text().strip()
    model = (machine.workspace / ".os/run/model.env").read_text().partition("ANTHROPIC_API_KEY=")[2].split()[0]
    assert own
    assert model
    told = json.dumps(person.heard) + json.dumps([[call.path, call.query] for call in emulator.calls]) + bridge.log
    for secret in (TOKEN, bridge.operator["Authorization"], own, model):
        assert secret not in told
    assert "Ada" not in bridge.log
    stored = b"".join(path.read_bytes() for path in bridge.data.glob("bridge.db*"))
    for secret in (TOKEN, own, model):
        assert secret.encode() not in stored
