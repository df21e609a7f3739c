"""A page that its person leaves open: it reconnects, resumes, and resends unacknowledged messages."""

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

#: Opens a WebSocket with this `resume`.
Connect = Callable[[Message], AbstractAsyncContextManager[PageClient]]


@dataclass(frozen=True, slots=True)
class Heard:
    """The events that a page received of one sequence; see FaithfulPage."""

    seqs: list[int]
    events: dict[int, tuple[str, Message]]


class FaithfulPage:
    """`connect` opens the bridge that the person's browser reaches at that moment."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._page: PageClient | None = None
        self._epoch = ""
        self.seqs: list[int] = []
        #: The durable events, `(type, payload)` by number.
        self.events: dict[int, tuple[str, Message]] = {}
        #: Ended missions in order, and the complete ones among them.
        self.ended: list[str] = []
        self.completed: list[str] = []
        #: Unacknowledged messages.
        self.unsaid: dict[str, str] = {}
        #: The number of new sequences, each of which starts with a state instead of events.
        self.began_anew = 0
        #: The ended sequences: `seqs` and `events` of each, oldest first.
        self.earlier: list[Heard] = []
        self.connections = 0
        self.is_ready = False

    async def say(self, text: str) -> str:
        """Queue a mission; it is sent once a bridge is reachable. Return its id."""
        mission_id = str(uuid.uuid4())
        self.unsaid[mission_id] = text
        if self.is_ready and self._page is not None:
            with suppress(aiohttp.ClientError, OSError):
                await self._page.send("mission", {"text": text}, mission_id)
        return mission_id

    async def stay(self) -> None:
        """Reconnect repeatedly until cancelled."""
        while True:
            with suppress(aiohttp.ClientError, OSError, AssertionError):
                resume = {"epoch": self._epoch, "last_seq": self.seqs[-1]} if self.seqs else {}
                async with self._connect(resume) as self._page:
                    self.connections += 1
                    while (message := await self._page.next()) is not None:
                        # The client's record of all messages would grow without bound.
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
    """Keep pages connected while the block runs."""
    tasks = [asyncio.create_task(page.stay()) for page in pages]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
