"""The connection to a sprite, against a real server that cuts, splits and repeats."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from bridge.sprite_link import (
    Endpoint,
    LinkChange,
    LinkDownError,
    LinkError,
    LinkRefusedError,
    SpriteConnection,
)
from sprite.protocol import (
    Ack,
    AgentEvent,
    Error,
    Gap,
    Mission,
    ServerMessage,
    StateSync,
    System,
    encode,
)
from tests.chat_stand_in import TOKEN, StandIn, Visitor, state_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[StandIn, Visitor, SpriteConnection]]:
    async with StandIn() as sprite, SpriteConnection(sprite.locate) as link:
        visitor = await sprite.visitor()
        await visitor.welcome(last_seq=10, sync=state_sync())
        await next_message(link)
        yield sprite, visitor, link


async def next_message(link: SpriteConnection) -> ServerMessage:
    async with asyncio.timeout(10):
        async for item in link:
            if isinstance(item, ServerMessage):
                return item
    raise AssertionError


async def until_ready(link: SpriteConnection) -> None:
    async with asyncio.timeout(10):
        async for item in link:
            if item == LinkChange("ready"):
                return


def said(text: str) -> AgentEvent:
    return AgentEvent("m1", "text", text=text)


async def test_the_first_frame_carries_the_token_and_no_resume() -> None:
    async with StandIn() as sprite, SpriteConnection(sprite.locate, client="chat") as link:
        auth = await (await sprite.visitor()).welcome(sync=state_sync())
        assert (await next_message(link)).payload == state_sync()
    assert auth["token"] == TOKEN
    assert "resume" not in auth


async def test_frames_that_arrive_byte_by_byte_and_two_at_once_are_read_whole() -> None:
    async with connected() as (_, visitor, link):
        for byte in encode(said("slow ✓"), seq=11):
            await visitor.send_bytes(bytes([byte]))
        await visitor.send_bytes(encode(said("one"), seq=12) + encode(said("two"), seq=13))
        texts = [(await next_message(link)).payload for _ in range(3)]
    assert texts == [said("slow ✓"), said("one"), said("two")]


async def test_after_a_cut_it_resumes_where_it_was_and_a_repeated_event_is_heard_once() -> None:
    async with connected() as (sprite, visitor, link):
        await visitor.send(said("before"), seq=11)
        await next_message(link)
        visitor.cut()
        again = await sprite.visitor()
        auth = await again.welcome(last_seq=12)
        await again.send(said("before"), seq=11)
        await again.send(said("after"), seq=12)
        heard = await next_message(link)
    assert auth["resume"] == {"epoch": "e1", "last_seq": 11}
    assert heard.payload == said("after")


async def test_after_a_gap_it_resumes_from_where_the_sync_stands() -> None:
    async with connected() as (sprite, visitor, link):
        visitor.cut()
        again = await sprite.visitor()
        await again.welcome(last_seq=90)
        await again.send(Gap(oldest_seq=80))
        await again.send(state_sync())
        assert (await next_message(link)).payload == Gap(oldest_seq=80)
        assert isinstance((await next_message(link)).payload, StateSync)
        again.cut()
        auth = await (await sprite.visitor()).welcome()
    assert auth["resume"] == {"epoch": "e1", "last_seq": 90}


async def test_another_epoch_starts_counting_afresh() -> None:
    async with connected() as (sprite, visitor, link):
        visitor.cut()
        again = await sprite.visitor()
        await again.welcome(epoch="e2", last_seq=2, sync=state_sync())
        await again.send(said("new"), seq=3)
        await next_message(link)
        assert (await next_message(link)).payload == said("new")


async def test_a_mission_is_resent_with_its_id_until_it_is_acked_and_then_never_again() -> None:
    async with connected() as (sprite, visitor, link):
        mission_id = link.post(Mission(text="hello"))
        assert (await visitor.receive("mission"))["id"] == mission_id
        visitor.cut()
        second = await sprite.visitor()
        await second.welcome()
        assert (await second.receive("mission"))["id"] == mission_id
        await second.send(Ack(status="duplicate"), reply_to=mission_id)
        await next_message(link)
        second.cut()
        third = await sprite.visitor()
        await third.welcome()
        await until_ready(link)
        other = link.post(Mission(text="another"))
        assert (await third.receive("mission"))["id"] == other


async def test_missions_written_while_disconnected_go_out_in_order_with_the_next_connection() -> None:
    async with connected() as (sprite, visitor, link):
        visitor.cut()
        second = await sprite.visitor()
        posted = [link.post(Mission(text=text)) for text in ("first", "second")]
        await second.welcome()
        received = [(await second.receive("mission"))["id"] for _ in range(2)]
    assert received == posted


async def test_an_answer_finds_the_one_who_asked() -> None:
    async with connected() as (_, visitor, link):
        asking = asyncio.create_task(link.ask(System(action="flush"), timeout_seconds=10))
        request = await visitor.receive("system")
        await visitor.send(said("meanwhile"), seq=11)
        await visitor.send(Ack(status="done"), reply_to=request["id"])
        assert (await asking).payload == Ack(status="done")
        assert (await next_message(link)).payload == said("meanwhile")


async def test_a_question_on_a_connection_that_breaks_is_answered_with_an_error() -> None:
    async with connected() as (_, visitor, link):
        asking = asyncio.create_task(link.ask(System(action="status"), timeout_seconds=10))
        await visitor.receive("system")
        visitor.cut()
        with pytest.raises(LinkDownError):
            await asking
        with pytest.raises(LinkDownError):
            link.post(System(action="status"))


async def test_messages_of_a_newer_sprite_are_passed_over() -> None:
    async with connected() as (_, visitor, link):
        await visitor.send_bytes(b'{"type":"horoscope","id":"x","payload":{}}\n')
        await visitor.send_bytes(b'{"type":"agent_event","id":"x","payload":{"event":"yawn"}}\n')
        await visitor.send(said("known"), seq=11)
        assert (await next_message(link)).payload == said("known")


async def test_a_peer_that_talks_garbage_is_left_and_tried_again() -> None:
    async with connected() as (sprite, visitor, _link):
        await visitor.send_bytes(b"\xff\xfe garbage\n")
        assert (await (await sprite.visitor()).welcome())["resume"] == {"epoch": "e1", "last_seq": 10}


async def test_a_wrong_token_ends_it_in_the_server_s_words() -> None:
    async with StandIn() as sprite, SpriteConnection(sprite.locate) as link:
        visitor = await sprite.visitor()
        await visitor.receive("auth")
        await visitor.send(Error(code="unauthorized", message="The token is wrong."))
        with pytest.raises(LinkRefusedError, match="The token is wrong"):
            await next_message(link)


async def test_where_nobody_ever_answered_it_gives_up() -> None:
    async with StandIn() as sprite:
        free = sprite.port

    async def locate() -> Endpoint:
        return Endpoint("127.0.0.1", free, TOKEN)

    async with SpriteConnection(locate) as link:
        with pytest.raises(LinkError, match="No sprite answers"):
            await next_message(link)
