"""The hub between pages and a sprite: recipients and order of messages, also after cuts.

The file is long because all its tests share one stage.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bridge.providers.provider import HostError, Report
from sprite.protocol.events import Started, WholeText
from sprite.protocol.frames import encode
from sprite.protocol.memory import FilesResult, SearchResult
from sprite.protocol.messages import Ack, CanvasUpdate, Error, Gap, Status
from tests.chat_stand_in import TOKEN, StandIn, Visitor, state_sync
from tests.relay_stage import Page, Stage, Street, stage


def said(text: str, mission_id: str | None = "m1") -> WholeText:
    return WholeText(mission_id, text)


class Scene:
    """A scripted sprite, a relay, and the connection between them."""

    def __init__(self, sprite: StandIn, street: Street, stage: Stage) -> None:
        self.sprite = sprite
        self.street = street
        self.stage = stage
        self.link: Visitor

    async def tell(self, *seqs: int) -> None:
        for seq in seqs:
            await self.link.send(said(f"event {seq}"), seq=seq)

    @asynccontextmanager
    async def first_page(self, **resume: Any) -> AsyncIterator[Page]:
        """Open the page that starts the hub; its state includes events up to 10."""
        async with self.stage.page(**resume) as page:
            self.link = await self.sprite.visitor()
            await self.link.welcome(last_seq=10, sync=state_sync())
            await page.receive("state_sync")
            yield page

    @asynccontextmanager
    async def late_page(self, **resume: Any) -> AsyncIterator[tuple[Page, Visitor]]:
        """Open a page that catches up over its own sprite connection. Yield both."""
        async with self.stage.page(**resume) as page:
            yield page, await self.sprite.visitor()


@asynccontextmanager
async def playing(**options: Any) -> AsyncIterator[Scene]:
    async with StandIn() as sprite:
        street = Street(sprite.port)
        async with stage(street, **options) as stage_:
            yield Scene(sprite, street, stage_)


async def texts(page: Page, count: int) -> list[str]:
    return [(await page.receive("agent_event"))["payload"]["text"] for _ in range(count)]


# Connecting


async def test_first_page_receives_link_welcome_and_state() -> None:
    async with playing() as scene, scene.first_page() as page:
        pass
    kinds = [m["type"] for m in page.received]
    assert kinds == ["link", "link", "auth_ok", "state_sync"]
    assert [m["payload"]["state"] for m in page.received[:2]] == ["connecting", "ready"]
    welcome = page.received[2]
    assert welcome["reply_to"] == "resume-id"
    assert (welcome["payload"]["epoch"], welcome["payload"]["last_seq"]) == ("e1", 10)


async def test_link_cut_before_state_reconnects_without_resume() -> None:
    async with playing() as scene, scene.stage.page() as page:
        for epoch in ("e1", "e1"):
            link = await scene.sprite.visitor()
            assert (await link.welcome(epoch=epoch, last_seq=10)).get("resume") is None
            await page.link("ready")
            link.cut()
            await page.link("unavailable")
        scene.link = await scene.sprite.visitor()
        assert (await scene.link.welcome(last_seq=12, sync=state_sync())).get("resume") is None
        assert (await page.receive("auth_ok"))["payload"]["last_seq"] == 12
        await page.receive("state_sync")
        await scene.tell(13)
        assert await texts(page, 1) == ["event 13"]


async def test_event_reaches_all_pages_of_its_sprite() -> None:
    async with (
        playing() as scene,
        scene.first_page() as first,
        scene.late_page() as (second, own),
        scene.stage.page("other") as stranger,
    ):
        await own.welcome(last_seq=10, sync=state_sync())
        await second.receive("state_sync")
        other_link = await scene.sprite.visitor()
        await other_link.welcome(epoch="o1", sync=state_sync())
        await stranger.receive("state_sync")
        await scene.tell(11)
        assert await texts(first, 1) == await texts(second, 1) == ["event 11"]
        await other_link.send(said("for the stranger"), seq=1)
        assert await texts(stranger, 1) == ["for the stranger"]


async def test_long_disconnected_page_catches_up_from_sprite() -> None:
    """Live events meanwhile are delivered once and in order."""
    async with playing() as scene, scene.first_page(), scene.late_page(epoch="e1", last_seq=7) as (page, own):
        await scene.tell(11)
        assert (await own.welcome(last_seq=12))["resume"] == {"epoch": "e1", "last_seq": 7}
        for seq in (8, 9, 10, 11):
            await own.send(said(f"event {seq}"), seq=seq)
        # The live link may be ahead of the catch-up or behind it.
        await scene.tell(12, 13)
        await own.send(said("event 12"), seq=12)
        assert await texts(page, 6) == [f"event {seq}" for seq in range(8, 14)]
        assert page.seqs() == list(range(8, 14))
        await own.left()
        await scene.tell(14)
        assert await texts(page, 1) == ["event 14"]


async def test_interrupted_catch_up_resumes() -> None:
    async with playing() as scene, scene.first_page(), scene.late_page(epoch="e1", last_seq=7) as (page, own):
        await own.welcome(last_seq=10)
        await own.send(said("event 8"), seq=8)
        await texts(page, 1)
        own.cut()
        again = await scene.sprite.visitor()
        assert (await again.welcome(last_seq=10))["resume"] == {"epoch": "e1", "last_seq": 8}
        for seq in (9, 10):
            await again.send(said(f"event {seq}"), seq=seq)
        await scene.tell(11)
        assert await texts(page, 3) == ["event 9", "event 10", "event 11"]
        assert [m["type"] for m in page.received].count("auth_ok") == 1


async def test_second_page_receives_own_state_and_newer_events() -> None:
    async with playing() as scene, scene.first_page(), scene.late_page() as (page, own):
        await scene.tell(11, 12)
        await own.welcome(last_seq=12, sync=state_sync())
        await page.receive("state_sync")
        await scene.tell(13)
        assert await texts(page, 1) == ["event 13"]
        assert page.seqs() == [13]


async def test_catch_up_beyond_history_sends_gap_and_state() -> None:
    async with playing() as scene, scene.first_page(), scene.late_page(epoch="e1", last_seq=2) as (page, own):
        await own.welcome(last_seq=10)
        await own.send(Gap(oldest_seq=8))
        await own.send(state_sync())
        await scene.tell(11)
        await texts(page, 1)
    kinds = [m["type"] for m in page.received if m["type"] != "link"]
    assert kinds == ["auth_ok", "auth_ok", "gap", "state_sync", "agent_event"]


async def test_page_with_old_epoch_receives_state() -> None:
    async with playing() as scene, scene.first_page(epoch="another", last_seq=3) as page:
        assert (await scene_kinds(page)) == ["auth_ok", "state_sync"]


async def scene_kinds(page: Page) -> list[str]:
    return [m["type"] for m in page.received if m["type"] != "link"]


# Broken links


async def test_link_cut_delivers_missed_events_once() -> None:
    async with playing() as scene, scene.first_page() as page:
        await scene.tell(11)
        await texts(page, 1)
        scene.link.cut()
        await page.link("unavailable")
        scene.link = await scene.sprite.visitor()
        assert (await scene.link.welcome(last_seq=13))["resume"] == {"epoch": "e1", "last_seq": 11}
        await scene.tell(11, 12, 13)
        await page.link("ready")
        assert await texts(page, 2) == ["event 12", "event 13"]
        assert page.seqs() == [11, 12, 13]


async def test_page_opened_during_cut_joins_after_reconnect() -> None:
    async with playing() as scene, scene.first_page():
        await scene.tell(11)
        scene.link.cut()
        link = await scene.sprite.visitor()
        async with scene.stage.page(epoch="e1", last_seq=10) as page:
            await page.receive("link")
            await link.welcome(last_seq=11)
            own = await scene.sprite.visitor()
            assert (await own.welcome(last_seq=11))["resume"] == {"epoch": "e1", "last_seq": 10}
            await own.send(said("event 11"), seq=11)
            assert await texts(page, 1) == ["event 11"]


async def test_new_sprite_epoch_sends_welcome_and_state() -> None:
    async with playing() as scene, scene.first_page() as page:
        scene.link.cut()
        scene.link = await scene.sprite.visitor()
        await scene.link.welcome(epoch="e2", last_seq=3, sync=state_sync())
        assert (await page.receive("auth_ok"))["payload"]["epoch"] == "e2"
        await page.receive("state_sync")
        await scene.tell(4)
        assert await texts(page, 1) == ["event 4"]


async def test_gap_on_link_reaches_every_page() -> None:
    async with playing() as scene, scene.first_page() as page:
        scene.link.cut()
        scene.link = await scene.sprite.visitor()
        await scene.link.welcome(last_seq=90)
        await scene.link.send(Gap(oldest_seq=50))
        await scene.link.send(state_sync())
        assert (await page.receive("auth_ok"))["payload"]["last_seq"] == 90
        await page.receive("gap")
        await page.receive("state_sync")
        await scene.tell(90, 91)
        assert await texts(page, 1) == ["event 91"]


async def test_forgotten_events_are_not_replayed() -> None:
    async with playing() as scene, scene.first_page() as page:
        await scene.link.send(said("the secret"), seq=11)
        await texts(page, 1)
        await scene.link.send(state_sync())
        await page.receive("state_sync")
        async with scene.late_page(epoch="e1", last_seq=10) as (back, own):
            await own.welcome(last_seq=12)
            await own.send(Gap(oldest_seq=13))
            await own.send(state_sync())
            await back.receive("state_sync")
            await scene.tell(13)
            assert await texts(back, 1) == ["event 13"]
        assert "the secret" not in str(back.received)


async def test_waiting_pages_wake_sprite_once() -> None:
    waking = asyncio.Event()

    async def wakes(report: Report) -> None:
        report("waking", "The machine starts.")
        await waking.wait()

    async with playing() as scene:
        scene.street.before = wakes
        async with scene.stage.page() as first, scene.stage.page() as second, scene.stage.page() as third:
            for page in (first, second, third):
                assert (await page.link("waking"))["detail"] == "The machine starts."
            assert scene.street.reached == 1
            waking.set()
            await (await scene.sprite.visitor()).welcome(last_seq=10, sync=state_sync())
            for page in (first, second, third):
                await page.receive("state_sync")
            assert (scene.street.reached, scene.street.most_at_once) == (1, 1)


async def test_new_page_retries_unavailable_sprite_at_once() -> None:
    """Pages show the host's error; without a new page the retry takes half a minute."""
    tried = asyncio.Event()

    async def refuses(_: Report) -> None:
        tried.set()
        raise HostError("The disk of the machine is full.", retryable=False)

    async with playing() as scene:
        scene.street.before = refuses
        async with scene.stage.page() as page:
            assert (await page.link("unavailable"))["detail"] == "The disk of the machine is full."
            scene.street.before = None
            # Without the second page, the next try would be half a minute later.
            async with scene.stage.page() as second:
                await (await scene.sprite.visitor()).welcome(last_seq=10, sync=state_sync())
                await second.receive("state_sync")
                await page.receive("state_sync")


async def test_request_wakes_sleeping_sprite_and_is_answered() -> None:
    async with playing(idle_seconds=0) as scene, scene.first_page() as page:
        scene.link.cut()
        assert "Asleep" in (await page.link("ready"))["detail"]
        question = await page.send("memory", {"op": "files"})
        link = await scene.sprite.visitor()
        await link.welcome(last_seq=10)
        asked = await link.receive("memory")
        await link.send(FilesResult([]), reply_to=asked["id"])
        assert (await page.reply(question))["payload"]["files"] == []
        assert "unavailable" not in [m["payload"].get("state") for m in page.received]


async def test_cut_during_turn_reconnects_at_once() -> None:
    async with playing(idle_seconds=0) as scene, scene.first_page() as page:
        await scene.link.send(Started("m1"), seq=11)
        await page.receive("agent_event")
        scene.link.cut()
        await page.link("unavailable")
        await (await scene.sprite.visitor()).welcome(last_seq=11)
        await page.link("ready")


# Messages from people


async def test_answer_reaches_asking_page_with_its_id() -> None:
    async with (
        playing() as scene,
        scene.first_page() as first,
        scene.late_page(epoch="e1", last_seq=10) as (second, own),
    ):
        await own.welcome(last_seq=10)
        await second.receive("auth_ok")
        for page in (first, second):
            await page.send("memory", {"op": "files"}, "same-id")
        asked = [await scene.link.receive("memory") for _ in range(2)]
        assert len({message["id"] for message in asked}) == 2
        for number, message in enumerate(asked):
            await scene.link.send(SearchResult([], 0, number), reply_to=message["id"])
        assert [(await page.reply("same-id"))["payload"]["waiting"] for page in (first, second)] == [0, 1]
        await scene.tell(11)
        await texts(first, 1)
        assert [m["type"] for m in first.received].count("memory_result") == 1


async def test_missions_during_cut_are_sent_once_in_order() -> None:
    async with playing() as scene, scene.first_page() as page:
        scene.link.cut()
        await page.link("unavailable")
        sent = [await page.send("mission", {"text": text}) for text in ("one", "two")]
        link = await scene.sprite.visitor()
        await link.welcome(last_seq=10)
        got = [await link.receive("mission") for _ in range(2)]
        assert [(m["id"], m["payload"]["text"]) for m in got] == list(zip(sent, ("one", "two"), strict=True))
        await link.send(Ack("accepted", position=0), reply_to=sent[0])
        assert (await page.reply(sent[0]))["payload"]["status"] == "accepted"
        link.cut()
        third = await scene.sprite.visitor()
        await third.welcome(last_seq=10)
        # Only the unanswered mission is sent again, with the same id.
        assert (await third.receive("mission"))["id"] == sent[1]
        await third.send(Ack("duplicate"), reply_to=sent[1])
        await page.reply(sent[1])


async def test_mission_is_delivered_after_page_left() -> None:
    async with playing(linger_seconds=0.1) as scene:
        scene.street.before = never
        async with scene.stage.page() as page:
            mission = await page.send("mission", {"text": "and then I closed the lid"})
            await page.send("nonsense")
            await page.receive("error")
        scene.street.before = None
        link = await scene.sprite.visitor()
        await link.welcome(last_seq=10, sync=state_sync())
        assert (await link.receive("mission"))["id"] == mission
        await link.send(Ack("accepted", position=0), reply_to=mission)
        # No page is open and nothing is queued: the machine may sleep.
        await link.left()


async def never(_: Report) -> None:
    raise HostError("Not now.")


async def test_request_during_cut_is_rejected_as_unavailable() -> None:
    async with playing() as scene, scene.first_page() as page:
        flying = await page.send("system", {"action": "flush"})
        await scene.link.receive("system")
        scene.link.cut()
        refused = (await page.reply(flying))["payload"]
        assert refused["code"] == "unavailable"
        down = await page.send("memory", {"op": "files"})
        assert (await page.reply(down))["payload"]["code"] == "unavailable"


async def test_permission_decision_survives_cut() -> None:
    async with playing() as scene, scene.first_page() as page:
        word = await page.send("permission", {"request_id": "r1", "decision": "allow"})
        first = await scene.link.receive("permission")
        scene.link.cut()
        link = await scene.sprite.visitor()
        await link.welcome(last_seq=10)
        again = await link.receive("permission")
        assert (again["id"], again["payload"]) == (first["id"], first["payload"])
        await link.send(Ack("done"), reply_to=again["id"])
        await page.reply(word)


@pytest.mark.parametrize(
    "written",
    [
        {"action": "create_card", "title": "x", "blocks": [{"type": "text", "data": {"content": "milk"}}]},
        {"action": "update_block", "card_id": "c", "block_id": "b", "data": {"content": "milk"}, "seen": 1},
    ],
    ids=["create_card", "update_block"],
)
async def test_canvas_change_survives_cut_and_resend(
    written: dict[str, object],
) -> None:
    async with playing() as scene, scene.first_page() as page:
        sent = await page.send("canvas_interaction", written)
        first = await scene.link.receive("canvas_interaction")
        scene.link.cut()
        link = await scene.sprite.visitor()
        await link.welcome(last_seq=10)
        again = await link.receive("canvas_interaction")
        assert (again["id"], again["payload"]) == (first["id"], first["payload"])
        await link.send(Ack("done", card_id="c"), reply_to=again["id"])
        assert (await page.reply(sent))["payload"]["card_id"] == "c"
        await page.send("canvas_interaction", written, sent)
        resent = await link.receive("canvas_interaction")
        if written["action"] == "create_card":
            assert resent["id"] == first["id"], "the idempotency key changed"


async def test_upload_chunks_keep_order_with_bounded_concurrency() -> None:
    async with playing() as scene, scene.first_page() as page:
        chunk = {"upload_id": "u", "name": "a.bin", "last": False, "data": "AAAA"}
        sending = [await page.send("file_upload", {**chunk, "index": index}) for index in range(20)]
        for index in range(20):
            message = await scene.link.receive("file_upload")
            assert message["payload"]["index"] == index
            await scene.link.send(Ack("accepted", upload_id="u", index=index), reply_to=message["id"])
        answers = [(await page.reply(message_id))["payload"]["index"] for message_id in sending]
        assert answers == list(range(20))


async def test_excess_requests_are_rejected_but_interrupt_passes() -> None:
    async with playing() as scene, scene.first_page() as page:
        asked = [await page.send("heartbeat") for _ in range(17)]
        assert (await page.reply(asked[-1]))["payload"]["code"] == "busy"
        await page.send("interrupt")
        await scene.link.receive("interrupt")


async def test_full_outbox_rejects_new_missions() -> None:
    async with playing() as scene:
        scene.street.before = never
        async with scene.stage.page() as page:
            sent = [await page.send("mission", {"text": f"number {number}"}) for number in range(101)]
            assert (await page.reply(sent[-1]))["payload"]["code"] == "queue_full"
            scene.street.before = None
            link = await scene.sprite.visitor()
            await link.welcome(last_seq=10, sync=state_sync())
            assert [(await link.receive("mission"))["id"] for _ in range(100)] == sent[:-1]


# Invalid clients


async def test_first_message_must_be_resume() -> None:
    async with playing() as scene, scene.stage.socket() as page:
        await page.send("mission", {"text": "hello"})
        assert "must be `resume`" in (await page.receive("error"))["payload"]["message"]
        assert await page.closed() == 1008


@pytest.mark.parametrize(
    ("frame", "code", "closed"),
    [
        ("this is no JSON", "bad_frame", 1008),
        ("[1, 2]", "bad_frame", 1008),
        ('{"type":"mission","id":"x","payload":{"text":"' + "x" * 2**20 + '"}}', "frame_too_large", 1009),
    ],
)
async def test_framing_error_closes_page_connection(frame: str, code: str, closed: int) -> None:
    async with playing() as scene, scene.stage.page() as page:
        await page.socket.send_str(frame)
        assert (await page.receive("error"))["payload"]["code"] == code
        assert await page.closed() == closed


@pytest.mark.parametrize(
    ("kind", "payload", "code"),
    [
        ("horoscope", {}, "unknown_type"),
        ("auth", {"token": "x"}, "unknown_type"),
        ("link", {"state": "ready", "detail": ""}, "unknown_type"),
        ("mission", {"text": 5}, "bad_payload"),
        ("memory", {"op": "burn"}, "bad_payload"),
        ("resume", {}, "unexpected"),
    ],
)
async def test_invalid_message_keeps_page_connection_open(kind: str, payload: dict[str, Any], code: str) -> None:
    async with playing() as scene, scene.first_page() as page:
        message_id = await page.send(kind, payload)
        assert (await page.reply(message_id))["payload"]["code"] == code
        await page.send("ping")
        mission = await page.send("mission", {"text": "still here"})
        assert (await scene.link.receive("mission"))["id"] == mission


async def test_binary_frame_is_rejected() -> None:
    async with playing() as scene, scene.stage.page() as page:
        await page.socket.send_bytes(b"{}")
        assert (await page.receive("error"))["payload"]["code"] == "bad_frame"


async def test_page_that_stops_reading_is_disconnected() -> None:
    """Other pages are not delayed."""
    async with (
        playing() as scene,
        scene.first_page() as page,
        scene.late_page(epoch="e1", last_seq=10) as (sleeper, own),
    ):
        await own.welcome(last_seq=10)
        await sleeper.receive("auth_ok")
        assert sleeper.socket._conn is not None
        transport = sleeper.socket._conn.transport
        assert transport is not None
        transport.pause_reading()
        text = "x" * 500_000
        for seq in range(11, 71):
            await scene.link.send(said(text), seq=seq)
            await texts(page, 1)
        assert scene.stage.relay.snapshot()[0].clients == 1
        transport.resume_reading()
        await sleeper.closed()
        assert len(sleeper.seqs()) < 60


# Compromised sprites


async def test_invalid_sprite_messages_reach_no_page() -> None:
    """These include unsolicited answers and forged link states."""
    async with playing() as scene, scene.first_page() as page:
        await scene.link.send(Ack("done"), reply_to="unheard-of")
        await scene.link.send(Ack("done"))
        await scene.link.send(FilesResult([]), seq=11)
        await scene.link.send_bytes(b'{"type":"link","id":"x","payload":{"state":"unavailable","detail":"pay here"}}\n')
        await scene.link.send_bytes(b'{"type":"agent_event","id":"x","payload":{"event":"yawn"}}\n')
        await scene.link.send_bytes(encode(said("extra"), seq=12)[:-2] + b',"admin":true}\n')
        assert await texts(page, 1) == ["extra"]
    assert "admin" not in page.received[-1]
    assert [m["type"] for m in page.received].count("agent_event") == 1
    assert not [m for m in page.received if m["type"] in {"ack", "memory_result"}]
    assert "pay here" not in str(page.received)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe garbage\n",
        b"x" * (2 * 2**20 + 1),
        b'{"type":"agent_event","id":"x","seq":-5,"payload":{"mission_id":null,"event":"text","text":""}}\n',
        b'{"type":"agent_event","id":"x","seq":9007199254740992,"payload":{"mission_id":null,"event":"text","text":""}}\n',
        b'{"type":"agent_event","payload":{"mission_id":null,"event":"tool_use","input":' + b'{"a":' * 5000 + b"\n",
    ],
    ids=["garbage", "endless", "negative", "beyond", "deep"],
)
async def test_sprite_protocol_error_reconnects_with_resume(data: bytes) -> None:
    async with playing() as scene, scene.first_page() as page:
        await scene.link.send_bytes(data)
        link = await scene.sprite.visitor()
        assert (await link.welcome(last_seq=10))["resume"] == {"epoch": "e1", "last_seq": 10}
        await link.send(said("well again"), seq=11)
        assert await texts(page, 1) == ["well again"]


async def test_repeated_sequence_numbers_are_ignored() -> None:
    async with playing() as scene, scene.first_page() as page:
        await scene.tell(11, 12, 11, 12, 5, 13)
        assert await texts(page, 3) == ["event 11", "event 12", "event 13"]


async def test_unexpected_welcome_is_rejected() -> None:
    async with playing() as scene, scene.stage.page() as page:
        strange = await scene.sprite.visitor()
        await strange.receive("auth")
        await strange.send(Status("status", state_sync().session, state_sync().memory, None, "ask", None))
        assert "not a sprite" in (await page.link("unavailable"))["detail"]
        refusing = await scene.sprite.visitor()
        await refusing.receive("auth")
        await refusing.send(Error("unauthorized", "The token is wrong."))
        assert "refused the bridge" in (await page.link("unavailable"))["detail"]


async def test_message_flood_is_delivered_completely() -> None:
    async with playing() as scene, scene.first_page() as page:
        update = CanvasUpdate("update_card", "c", "s", "t", "notes", [])
        flood = b"".join(encode(update, seq=seq) for seq in range(11, 3011))
        sending = asyncio.create_task(scene.link.send_bytes(flood))
        await page.until(lambda m: m.get("seq") == 3010)
        await sending
        assert page.seqs() == list(range(11, 3011))


async def test_control_characters_from_sprite_are_stripped() -> None:
    """Operators see the version in `status`, and people see the rejection in `chat`."""
    steering = "1.0\x1b]0;pwned\x07\r\u202e"
    async with playing() as scene, scene.stage.page() as page:
        refusing = await scene.sprite.visitor()
        await refusing.receive("auth")
        await refusing.send(Error("unauthorized", steering))
        assert (await page.link("unavailable"))["detail"].endswith("1.0 ]0;pwned   ")
        await (await scene.sprite.visitor()).welcome(last_seq=10, sync=state_sync(), version=steering)
        await page.receive("state_sync")
        (seen,) = scene.stage.relay.snapshot()
        assert seen.version == "1.0 ]0;pwned   "


async def test_unanswered_interrupts_are_bounded() -> None:
    async with playing() as scene, scene.first_page() as page:
        ids = [await page.send("interrupt", {}) for _ in range(40)]
        answers = [await page.reply(message_id) for message_id in ids[32:]]
        assert {answer["payload"]["code"] for answer in answers} == {"busy"}


async def test_repeated_link_failures_are_logged_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with playing() as scene, scene.stage.page() as page:
        for _ in range(9):
            (await scene.sprite.visitor()).cut()
            await page.send("heartbeat")
        await (await scene.sprite.visitor()).welcome(last_seq=10, sync=state_sync())
        await page.receive("state_sync")
    assert sum("no link" in record.getMessage() for record in caplog.records) <= 6


# Shutdown and monitoring


async def test_idle_page_receives_pings() -> None:
    async with playing(quiet_seconds=0.05) as scene, scene.first_page() as page:
        for _ in range(3):
            assert (await page.receive("ping"))["payload"] == {}
        await scene.tell(11)
        assert await texts(page, 1) == ["event 11"]
        assert scene.sprite.is_alone()


async def test_stopping_bridge_closes_pages_as_going_away() -> None:
    async with playing() as scene, scene.first_page() as page:
        stopping = asyncio.create_task(scene.stage.relay.__aexit__(None, None, None))
        assert await page.closed() == 1001
        await scene.link.left()
        await stopping


async def test_snapshot_reports_clients_and_sprite_state() -> None:
    async with playing(linger_seconds=0.1) as scene:
        async with scene.first_page():
            (seen,) = scene.stage.relay.snapshot()
            assert (seen.sprite, seen.state, seen.clients, seen.version) == ("local", "ready", 1, "0.0")
            assert seen.last_seen_at is not None
        await scene.link.left()
        (seen,) = scene.stage.relay.snapshot()
        assert (seen.clients, seen.version) == (0, "0.0")


async def test_logs_contain_no_message_text_or_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    planted = "PLANTED-5f1c"
    async with playing() as scene, scene.first_page() as page:
        await page.send("mission", {"text": planted})
        await page.send("memory", {"op": planted})
        await page.send(planted, {planted: planted})
        await scene.link.send(said(planted), seq=11)
        await scene.link.send_bytes(b'{"type":"agent_event","payload":{"event":"' + planted.encode() + b'"}}\n')
        await texts(page, 1)
        await scene.link.send_bytes(planted.encode() + b"\n")
        await page.link("unavailable")
        scene.link = await scene.sprite.visitor()
        await scene.link.receive("auth")
        await scene.link.send(Error("unauthorized", planted))
        await page.socket.send_str(planted)
        await page.closed()
    assert caplog.records
    assert planted not in caplog.text
    assert TOKEN not in caplog.text
