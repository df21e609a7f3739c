"""Sprite hubs that the bridge holds open without a page, and the events their observers receive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bridge.hub.hub import Relay
from bridge.hub.link import LinkDownError
from bridge.hub.room import Observer
from sprite.protocol.events import Complete, Started, WholeText
from sprite.protocol.messages import Ack, Heartbeat
from tests.chat_stand_in import StandIn, state_sync
from tests.inspection import eventually
from tests.relay_stage import Street, relaying, stage

if TYPE_CHECKING:
    from sprite.protocol.frames import ServerMessage


class Diary(Observer):
    """An observer that records every event."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def opened(self, sprite: str) -> None:
        self.entries.append(f"{sprite} opened")

    def closed(self, sprite: str, *, at_rest: bool) -> None:
        self.entries.append(f"{sprite} closed {'at rest' if at_rest else 'at work'}")

    def arrived(self, sprite: str) -> None:
        self.entries.append(f"{sprite} arrived")

    def left(self, sprite: str) -> None:
        self.entries.append(f"{sprite} left")

    def heard(self, sprite: str, message: ServerMessage) -> None:
        self.entries.append(f"{sprite} {type(message.payload).__name__}")


def done(mission_id: str) -> Complete:
    return Complete(mission_id, text="Done.", usage=None, cost_usd=None, duration_ms=1)


async def test_held_hub_opens_without_page_and_closes() -> None:
    diary = Diary()
    async with StandIn() as sprite, relaying(Street(sprite.port), [diary], linger_seconds=0.01) as relay:
        with relay.held("ada") as room:
            visitor = await sprite.visitor()
            await visitor.welcome(sync=state_sync())
            asking = asyncio.create_task(room.ask(Heartbeat()))
            asked = await visitor.receive("heartbeat")
            await visitor.send(Ack("done"), reply_to=asked["id"])
            assert await asking == Ack("done")
        await visitor.left()
        await eventually(lambda: diary.entries[-1] == "ada closed at rest", "the hub stays open")
    assert diary.entries == ["ada opened", "ada StateSync", "ada Ack", "ada closed at rest"]


async def test_bridge_request_is_resent_after_cut() -> None:
    async with StandIn() as sprite, Relay(Street(sprite.port)) as relay:
        with relay.held("ada") as room:
            visitor = await sprite.visitor()
            await visitor.welcome(sync=state_sync())
            asking = asyncio.create_task(room.ask(Heartbeat()))
            first = await visitor.receive("heartbeat")
            visitor.cut()
            visitor = await sprite.visitor()
            await visitor.welcome()
            again = await visitor.receive("heartbeat")
            assert again["id"] == first["id"]
            await visitor.send(Ack("done"), reply_to=again["id"])
            assert await asking == Ack("done")


async def test_closing_hub_fails_pending_request() -> None:
    async with StandIn() as sprite:
        async with Relay(Street(sprite.port)) as relay:
            with relay.held("ada") as room:
                await (await sprite.visitor()).welcome(sync=state_sync())
                asking = asyncio.create_task(room.ask(Heartbeat()))
                await eventually(lambda: not room.is_at_rest, "no request is pending")
        with pytest.raises(LinkDownError):
            await asking


async def test_running_turn_keeps_hub_open() -> None:
    diary = Diary()
    async with StandIn() as sprite, stage(Street(sprite.port), observers=[diary], linger_seconds=0.01) as bridge:
        async with bridge.page() as page:
            visitor = await sprite.visitor()
            await visitor.welcome(sync=state_sync())
            await page.receive("state_sync")
            await visitor.send(Started("m1", origin="agent"), seq=1)
            await page.receive("agent_event")
        await eventually(lambda: diary.entries[-1] == "local left", "the page has not left")
        for number in range(2, 12):
            heard = len(diary.entries)
            await visitor.send(WholeText("m1", "Still at it."), seq=number)
            await eventually(lambda: len(diary.entries) > heard, "the hub received no more messages")  # noqa: B023
        await visitor.send(done("m1"), seq=12)
        await visitor.left()
        await eventually(lambda: diary.entries[-1] == "local closed at rest", "the hub stays open")
