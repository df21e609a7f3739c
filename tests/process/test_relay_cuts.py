"""Connection cuts during missions of a real sprite: every page receives every durable event exactly once, in order.

With this seed the first four connections break after 50, 693, 4,597 and 8,529 bytes: in the handshake, between the
welcome and the first state, and in turns.

`SOAK_CUTS` sets the number of cuts: `SOAK_CUTS=200 pytest tests/process/test_relay_cuts.py`.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

from tests.chaos_proxy import ChaosProxy
from tests.harness import PATIENCE, running_sprite
from tests.inspection import ENDINGS, durable_events, endings
from tests.relay_stage import Message, Page, Stage, Street, stage
from tests.scripted_model import OfflineModel

CUTS = int(os.environ.get("SOAK_CUTS", "4"))
SEED = 20264307
#: Readers that keep their page open; the others disconnect and resume.
PATIENT = (True, True, False, False) if "SOAK_CUTS" in os.environ else (True, False)


class Reader:
    """A person whose page disconnects and resumes; missions are sent again until acknowledged."""

    def __init__(self, stage_: Stage, rests: asyncio.Event, *, patient: bool, dice: random.Random) -> None:
        self._stage = stage_
        self.rests = rests
        self._patient = patient
        self._dice = dice
        self.resume: Message = {}
        self.first_seq = 0
        self.seqs: list[int] = []
        self.syncs = 0
        self.unacked: dict[str, str] = {}
        self.unfinished: set[str] = set()
        self.sent: list[str] = []

    async def read(self, until: asyncio.Event) -> None:
        """Read page after page until `until` is set."""
        while not until.is_set():
            async with self._stage.page(**self.resume) as page:
                for mission_id, text in self.unacked.items():
                    await page.send("mission", {"text": text}, mission_id)
                await self._one_page(page, until)

    async def _one_page(self, page: Page, until: asyncio.Event) -> None:
        stays = 10**9 if self._patient else self._dice.randint(1, 40)
        ending = asyncio.create_task(until.wait())
        try:
            while stays > 0 and not until.is_set():
                hearing = asyncio.create_task(page.next())
                await asyncio.wait({hearing, ending}, return_when=asyncio.FIRST_COMPLETED)
                if not hearing.done():
                    hearing.cancel()
                    return
                message = hearing.result()
                if message is None:
                    return
                self._hear(message)
                stays -= 1
                if self.resume and not self.unfinished and not self.rests.is_set():
                    await self._say(page)
        finally:
            ending.cancel()

    async def _say(self, page: Page) -> None:
        text = f"run `echo {len(self.sent)}`"
        mission_id = await page.send("mission", {"text": text})
        self.unacked[mission_id] = text
        self.unfinished.add(mission_id)
        self.sent.append(mission_id)

    def _hear(self, message: Message) -> None:
        payload = message["payload"]
        if message["type"] == "auth_ok":
            if self.resume.get("epoch") != payload["epoch"]:
                self.resume = {"epoch": payload["epoch"], "last_seq": payload["last_seq"]}
                self.first_seq = payload["last_seq"]
        elif message["type"] == "state_sync":
            self.syncs += 1
        elif message["type"] == "ack" and message.get("reply_to"):
            self.unacked.pop(message["reply_to"], None)
        elif message["type"] == "agent_event" and payload["event"] in ENDINGS:
            self.unfinished.discard(payload["mission_id"])
        if "seq" in message:
            self.seqs.append(message["seq"])
            self.resume["last_seq"] = message["seq"]


async def test_page_after_cut_receives_each_event_once(model: OfflineModel, workspace: Path) -> None:
    dice = random.Random(SEED)  # noqa: S311 - reproducible, not a secret
    async with (
        running_sprite(workspace, model.url) as sprite,
        ChaosProxy(sprite.port, CUTS, SEED) as network,
        stage(Street(network.port, sprite.token)) as stage_,
        asyncio.timeout(PATIENCE + 2 * CUTS),
    ):
        readers = [Reader(stage_, network.calm, patient=patient, dice=dice) for patient in PATIENT]
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for reader in readers:
                group.create_task(reader.read(over))
            await network.calm.wait()
            for reader in readers:
                while reader.unacked or reader.unfinished:  # noqa: ASYNC110 - pages come and go
                    await asyncio.sleep(0.02)
            # All missions have ended, and every reader has received the last event.
            async with sprite.client() as witness:
                await witness.ask("heartbeat")
                last = durable_events(workspace)[-1]["seq"]
            for reader in readers:
                while not reader.seqs or reader.seqs[-1] < last:  # noqa: ASYNC110 - pages come and go
                    await asyncio.sleep(0.02)
            over.set()
        written = [event["seq"] for event in durable_events(workspace)]
        sent = [mission for reader in readers for mission in reader.sent]
        assert len(sent) > len(readers)
        for reader in readers:
            assert reader.syncs == 1
            expected = [seq for seq in written if reader.first_seq < seq <= reader.seqs[-1]]
            assert reader.seqs == expected
        assert {mission: endings(workspace)[mission] for mission in sent} == {mission: ["complete"] for mission in sent}
