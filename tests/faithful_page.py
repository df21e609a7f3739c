"""A page as its person leaves it open: it comes again, goes on where it was, and says again what nobody has heard."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass

import aiohttp

from tests.bridge_harness import PageClient
from tests.harness import Message
from tests.inspection import ENDINGS

#: A WebSocket whose `resume` is this.
Connect = Callable[[Message], AbstractAsyncContextManager[PageClient]]


@dataclass(frozen=True, slots=True)
class Heard:
    """What a page heard of one sequence of events; see FaithfulPage."""

    seqs: list[int]
    events: dict[int, tuple[str, Message]]


class FaithfulPage:
    """`connect` opens the door that the person's browser finds at that moment."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._page: PageClient | None = None
        self._epoch = ""
        self.seqs: list[int] = []
        #: The durable events, `(type, payload)` by number.
        self.events: dict[int, tuple[str, Message]] = {}
        #: Missions that ended, in order, and those of them that are complete.
        self.ended: list[str] = []
        self.completed: list[str] = []
        #: What was typed and nobody has acknowledged.
        self.unsaid: dict[str, str] = {}
        #: How often another sequence began, which is a state and no events.
        self.began_anew = 0
        #: The sequences that ended: `seqs` and `events` of each, oldest first.
        self.earlier: list[Heard] = []
        self.connections = 0
        self.is_ready = False

    async def say(self, text: str) -> str:
        """Types a mission; it is said as soon as somebody hears it. Its id."""
        mission_id = str(uuid.uuid4())
        self.unsaid[mission_id] = text
        if self.is_ready and self._page is not None:
            with suppress(aiohttp.ClientError, OSError):
                await self._page.send("mission", {"text": text}, mission_id)
        return mission_id

    async def stay(self) -> None:
        """Comes again and again, until it is cancelled."""
        while True:
            with suppress(aiohttp.ClientError, OSError, AssertionError):
                resume = {"epoch": self._epoch, "last_seq": self.seqs[-1]} if self.seqs else {}
                async with self._connect(resume) as self._page:
                    self.connections += 1
                    while (message := await self._page.next()) is not None:
                        # Its list of everything would grow for ever.
                        self._page.received.clear()
                        await self._heard(self._page, message)
            self.is_ready = False
            await asyncio.sleep(0.1)

    async def _heard(self, page: PageClient, message: Message) -> None:
        kind, payload = message["type"], message["payload"]
        if kind == "link":
            self.is_ready = payload["state"] == "ready"
            if self.is_ready:
                for mission_id, text in self.unsaid.items():
                    await page.send("mission", {"text": text}, mission_id)
        if kind == "ack":
            self.unsaid.pop(message["reply_to"], None)
        if kind == "auth_ok" and payload["epoch"] != self._epoch:
            self._epoch = payload["epoch"]
            if self.began_anew:
                self.earlier.append(Heard(self.seqs, self.events))
            self.began_anew += 1
            self.seqs, self.events = [payload["last_seq"]], {}
        if "seq" in message:
            self.seqs.append(message["seq"])
            self.events[message["seq"]] = (kind, payload)
        if kind == "agent_event" and payload["event"] in ENDINGS:
            self.ended.append(payload["mission_id"])
            if payload["event"] == "complete":
                self.completed.append(payload["mission_id"])


@asynccontextmanager
async def staying(*pages: FaithfulPage) -> AsyncIterator[None]:
    """Has pages stay while the block runs."""
    tasks = [asyncio.create_task(page.stay()) for page in pages]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
