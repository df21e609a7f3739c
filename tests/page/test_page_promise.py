"""A scheduled promise, kept: requested in a real browser, while machines sleep, bridges are killed and days pass.

Everything is real except the scripted model. The tests set the clocks of the bridge and of the VM, so that a night is a
moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from playwright.async_api import Browser, expect

from sprite.curation.processor import FEW_SECONDS_AWAKE
from tests.bridge_harness import BridgeProcess, bridge_process
from tests.emulator import Emulator, Machine
from tests.emulator.api import TOKEN
from tests.harness import PATIENCE, Message, observations
from tests.inspection import eventually
from tests.page_harness import PageStack, ask, needs_chromium, shoot
from tests.ports import free_port
from tests.push_service import PushService
from tests.scripted_model import OfflineModel
from tests.shifted_clock import ShiftedClock
from tests.vms import Disk

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]

ZONE = ZoneInfo("Europe/Berlin")
ASKED = "Every weekday at 8, draw my open actions"
WORK = "Draw my open actions on a card"
#: During a turn, until a bridge was killed and another started.
SLOW = {
    "command": "touch artifacts/begun; until [ -e artifacts/go-on ]; do sleep 0.1; done; echo looked around",
    "description": "Look around",
}
CARD = {
    "title": "Open actions",
    "card_type": "table",
    "blocks": [{"type": "table", "data": {"columns": ["Action"], "rows": [["Water the ficus"]]}}],
}


def thursday_evening() -> datetime:
    """Return the next Thursday evening, on the person's wall clock."""
    today = datetime.now(ZONE).replace(hour=18, minute=0, second=0, microsecond=0)
    return today + timedelta(days=(3 - today.weekday()) % 7 or 7)


def morning_steps(*, slow: bool) -> list[dict[str, Any]]:
    """Return the agent's steps when the action is due."""
    steps = [{"tool": "Bash", "input": SLOW, "match": "A schedule began this turn"}] if slow else []
    return [
        *steps,
        {"tool": "mcp__sprite__list_actions", "input": {}, "match": "A schedule began this turn"},
        {"tool": "mcp__sprite__create_card", "input": CARD, "on": "result"},
        {"text": "Your open actions are on a card.", "on": "result"},
    ]


@dataclass
class World:
    """One person's VM and the current bridge."""

    clock: ShiftedClock
    emulator: Emulator
    data: Path
    settings: dict[str, Any]
    port: int
    cookie: str = ""
    log: list[str] = field(default_factory=list)

    @property
    def machine(self) -> Machine:
        return self.emulator.machines["local"]

    @asynccontextmanager
    async def bridge(self) -> AsyncIterator[BridgeProcess]:
        async with bridge_process(self.data, "--provider", "sprites", port=self.port, **self.settings) as bridge:
            yield bridge

    def schedule_turns(self) -> list[Message]:
        return [turn for turn in observations(self.machine.workspace) if turn["by_schedule"]]

    async def sleeps(self) -> None:
        """Wait until the idle VM is not kept awake by anything."""

        # A few turns may wait so long for more before they are curated.
        async with asyncio.timeout(FEW_SECONDS_AWAKE + PATIENCE):
            while not await self.machine.doze("cold"):  # noqa: ASYNC110 - the condition is in another process
                await asyncio.sleep(0.1)


@asynccontextmanager
async def world(folder: Path, disk: Disk, model: OfflineModel) -> AsyncIterator[World]:
    clock, port = ShiftedClock(folder), free_port()
    async with Emulator(folder / "vms") as emulator:
        emulator.image = disk.packages
        machine = await emulator.add("local")
        machine.environment = clock.environment
        settings = {
            "TESTS_SPRITES_URL": emulator.url,
            "SPRITES_TOKEN": TOKEN,
            "BRIDGE_PUBLIC_URL": f"http://127.0.0.1:{port}",
            "TESTS_PUSH_INSIDE": "yes",
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "planted-key",
            **clock.environment,
        }
        yield World(clock, emulator, folder / "data", settings, port)


@pytest.mark.soak
async def test_weekday_repeat_fires_once_despite_sleep_and_kills(disk: Disk, tmp_path: Path, browser: Browser) -> None:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(OfflineModel())
        place = await stack.enter_async_context(world(tmp_path, disk, model))
        evening = thursday_evening()
        place.clock.jump_to(evening.timestamp())
        phone = await stack.enter_async_context(PushService(clock=place.clock.now))

        async with place.bridge() as bridge:
            looked = PageStack(browser, model, place.data, bridge)
            stack.push_async_callback(looked.close_windows)
            await looked.log_in()
            await subscribes(bridge, looked.cookie, phone)
            await asks_for_it(looked, model, evening)
        await place.sleeps()

        # Friday: woken, and the bridge is killed during the turn.
        model.script.agent(*morning_steps(slow=True))
        friday = evening.replace(hour=8) + timedelta(days=1)
        async with place.bridge() as bridge:
            assert place.machine.status == "cold"
            place.clock.jump_to(friday.timestamp() + 5)
            artifacts = place.machine.workspace / "artifacts"
            await eventually((artifacts / "begun").exists, "the agent's turn did not start")
            bridge.process.kill()
            await bridge.process.wait()
        async with place.bridge():
            (artifacts / "go-on").touch()
            (told,) = await phone.pushed()
            assert told.message["kind"] == "ended"
        await place.sleeps()

        # Saturday is skipped; on Monday the VM slept until half past eight.
        model.script.agent(*morning_steps(slow=False))
        async with place.bridge() as bridge:
            place.clock.jump_to((friday + timedelta(days=1, hours=1)).timestamp())
            place.clock.jump_to((friday + timedelta(days=3, minutes=30)).timestamp())
            assert len(await phone.pushed(2)) == 2
            looked.bridge = bridge
            await finds_it_done(looked)
        fridays, mondays = place.schedule_turns()
        assert [turn["outcome"] for turn in (fridays, mondays)] == ["complete", "complete"]
        assert "30 minutes late" in mondays["notice"]
        assert len({pushed.message["key"] for pushed in phone.taken}) == 2
        assert not looked.complaints


async def subscribes(bridge: BridgeProcess, cookie: str, phone: PushService) -> None:
    """Subscribe as a browser does when notifications are enabled; Chromium's own push service is unavailable here."""
    headers = {"Cookie": cookie, "Origin": bridge.url}
    async with bridge.http(headers=headers) as session:
        async with session.get("/push/key") as answer:
            phone.public_key = (await answer.json())["key"]
        body = msgspec.json.encode(phone.browser().subscription)
        async with session.post("/push/subscriptions", data=body) as answer:
            assert answer.status == 201, await answer.text()


async def asks_for_it(stack: PageStack, model: OfflineModel, evening: datetime) -> None:
    due = (evening + timedelta(days=1)).strftime("%Y-%m-%dT08:00")
    wish = {"content": WORK, "due": due, "rrule": "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"}
    model.script.agent(
        {"tool": "mcp__sprite__schedule", "input": wish, "match": ASKED},
        {"text": "I will, every weekday at eight.", "on": "result"},
    )
    async with stack.page(timezone_id=str(ZONE)) as page:
        await ask(page, ASKED)
        await expect(page.get_by_text("I will, every weekday at eight.").last).to_be_visible()
        await shoot(page, "promise-asked")


async def finds_it_done(stack: PageStack) -> None:
    async with stack.page(timezone_id=str(ZONE)) as page:
        await expect(page.get_by_role("heading", name="Open actions").last).to_be_visible()
        await expect(page.get_by_text("Your open actions are on a card.").last).to_be_visible()
        await shoot(page, "promise-kept")
