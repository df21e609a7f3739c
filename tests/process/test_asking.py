"""API missions over a bridge's link: each event arrives once and in order until the end, despite disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from bridge.api.missions import AskError, Asking
from bridge.client.turns import Began, Grew, News, Reader
from bridge.hub.hub import Relay
from sprite.protocol.events import Complete, Ending, Failed, Interrupted, Started, TextDelta, WholeText
from sprite.protocol.memory import ChatResult
from sprite.protocol.messages import Ack, Error, Heartbeat, PermissionRequest, PermissionResolved
from sprite.protocol.shapes import ChatMessage
from tests.chat_stand_in import StandIn, Visitor, state_sync
from tests.relay_stage import Street, relaying

MISSION = "00000000-0000-4000-8000-000000000001"


@dataclass
class Stage:
    sprite: StandIn
    relay: Relay
    asking: Asking

    async def connected(self) -> Visitor:
        """Connect the bridge's link and send a first state."""
        visitor = await self.sprite.visitor()
        await visitor.welcome(sync=state_sync())
        return visitor

    async def taken(self, status: str = "accepted") -> Visitor:
        """Connect the link, receive the mission and acknowledge it."""
        visitor = await self.connected()
        sent = await visitor.receive("mission")
        assert sent["id"] == MISSION
        await visitor.send(Ack(status), reply_to=MISSION)  # type: ignore[arg-type]
        return visitor


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with (
        StandIn() as sprite,
        relaying(Street(sprite.port), linger_seconds=0.01) as relay,
        Asking(relay) as asking,
    ):
        yield Stage(sprite, relay, asking)


@asynccontextmanager
async def asked(stage: Stage) -> AsyncIterator[asyncio.Task[list[News]]]:
    """Collect all news of a mission's turn until its end."""
    async with stage.asking.asked("ada", "Hello", MISSION, asked_by="phone") as changes:

        async def everything() -> list[News]:
            reader = Reader()
            return [each async for turn in changes if turn is not None for each in reader.news(turn)]

        yield asyncio.create_task(everything())


def done(text: str = "Done.") -> Complete:
    return Complete(MISSION, text=text, usage=None, cost_usd=None, duration_ms=1)


def line(role: str, text: str, status: str, mission_id: str = MISSION, number: int = 1) -> ChatMessage:
    return ChatMessage(number, role, text, 1.0, mission_id, status=status)  # type: ignore[arg-type]


def texts(heard: list[News]) -> str:
    return "".join(each.piece for each in heard if isinstance(each, Grew))


async def test_asker_receives_only_its_mission(stage: Stage) -> None:
    async with asked(stage) as hearing:
        visitor = await stage.taken()
        await visitor.send(Started("another"), seq=1)
        await visitor.send(Started(MISSION), seq=2)
        await visitor.send(TextDelta("another", "not this"))
        await visitor.send(TextDelta(MISSION, "Do"))
        await visitor.send(TextDelta(MISSION, "ne."))
        await visitor.send(PermissionRequest("q", "another", "Bash", {}), seq=3)
        await visitor.send(WholeText(MISSION, "Done."), seq=4)
        await visitor.send(PermissionRequest("r", MISSION, "Bash", {"command": "ls"}), seq=5)
        await visitor.send(PermissionResolved("r", "allow"), seq=6)
        await visitor.send(done(), seq=7)
        heard = await hearing
    assert texts(heard) == "Done."
    assert [type(each) for each in heard if not isinstance(each, Grew)] == [Began, PermissionRequest, Complete]


async def test_reconnect_resumes_without_duplicates(stage: Stage) -> None:
    async with asked(stage) as hearing:
        visitor = await stage.taken()
        await visitor.send(Started(MISSION), seq=1)
        await visitor.send(WholeText(MISSION, "One."), seq=2)
        await visitor.send(TextDelta(MISSION, "Tw"))
        visitor.cut()
        visitor = await stage.sprite.visitor()
        resume = (await visitor.welcome(last_seq=4))["resume"]
        assert resume == {"epoch": "e1", "last_seq": 2}
        await visitor.send(WholeText(MISSION, "One."), seq=2)
        await visitor.send(WholeText(MISSION, "Two."), seq=3)
        await visitor.send(done("Two."), seq=4)
        assert texts(await hearing) == "One.Two."


async def test_unacknowledged_mission_is_resent_with_same_id(stage: Stage) -> None:
    async with asked(stage) as hearing:
        visitor = await stage.connected()
        await visitor.receive("mission")
        visitor.cut()
        visitor = await stage.sprite.visitor()
        await visitor.welcome()
        assert (await visitor.receive("mission"))["id"] == MISSION
        await visitor.send(Ack("queued", position=2), reply_to=MISSION)
        await visitor.send(done(""), seq=1)
        assert await hearing == [done("")]


@pytest.mark.parametrize(
    ("lines", "ending"),
    [
        (
            [line("user", "Hello", "complete"), line("assistant", "Hi.", "complete")],
            Complete(MISSION, "Hi.", None, None, 0),
        ),
        ([line("user", "Hello", "complete")], Complete(MISSION, "", None, None, 0)),
        ([line("user", "Hello", "interrupted"), line("assistant", "H", "interrupted")], Interrupted(MISSION)),
        (
            [line("user", "Hello", "error"), line("error", "No money.", "error")],
            Failed(MISSION, "failed", "No money.", retryable=True),
        ),
    ],
)
async def test_finished_mission_is_answered_from_chat(stage: Stage, lines: list[ChatMessage], ending: Ending) -> None:
    async with asked(stage) as hearing:
        visitor = await stage.taken("duplicate")
        # The mission is older than the newest page of chat lines.
        first = await visitor.receive("memory")
        await visitor.send(ChatResult([line("user", "x", "complete", "another", 400)]), reply_to=first["id"])
        second = await visitor.receive("memory")
        assert second["payload"]["before"] == 400
        await visitor.send(ChatResult(lines), reply_to=second["id"])
        assert (await hearing)[-1] == ending


async def test_duplicate_mission_without_chat_fails(stage: Stage) -> None:
    async with asked(stage) as hearing:
        visitor = await stage.taken("duplicate")
        await visitor.send(ChatResult([]), reply_to=(await visitor.receive("memory"))["id"])
        with pytest.raises(AskError, match="no longer in the chat"):
            await hearing


async def test_ending_is_found_after_new_epoch(stage: Stage) -> None:
    async with asked(stage) as hearing:
        visitor = await stage.taken()
        await visitor.send(Started(MISSION), seq=1)
        visitor.cut()
        visitor = await stage.sprite.visitor()
        # A new epoch: the events in between are lost.
        await visitor.welcome(epoch="e2", last_seq=90, sync=state_sync())
        asked_for = await visitor.receive("memory")
        lines = [line("user", "Hello", "running")]
        await visitor.send(ChatResult(lines), reply_to=asked_for["id"])
        await visitor.send(state_sync())
        asked_for = await visitor.receive("memory")
        lines = [line("user", "Hello", "complete"), line("assistant", "Hi.", "complete")]
        await visitor.send(ChatResult(lines), reply_to=asked_for["id"])
        assert (await hearing)[-1] == Complete(MISSION, "Hi.", None, None, 0)


async def test_refused_mission_raises_reason(stage: Stage) -> None:
    async with asked(stage) as hearing:
        visitor = await stage.connected()
        await visitor.receive("mission")
        await visitor.send(Error("too_long", "The message is too long."), reply_to=MISSION)
        with pytest.raises(AskError, match="too long") as refused:
            await hearing
    assert refused.value.code == "too_long"


async def test_early_disconnect_stops_mission(stage: Stage) -> None:
    async with asked(stage) as hearing:
        visitor = await stage.taken()
        await visitor.send(Started(MISSION), seq=1)
        hearing.cancel()
    assert (await visitor.receive("interrupt"))["payload"] == {"mission_id": MISSION}


async def test_ended_mission_is_not_stopped(stage: Stage) -> None:
    async with asked(stage) as hearing:
        visitor = await stage.taken()
        await visitor.send(done(), seq=1)
        await hearing
    # The hub closes, because no request is left.
    while (message := await visitor.next()) is not None:
        assert message["type"] != "interrupt"


async def test_slow_program_receives_ending(stage: Stage) -> None:
    async with stage.asking.asked("ada", "Hello", MISSION, asked_by="phone") as changes:
        visitor = await stage.taken()
        await anext(changes)
        await visitor.send(WholeText(MISSION, "Hi."), seq=1)
        await visitor.send(done("Hi."), seq=2)
        with stage.relay.held("ada") as room:
            # The answer arrives after the ending.
            beat = asyncio.create_task(room.ask(Heartbeat()))
            await visitor.send(Ack("done"), reply_to=(await visitor.receive("heartbeat"))["id"])
            await beat
        (turn,) = [turn async for turn in changes]
        assert turn is not None
        assert turn.ending == done("Hi.")


async def test_endless_answer_is_aborted(stage: Stage) -> None:
    async with stage.asking.asked("ada", "Hello", MISSION, asked_by="phone") as changes:
        visitor = await stage.taken()
        for _ in range(10):
            await visitor.send(TextDelta(MISSION, "x" * 900_000))
        with stage.relay.held("ada") as room:
            # The answer arrives after all of the text.
            beat = asyncio.create_task(room.ask(Heartbeat()))
            await visitor.send(Ack("done"), reply_to=(await visitor.receive("heartbeat"))["id"])
            await beat
        with pytest.raises(AskError, match="too long"):
            _ = [turn async for turn in changes]


async def test_quiet_mission_yields_keepalive(stage: Stage) -> None:
    async with stage.asking.asked("ada", "Hello", MISSION, asked_by="phone", quiet_seconds=0.01) as changes:
        async for turn in changes:
            if turn is None:
                break


async def test_stopping_relay_fails_open_requests() -> None:
    async with StandIn() as sprite, Relay(Street(sprite.port)) as relay, Asking(relay) as asking:
        stage = Stage(sprite, relay, asking)
        async with asked(stage) as hearing:
            await stage.taken()
            await relay.__aexit__(None, None, None)
            with pytest.raises(AskError, match="lost its connection"):
                await hearing
