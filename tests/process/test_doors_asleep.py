"""API requests while the sprite sleeps, does not answer or changes its memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bridge.api.boot import Boot
from bridge.api.observations import Observations
from bridge.auth.admission import Admission
from bridge.auth.people import People
from bridge.db.open import open_database
from bridge.hub.hub import Relay
from bridge.providers.provider import HostError, Report
from sprite.protocol.memory import BootResult
from sprite.protocol.messages import Error, MemoryUpdate
from sprite.protocol.observing import Observed
from tests.chat_stand_in import StandIn, Visitor, state_sync
from tests.inspection import eventually
from tests.relay_stage import Street

TURN = {"external_id": "1", "session": "s", "at": 1795000000, "user": "Hello", "reply": "Hi."}


@dataclass
class Stage:
    sprite: StandIn
    street: Street
    relay: Relay
    session: aiohttp.ClientSession
    url: str

    async def connected(self) -> Visitor:
        visitor = await self.sprite.visitor()
        await visitor.welcome(sync=state_sync())
        return visitor

    async def boot(self, project: str = "/p") -> tuple[int, str]:
        async with self.session.get(f"{self.url}/v1/memory/boot", params={"project": project}) as response:
            return response.status, await response.text()

    async def observe(self) -> tuple[int, dict[str, Any], str]:
        body = json.dumps({"source": "p", "turns": [TURN]})
        async with self.session.post(f"{self.url}/v1/observations", data=body) as response:
            return response.status, await response.json(), response.headers.get("Retry-After", "")

    async def asleep(self, visitor: Visitor) -> None:
        """Disconnect the sprite and refuse every new connection to it."""

        async def refuse(_report: Report) -> None:
            raise HostError("The sprite is not there.")

        self.street.before = refuse
        visitor.cut()
        await eventually(lambda: not self.relay.is_ready("ada"), "the link is still open")


async def answer_boot(visitor: Visitor, text: str) -> None:
    asked = await visitor.receive("memory")
    assert asked["payload"]["op"] == "boot"
    await visitor.send(BootResult(text), reply_to=asked["id"])


@asynccontextmanager
async def staged(folder: Path, seconds: float) -> AsyncIterator[Stage]:
    """Serve both APIs, each waiting at most `seconds` for the sprite."""
    async with StandIn() as sprite, open_database(folder / "bridge.db") as database:
        people = People(database)
        _, token = await people.add("ada")
        street = Street(sprite.port)
        async with Relay(street) as relay:
            admission = Admission(people.tokens, lambda: True)
            async with Boot(admission, relay, seconds=seconds) as boot:
                application = web.Application()
                application.add_routes([*boot.table(), *Observations(admission, relay, seconds=seconds).table()])
                runner = web.AppRunner(application, shutdown_timeout=2)
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                headers = {"Authorization": f"Bearer {token}"}
                try:
                    async with aiohttp.ClientSession(headers=headers) as session:
                        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                        yield Stage(sprite, street, relay, session, url)
                finally:
                    await runner.cleanup()


@pytest.fixture
async def patient(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path, 60) as stage:
        yield stage


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path, 0.01) as stage:
        yield stage


async def test_unreachable_sprite_returns_503(hasty: Stage) -> None:
    """The response carries a `Retry-After` header."""
    status, answer, retry = await hasty.observe()
    assert (status, answer["error"]["code"], retry) == (503, "unavailable", "5")
    assert (await hasty.boot())[0] == 503


async def test_observation_result_becomes_response(patient: Stage) -> None:
    """A lost connection causes the same message to be sent again."""
    observing = asyncio.create_task(patient.observe())
    visitor = await patient.connected()
    first = await visitor.receive("observe")
    visitor.cut()
    visitor = await patient.sprite.visitor()
    await visitor.welcome()
    # The relay sends the same message again.
    again = await visitor.receive("observe")
    assert again["id"] == first["id"]
    await visitor.send(Observed(1, 0, []), reply_to=again["id"])
    assert (await observing)[:2] == (200, {"stored": 1, "known": 0, "refused": []})
    for code, expected in (("bad_request", 422), ("storage", 503)):
        observing = asyncio.create_task(patient.observe())
        await visitor.send(Error(code, "No."), reply_to=(await visitor.receive("observe"))["id"])
        status, answer, _ = await observing
        assert status == expected
        assert answer["error"]["message"].startswith("No.")


async def test_sleeping_sprite_serves_last_boot_text(patient: Stage) -> None:
    """The request also wakes the sprite, and the next one gets the new text."""
    asking = asyncio.create_task(patient.boot())
    visitor = await patient.connected()
    # The bridge asks twice, because the first state may stand for missed updates.
    await answer_boot(visitor, "One.")
    await answer_boot(visitor, "One.")
    assert await asking == (200, "One.")
    await patient.asleep(visitor)
    assert await patient.boot() == (200, "One.")
    # The request wakes the sprite, which sends the new text.
    patient.street.before = None
    visitor = await patient.sprite.visitor()
    await visitor.welcome()
    await answer_boot(visitor, "Two.")
    asking = asyncio.create_task(patient.boot())
    await answer_boot(visitor, "Two.")
    assert await asking == (200, "Two.")


async def test_forget_invalidates_cached_boot_text(patient: Stage) -> None:
    asking = asyncio.create_task(patient.boot())
    visitor = await patient.connected()
    await answer_boot(visitor, "Secret.")
    await answer_boot(visitor, "Secret.")
    assert (await asking)[1] == "Secret."
    asking = asyncio.create_task(patient.boot())
    asked = await visitor.receive("memory")
    # The forget happens between the question and its answer, which may still contain the text.
    await visitor.send(state_sync())
    await visitor.send(BootResult("Secret."), reply_to=asked["id"])
    await answer_boot(visitor, "Forgotten.")
    assert (await asking)[1] == "Forgotten."
    await patient.asleep(visitor)
    assert await patient.boot() == (200, "Forgotten.")


async def test_memory_update_refreshes_cached_boot_text(patient: Stage) -> None:
    asking = asyncio.create_task(patient.boot())
    visitor = await patient.connected()
    await answer_boot(visitor, "One.")
    await answer_boot(visitor, "One.")
    await asking
    await visitor.send(MemoryUpdate(["user.md"], [], 1), seq=1)
    await answer_boot(visitor, "Two.")
    asking = asyncio.create_task(patient.boot())
    await answer_boot(visitor, "Two.")
    assert (await asking)[1] == "Two."
    await patient.asleep(visitor)
    assert await patient.boot() == (200, "Two.")


async def test_invalid_project_does_not_wake_sprite(patient: Stage) -> None:
    for project in ("../..", "relative/path", "/a\n", "x" * 1001, "https://ada:secret@example.org/a"):
        status, answer = await patient.boot(project)
        assert (status, json.loads(answer)["error"]["code"]) == (400, "bad_project")
    assert patient.street.reached == 0
