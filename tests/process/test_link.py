"""The link to one sprite: reports to its listener, retries, and letting the sprite sleep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from bridge.hub.link import Link, LinkChange
from bridge.providers.provider import HostError, Reached, Report
from sprite.protocol.events import WholeText
from sprite.protocol.frames import ServerMessage, encode
from sprite.protocol.messages import Ack, AuthOk, StateSync
from tests.chat_stand_in import StandIn, Visitor, state_sync
from tests.harness import PATIENCE
from tests.relay_stage import Street


class Audience:
    """A listener that records each call."""

    def __init__(self) -> None:
        self.rests = False
        self.awaits_state = False
        self.may_speak = True
        self.why_silent = "Another bridge has it."
        self.stale_epochs: list[int] = []
        self.first: list[bytes] = []
        self.changes: list[LinkChange] = []
        self.welcomes: list[tuple[str, bool]] = []
        self.messages: list[ServerMessage] = []
        self._told = asyncio.Event()

    def stale(self, epoch: int, newest: int) -> None:
        del newest
        self.stale_epochs.append(epoch)

    def died(self) -> None:
        raise AssertionError("the link died without a close by its owner")

    def changed(self, change: LinkChange) -> None:
        self.changes.append(change)
        self._told.set()

    def welcomed(self, welcome: AuthOk, *, continues: bool) -> Sequence[bytes]:
        self.welcomes.append((welcome.epoch, continues))
        return self.first

    def heard(self, message: ServerMessage) -> None:
        self.messages.append(message)
        self._told.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._told.clear()
                await self._told.wait()

    async def until_state(self, state: str, detail: str = "") -> None:
        await self.until(lambda: any(c.state == state and detail in c.detail for c in self.changes[-1:]))

    @property
    def states(self) -> list[str]:
        return [change.state for change in self.changes]


class Call:
    """A link with its fake sprite, its listener and the route between them."""

    def __init__(self, sprite: StandIn, street: Street, audience: Audience, link: Link) -> None:
        self.sprite = sprite
        self.street = street
        self.audience = audience
        self.link = link

    async def answered(self, last_seq: int = 10) -> Visitor:
        visitor = await self.sprite.visitor()
        await visitor.welcome(last_seq=last_seq)
        await self.audience.until(lambda: self.link.is_ready)
        return visitor


@asynccontextmanager
async def calling(**options: float) -> AsyncIterator[Call]:
    async with StandIn() as sprite:
        street, audience = Street(sprite.port), Audience()

        async def reach(report: Report) -> Reached:
            return await street.reach("local", report)

        with pytest.MonkeyPatch.context() as patch:
            for name, seconds in options.items():
                patch.setattr(f"bridge.hub.link._{name.upper()}", seconds)
            async with Link("local", reach, audience) as link:
                yield Call(sprite, street, audience, link)


async def test_link_reassembles_split_and_merged_frames() -> None:
    async with calling() as call:
        visitor = await call.answered()
        events = [WholeText("m", text) for text in ("slow ✓", "one", "two")]
        for byte in encode(events[0], seq=11):
            await visitor.send_bytes(bytes([byte]))
        await visitor.send_bytes(encode(events[1], seq=12) + encode(events[2], seq=13))
        await call.audience.until(lambda: len(call.audience.messages) == 3)
    assert [message.payload for message in call.audience.messages] == events


async def test_link_sends_first_messages_before_others() -> None:
    async with calling() as call:
        call.audience.first = [encode(Ack("done"), message_id="kept")]
        visitor = await call.answered()
        await call.link.send(encode(Ack("done"), message_id="later"))
        assert [(await visitor.receive("ack"))["id"] for _ in range(2)] == ["kept", "later"]


async def test_lower_seq_under_same_epoch_resyncs() -> None:
    """A sprite restored from an older disk reports a lower `last_seq`, so the link does not resume."""
    async with calling() as call:
        visitor = await call.answered(last_seq=10)
        visitor.cut()
        await call.audience.until_state("unavailable")
        visitor = await call.answered(last_seq=5)
        await visitor.send(state_sync())
        await visitor.send(WholeText("m", "six"), seq=6)
        await call.audience.until(lambda: len(call.audience.messages) == 2)
    assert call.audience.welcomes == [("e1", False), ("e1", False)]
    assert isinstance(call.audience.messages[0].payload, StateSync)


async def test_silent_connection_is_pinged_then_dropped() -> None:
    # `answer_seconds` is longer than a busy machine delays the first answer.
    async with calling(silent_seconds=0.1, answer_seconds=3.0) as call:
        visitor = await call.answered()
        asked = await visitor.receive("system")
        await visitor.send(Ack("done"), reply_to=asked["id"])
        await visitor.receive("system")
        # This ping gets no answer.
        await call.audience.until_state("unavailable", "does not answer any more")
        await call.answered()
    assert call.audience.messages == []


async def test_sleeping_sprite_stays_asleep_without_demand() -> None:
    async with calling(silent_seconds=0.05, answer_seconds=0.05) as call:
        call.audience.rests = True
        visitor = await call.answered()
        visitor.cut()
        await call.audience.until_state("ready", "Asleep")
        assert not call.link.is_ready
        reached = call.street.reached
        await asyncio.sleep(0.5)
        assert call.street.reached == reached
        call.audience.rests = False
        call.link.nudge()
        await call.answered()
        assert "unavailable" not in call.audience.states


async def test_permanent_host_error_waits_for_nudge() -> None:
    async def refuses(_: Report) -> None:
        raise HostError("The token of the organisation is wrong.", retryable=False)

    async with calling() as call:
        call.street.before = refuses
        await call.audience.until_state("unavailable", "organisation is wrong")
        await asyncio.sleep(0.5)
        assert call.street.reached == 1
        call.street.before = None
        call.link.nudge()
        await call.answered()


async def test_repeated_attempts_report_each_state_once() -> None:
    failures = 3

    async def slow(report: Report) -> None:
        report("connecting", "")
        if call.street.reached <= failures:
            raise HostError("The machine does not start.")
        report("updating", "New code is on its way.")

    async with calling() as call:
        call.street.before = slow
        await call.answered()
    assert call.audience.states == ["unavailable", "updating", "ready"]


async def test_missing_state_sync_drops_connection() -> None:
    async with calling(silent_seconds=0.1, state_seconds=0.1) as call:
        call.audience.awaits_state = True
        await call.answered()
        await call.audience.until_state("unavailable", "does not report its state")
