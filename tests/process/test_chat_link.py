"""The terminal's link over a real relay: each message arrives once, even when the bridge restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from bridge.client.link import BridgeLink, BridgeUnreachableError, NotConnectedError
from bridge.terminal.endpoints import RemoteEndpoint
from sprite.protocol.events import AgentEvent, WholeText
from sprite.protocol.frames import RelayedMessage, encode
from sprite.protocol.messages import Ack, AuthOk, Error, Gap, LinkState, Mission, StateSync, System
from tests.chat_stand_in import StandIn, Visitor, state_sync
from tests.harness import PATIENCE
from tests.relay_stage import Stage, Street, stage


class Place:
    """A sprite, the current relay, and the street by which a link finds it."""

    def __init__(self, sprite: StandIn) -> None:
        self.sprite = sprite
        self.street = Street(sprite.port)
        self.bridge: Stage | None = None
        self.visitor: Visitor

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        if self.bridge is None:
            raise BridgeUnreachableError("No bridge.")
        return await self.bridge.session.ws_connect(f"{self.bridge.url}/ws/local")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run a bridge during the block."""
        async with stage(self.street) as self.bridge:
            yield
        self.bridge = None


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Place, BridgeLink]]:
    async with StandIn() as sprite:
        place = Place(sprite)
        async with place.running(), BridgeLink(place.connect) as link:
            place.visitor = await sprite.visitor()
            await place.visitor.welcome(last_seq=10, sync=state_sync())
            await heard(link, StateSync)
            yield place, link


async def heard(link: BridgeLink, kind: type) -> RelayedMessage:
    async with asyncio.timeout(PATIENCE):
        async for message in link:
            if isinstance(message.payload, kind):
                return message
    raise AssertionError


async def until_ready(link: BridgeLink) -> None:
    while (await heard(link, LinkState)).payload != LinkState("ready", ""):
        pass


def said(text: str) -> WholeText:
    return WholeText("m1", text)


async def test_link_resumes_and_resends_after_bridge_restart() -> None:
    """The link resends every message without an answer."""
    async with StandIn() as sprite:
        place = Place(sprite)
        async with BridgeLink(place.connect) as link:
            async with place.running():
                visitor = await sprite.visitor()
                await visitor.welcome(last_seq=10, sync=state_sync())
                await heard(link, StateSync)
                await visitor.send(said("eleven"), seq=11)
                await heard(link, AgentEvent)
                mission = link.post(Mission(text="hello"))
                assert (await visitor.receive("mission"))["id"] == mission
            assert isinstance((await heard(link, LinkState)).payload, LinkState)
            second = link.post(Mission(text="typed while nobody was there"))
            with pytest.raises(NotConnectedError):
                link.post(System(action="status"))
            async with place.running():
                visitor = await sprite.visitor()
                await visitor.welcome(last_seq=12, sync=state_sync())
                own = await sprite.visitor()
                assert (await own.welcome(last_seq=12))["resume"] == {"epoch": "e1", "last_seq": 11}
                await own.send(said("twelve"), seq=12)
                assert (await heard(link, AgentEvent)).payload == said("twelve")
                assert [(await visitor.receive("mission"))["id"] for _ in range(2)] == [mission, second]
                await visitor.send(Ack("duplicate"), reply_to=mission)
                assert (await heard(link, Ack)).reply_to == mission


async def test_link_cut_before_state_requests_it_again() -> None:
    resumes: list[object] = []

    async def breaks_off(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        resumes.append(json.loads(await socket.receive_str())["payload"])
        await socket.send_str(encode(AuthOk(1, "0.0", "e1", 10, {})).decode())
        if len(resumes) == 2:
            await socket.send_str(encode(state_sync()).decode())
        return socket

    application = web.Application()
    application.router.add_get("/ws", breaks_off)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/ws"
    try:
        async with aiohttp.ClientSession() as session, BridgeLink(lambda: session.ws_connect(url)) as link:
            await heard(link, StateSync)
            async with asyncio.timeout(PATIENCE):
                while len(resumes) < 3:  # noqa: ASYNC110 - the link reconnects by itself
                    await asyncio.sleep(0.02)
    finally:
        await runner.cleanup()
    assert resumes[:3] == [{}, {}, {"epoch": "e1", "last_seq": 10}]


async def test_reply_reaches_its_request() -> None:
    async with connected() as (place, link):
        asking = asyncio.create_task(link.ask(System(action="flush"), timeout_seconds=10))
        request = await place.visitor.receive("system")
        await place.visitor.send(said("meanwhile"), seq=11)
        await place.visitor.send(Ack("done"), reply_to=request["id"])
        assert (await asking).payload == Ack("done")
        assert (await heard(link, AgentEvent)).payload == said("meanwhile")


async def test_request_fails_when_sprite_disconnects() -> None:
    """The link is ready again after the sprite has reconnected."""
    async with connected() as (place, link):
        asking = asyncio.create_task(link.ask(System(action="status"), timeout_seconds=10))
        await place.visitor.receive("system")
        place.visitor.cut()
        answer = (await asking).payload
        assert isinstance(answer, Error)
        assert answer.code == "unavailable"
        assert not link.is_ready
        place.visitor = await place.sprite.visitor()
        await place.visitor.welcome(last_seq=10)
        await until_ready(link)
        assert link.is_ready


async def test_gap_moves_cursor_to_state() -> None:
    """The link ignores events that are older than the state."""
    async with connected() as (place, link):
        place.visitor.cut()
        visitor = await place.sprite.visitor()
        await visitor.welcome(last_seq=90)
        await visitor.send(Gap(oldest_seq=80))
        await visitor.send(state_sync())
        await heard(link, StateSync)
        await visitor.send(said("old"), seq=90)
        await visitor.send(said("new"), seq=91)
        assert (await heard(link, AgentEvent)).payload == said("new")


async def test_new_epoch_resets_cursor() -> None:
    async with connected() as (place, link):
        place.visitor.cut()
        visitor = await place.sprite.visitor()
        await visitor.welcome(epoch="e2", last_seq=2, sync=state_sync())
        await visitor.send(said("new"), seq=3)
        assert (await heard(link, AgentEvent)).payload == said("new")


async def test_unreachable_bridge_raises_error() -> None:
    async def nobody() -> aiohttp.ClientWebSocketResponse:
        raise ConnectionRefusedError

    async with BridgeLink(nobody) as link:
        with pytest.raises(BridgeUnreachableError, match="cannot be reached"):
            await heard(link, StateSync)


async def test_link_gives_up_when_bridge_stays_away() -> None:
    async with StandIn() as sprite:
        place = Place(sprite)
        async with BridgeLink(place.connect, patience_seconds=0.1) as link:
            async with place.running():
                await (await sprite.visitor()).welcome(last_seq=10, sync=state_sync())
                await heard(link, StateSync)
            with pytest.raises(BridgeUnreachableError, match="has been unreachable"):
                await heard(link, StateSync)


@pytest.mark.parametrize(("status", "words"), [(401, "does not know this token"), (429, "Too many"), (404, "404")])
async def test_rejected_connection_raises_error(status: int, words: str) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=status)

    application = web.Application()
    application.router.add_get("/ws", refuse)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with RemoteEndpoint(url, "wrong") as endpoint, BridgeLink(endpoint.connect) as link:
            with pytest.raises(BridgeUnreachableError, match=words):
                await heard(link, StateSync)
    finally:
        await runner.cleanup()
