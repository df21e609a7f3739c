"""Doors whose sprite sleeps, does not answer, or changes its memory: what a program gets meanwhile."""

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
        """Nobody can be reached any more."""

        async def refuse(_report: Report) -> None:
            raise HostError("The sprite is not there.")

        self.street.before = refuse
        visitor.cut()
        await eventually(lambda: not self.relay.is_ready("ada"), "the link is still there")


async def answer_boot(visitor: Visitor, text: str) -> None:
    asked = await visitor.receive("memory")
    assert asked["payload"]["op"] == "boot"
    await visitor.send(BootResult(text), reply_to=asked["id"])


@asynccontextmanager
async def staged(folder: Path, seconds: float) -> AsyncIterator[Stage]:
    """Both doors, whose sprite is waited for so long."""
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


async def test_a_sprite_that_does_not_come_in_time_is_a_503_and_what_was_sent_can_be_sent_again(hasty: Stage) -> None:
    status, answer, retry = await hasty.observe()
    assert (status, answer["error"]["code"], retry) == (503, "unavailable", "5")
    assert (await hasty.boot())[0] == 503


async def test_what_a_sprite_says_of_turns_is_the_answer(patient: Stage) -> None:
    observing = asyncio.create_task(patient.observe())
    visitor = await patient.connected()
    first = await visitor.receive("observe")
    visitor.cut()
    visitor = await patient.sprite.visitor()
    await visitor.welcome()
    # It is sent again, as the same message.
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


async def test_while_the_sprite_sleeps_the_text_given_out_last_is_the_answer(patient: Stage) -> None:
    asking = asyncio.create_task(patient.boot())
    visitor = await patient.connected()
    # Asked for again: the state that came first stands for what was not heard.
    await answer_boot(visitor, "One.")
    await answer_boot(visitor, "One.")
    assert await asking == (200, "One.")
    await patient.asleep(visitor)
    assert await patient.boot() == (200, "One.")
    # Beside that it is woken, and says what is new.
    patient.street.before = None
    visitor = await patient.sprite.visitor()
    await visitor.welcome()
    await answer_boot(visitor, "Two.")
    asking = asyncio.create_task(patient.boot())
    await answer_boot(visitor, "Two.")
    assert await asking == (200, "Two.")


async def test_after_a_forget_nothing_older_is_given_out(patient: Stage) -> None:
    asking = asyncio.create_task(patient.boot())
    visitor = await patient.connected()
    await answer_boot(visitor, "Secret.")
    await answer_boot(visitor, "Secret.")
    assert (await asking)[1] == "Secret."
    asking = asyncio.create_task(patient.boot())
    asked = await visitor.receive("memory")
    # Forgotten between the question and its answer, which may still have it.
    await visitor.send(state_sync())
    await visitor.send(BootResult("Secret."), reply_to=asked["id"])
    await answer_boot(visitor, "Forgotten.")
    assert (await asking)[1] == "Forgotten."
    await patient.asleep(visitor)
    assert await patient.boot() == (200, "Forgotten.")


async def test_after_memory_has_changed_the_texts_are_asked_for_anew(patient: Stage) -> None:
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


async def test_a_project_that_is_none_wakes_nobody(patient: Stage) -> None:
    for project in ("../..", "relative/path", "/a\n", "x" * 1001, "https://ada:secret@example.org/a"):
        status, answer = await patient.boot(project)
        assert (status, json.loads(answer)["error"]["code"]) == (400, "bad_project")
    assert patient.street.reached == 0
