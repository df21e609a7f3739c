"""Connections to a real sprite: every message is answered, and no client disturbs another one.

The file is long because its tests share one sprite, and a file's tests stay on one worker.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import stat
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sprite.gateway.connection import Connection, Leases, Service
from sprite.protocol.events import WholeText
from sprite.protocol.frames import ClientMessage, encode
from sprite.protocol.messages import CHAT_TEXT_CHARS, StateSync
from sprite.protocol.shapes import Block, Card
from sprite.workspace.database import CardSaved, ChatAdded, open_workspace
from sprite.workspace.feed import Feed
from tests.chat_stand_in import state_sync
from tests.harness import PATIENCE, Client, Message, SpriteServer, running_sprite
from tests.memory_stores import SESSION, call, open_stores

#: One sprite for the whole file: it must survive each test.
pytestmark = pytest.mark.asyncio(loop_scope="module")
HUGE = 2**70


async def furnish(workspace: Path) -> None:
    """Create the workspace of an earlier process: two curated turns, one uncurated turn and a stack with cards."""
    (workspace / ".os/memory").mkdir(parents=True)
    async with open_stores(workspace / ".os/memory") as stores:
        first = await stores.turn("Dates as DD/MM please", "Gladly.", calls=[call("Bash", "ok", {"command": "date"})])
        second = await stores.turn("And call Bo tomorrow")
        answer = (
            f'PREFERENCE [t{first}] Dates are DD/MM. | "Dates as DD/MM"\n'
            f'ACTION [t{second}] Call Bo. | "call Bo"\nACTION [t{second}] Tell Cy. | "call Bo"'
        )
        await stores.batch(answer, first, second)
        await stores.turn("This one waits")
    async with open_workspace(workspace / ".os/workspace.db") as store:
        await store.record([], [ChatAdded("assistant", "x" * 100_000, None)])
        stack_id = await store.create_stack("Work")
        block = Block("b", "text", {"content": "hello"})
        for number in range(8):
            card = Card(f"card-{number}", stack_id, f"Card {number}", "notes", None, None, [block], archived=False)
            await store.record([], [CardSaved(card)])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sprite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SpriteServer]:
    workspace = tmp_path_factory.mktemp("connection") / "workspace"
    workspace.mkdir()
    await furnish(workspace)
    async with running_sprite(workspace, None) as running:
        yield running
        assert running.runs, "a test stopped the sprite"


@pytest_asyncio.fixture(loop_scope="module")
async def client(sprite: SpriteServer) -> AsyncIterator[Client]:
    async with sprite.client() as connected:
        await connected.until(lambda m: m["type"] == "state_sync")
        yield connected


async def still_answers(client: Client) -> None:
    """Check that the connection is alive."""
    assert (await client.ask("system", {"action": "status"}))["type"] == "status"


async def refused(client: Client, type_: str, payload: Message) -> Message:
    """Return the error that answers a message, and check that the connection is alive."""
    answer = await client.ask(type_, payload)
    assert answer["type"] == "error", answer
    await still_answers(client)
    error: Message = answer["payload"]
    assert error["message"]
    return error


async def last_words(client: Client) -> Message:
    """Return the last error before the server closes the connection."""
    error = await client.next()
    assert error is not None
    assert error["type"] == "error"
    assert await client.next() is None, "the connection is still open"
    words: Message = error["payload"]
    return words


# Before authentication


@pytest.mark.parametrize(
    "garbage",
    [
        b"hello\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
        bytes(range(256)) * 10 + b"\n",
        b"[]\n",
        b"null\n",
        b'{"type": "auth", "payload": {"token"\n',
        b'{"type": "auth"}' * 2 + b"\n",
        b"[" * 60_000 + b"\n",
    ],
)
async def test_garbage_before_auth_closes_connection(garbage: bytes, sprite: SpriteServer) -> None:
    async with sprite.raw() as client:
        client.writer.write(garbage)
        assert (await last_words(client))["code"] == "bad_frame"


@pytest.mark.parametrize("newline", [b"\n", b""])
async def test_large_frame_before_auth_is_refused(newline: bytes, sprite: SpriteServer) -> None:
    """The limit before authentication is 64 KiB."""
    async with sprite.raw() as client:
        client.writer.write(b"x" * (64 * 1024 + 1) + newline)
        assert (await last_words(client))["code"] == "frame_too_large"


@pytest.mark.parametrize("token", ["", "wrong", "x" * 60_000, "ü\u0000", "Bearer"])
async def test_wrong_token_is_unauthorized(token: str, sprite: SpriteServer) -> None:
    async with sprite.raw() as client:
        client.send("auth", {"token": token, "protocol": 1})
        assert (await last_words(client))["code"] == "unauthorized"


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t + "x", lambda t: f" {t}", str.swapcase])
async def test_similar_token_is_unauthorized(change: Any, sprite: SpriteServer) -> None:
    async with sprite.raw() as client:
        client.send("auth", {"token": change(sprite.token), "protocol": 1})
        assert (await last_words(client))["code"] == "unauthorized"


@pytest.mark.parametrize("payload", [{}, {"token": None}, {"token": 5}, {"protocol": 1}])
async def test_missing_token_is_unauthorized(payload: Message, sprite: SpriteServer) -> None:
    async with sprite.raw() as client:
        client.send("auth", payload)
        assert (await last_words(client))["code"] == "unauthorized"


@pytest.mark.parametrize("type_", ["mission", "system", "memory", "ping", "heartbeat", "dance"])
async def test_message_before_auth_is_unauthorized(type_: str, sprite: SpriteServer) -> None:
    async with sprite.raw() as client:
        client.send(type_, {"text": "rm -rf", "action": "status", "op": "files"})
        client.send("auth", {"token": sprite.token})
        assert (await last_words(client))["code"] == "unauthorized"


async def test_unsupported_protocol_is_refused(sprite: SpriteServer) -> None:
    async with sprite.raw() as client:
        client.send("auth", {"token": sprite.token, "protocol": 2})
        words = await last_words(client)
        assert words["code"] == "unsupported_protocol"
        assert "protocol 1, not 2" in words["message"]


async def test_silent_client_times_out(sprite: SpriteServer) -> None:
    """The timeout before authentication is five seconds."""
    async with sprite.raw() as silent, sprite.raw() as slow:
        slow.writer.write(b'{"type": "auth", ')
        assert (await last_words(silent))["code"] == "unauthorized"
        assert (await last_words(slow))["code"] == "unauthorized"


async def test_early_disconnect_is_harmless(sprite: SpriteServer, client: Client) -> None:
    for leaving in (b"", b"{", b'{"type": "auth", "payload": {}}'):
        async with sprite.raw() as gone:
            gone.writer.write(leaving)
            gone.writer.write_eof()
            answer = await gone.next()
            assert answer is None or answer["payload"]["code"] == "unauthorized"
    await still_answers(client)


async def test_token_file_is_private(sprite: SpriteServer) -> None:
    path = sprite.workspace / ".os/run/token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(sprite.token) >= 32


# After authentication


async def test_first_connection_gets_welcome_and_state(sprite: SpriteServer) -> None:
    async with sprite.client() as client:
        welcome = client.received[0]["payload"]
        assert welcome["protocol"] == 1
        assert set(welcome) == {"protocol", "server_version", "epoch", "last_seq", "limits"}
        assert welcome["limits"]["frame_bytes"] == 2**20
        state = await client.next()
        assert state is not None
        assert state["type"] == "state_sync"
        payload = state["payload"]
        assert "Work" in [stack["name"] for stack in payload["stacks"]]
        assert {f"card-{n}" for n in range(8)} <= {card["card_id"] for card in payload["cards"]}
        assert set(payload["session"]) == {
            *("session_id", "started_at", "turns", "running_mission_id", "queued"),
            *("busy", "background", "held_until", "paused", "slow", "model", "effort"),
            *("label", "label_binds", "label_note", "sources"),
        }
        assert (payload["memory"]["turns"], payload["memory"]["waiting"]) == (3, 1)
        assert payload["memory"]["learnings"] == 3
        assert len(payload["memory"]["files"]) == 6
        assert payload["chat"][0]["text"] == f"{'x' * CHAT_TEXT_CHARS} […]"


async def test_frame_limit_is_one_mib(sprite: SpriteServer) -> None:
    async with sprite.client() as client:
        await client.next()
        frame = b'{"type": "ping", "id": "x", "pad": "' + b"x" * 2**20
        whole = frame[: 2**20 - 2] + b'"}'
        client.writer.write(whole + b"\n")
        await still_answers(client)
        client.writer.write(whole + b" \n")
        assert (await last_words(client))["code"] == "frame_too_large"


@pytest.mark.parametrize("is_known", [True, False], ids=["after auth", "before auth"])
async def test_oversized_frame_is_reported_while_sending(is_known: bool, sprite: SpriteServer) -> None:
    async with sprite.client() if is_known else sprite.raw() as client:
        if is_known:
            await client.until(lambda m: m["type"] == "state_sync")
        for _ in range(80):
            client.writer.write(b"x" * 2**16)
            await client.writer.drain()
        client.writer.write(b"\n")
        assert (await last_words(client))["code"] == "frame_too_large"


async def test_endless_frame_closes_connection(sprite: SpriteServer) -> None:
    async def send_for_ever(client: Client) -> None:
        while True:
            client.writer.write(b"x" * 2**20)
            await client.writer.drain()

    async with sprite.raw() as client:
        with pytest.raises(ConnectionError):
            await send_for_ever(client)


@pytest.mark.parametrize("garbage", [b"hello\n", b"[1]\n", b"\xff\xfe\x00\n", b'{"type": "ping"}}\n'])
async def test_garbage_after_auth_closes_connection(garbage: bytes, sprite: SpriteServer) -> None:
    async with sprite.client() as client:
        await client.next()
        client.writer.write(garbage)
        assert (await last_words(client))["code"] == "bad_frame"


async def test_truncated_frame_is_ignored(sprite: SpriteServer) -> None:
    async with sprite.client() as client:
        await client.next()
        name = f"never {uuid.uuid4()}"
        frame = {"type": "canvas_interaction", "id": "x", "payload": {"action": "create_stack", "name": name}}
        client.writer.write(json.dumps(frame).encode())
        client.writer.write_eof()
        assert await client.next() is None
    async with sprite.client() as client:
        state = await client.next()
        assert state is not None
        assert name not in [stack["name"] for stack in state["payload"]["stacks"]]


@pytest.mark.parametrize(
    ("frame", "code", "reply_to"),
    [
        (b'{"type": "dance", "id": "d"}', "unknown_type", "d"),
        (b'{"type": "state_sync", "id": "d"}', "unknown_type", "d"),
        (b'{"type": "mission", "id": "d", "payload": {}}', "bad_payload", "d"),
        (b'{"type": "mission", "id": "d", "payload": {"text": 5}}', "bad_payload", "d"),
        (b'{"type": "mission", "id": "d", "payload": {"text": "\\ud83d"}}', "bad_message", "d"),
        (b'{"type": "mission", "id": "d", "payload": {"text": " \\n"}}', "bad_request", "d"),
        (b'{"type": "mission", "payload": {"text": "x"}}', "bad_request", None),
        (b'{"type": "auth", "id": "d", "payload": {"token": "again"}}', "unexpected", "d"),
        (b'{"type": "interrupt", "id": "d"}', "not_running", "d"),
        (b'{"type": "interrupt", "id": "d", "payload": {"mission_id": "nobody"}}', "not_running", "d"),
        (b'{"type": "permission", "id": "d", "payload": {"request_id": "x", "decision": "allow"}}', "not_found", "d"),
        (b'{"type": "system", "id": "d", "payload": {"action": "halt"}}', "bad_payload", "d"),
        (b'{"type": "memory", "id": "d", "payload": {"op": "drop"}}', "bad_payload", "d"),
        (b'{"id": "d"}', "bad_message", "d"),
        (b'{"type": "ping", "id": 5}', "bad_message", None),
    ],
)
async def test_invalid_message_gets_error(frame: bytes, code: str, reply_to: str | None, client: Client) -> None:
    """The connection stays open."""
    client.writer.write(frame + b"\n")
    error = await client.until(lambda m: m["type"] == "error")
    assert (error["payload"]["code"], error.get("reply_to")) == (code, reply_to)
    await still_answers(client)


async def test_overlong_mission_is_refused(client: Client) -> None:
    assert (await refused(client, "mission", {"text": "x" * 200_001}))["code"] == "too_long"


async def test_heartbeat_is_acknowledged_but_ping_is_not(client: Client) -> None:
    ping = client.send("ping")
    assert (await client.ask("heartbeat"))["payload"] == {"status": "done"}
    assert not [m for m in client.received if m.get("reply_to") == ping]


async def test_blank_lines_and_split_frames_are_parsed(client: Client) -> None:
    frame = b'\n\r\n{"type": "heartbeat", "id": "in pieces"}\r\n'
    for i in range(len(frame)):
        client.writer.write(frame[i : i + 1])
        await client.writer.drain()
    assert (await client.reply("in pieces"))["type"] == "ack"


async def test_status_reports_memory_and_last_error(client: Client) -> None:
    status = (await client.ask("system", {"action": "flush"}))["payload"]
    assert (status["action"], status["permissions"], status["memory"]["waiting"]) == ("flush", "bypass", 1)
    assert "no model" in status["last_error"], "the missing credentials are not reported"


# Many clients


async def test_hundred_clients_are_served_concurrently(sprite: SpriteServer) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clients = await asyncio.gather(*(stack.enter_async_context(sprite.client()) for _ in range(100)))
        answers = await asyncio.gather(*(c.ask("system", {"action": "status"}) for c in clients))
        assert [answer["type"] for answer in answers] == ["status"] * 100
        clients[0].send(
            "canvas_interaction", {"action": "move_card", "card_id": "card-7", "position": {"x": 1, "y": 1}}
        )
        await asyncio.gather(*(c.until(lambda m: m["type"] == "canvas_update") for c in clients))


async def test_disconnected_clients_leak_no_descriptors(sprite: SpriteServer, client: Client) -> None:
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for _ in range(30):
        async with sprite.client() as visitor:
            visitor.send("system", {"action": "status"})
    async with asyncio.timeout(PATIENCE):
        while len(list(descriptors.iterdir())) > before:  # noqa: ASYNC110 - descriptors have no event
            await asyncio.sleep(0.01)
    await still_answers(client)


async def test_requester_that_never_reads_is_closed(sprite: SpriteServer) -> None:
    """Other clients are still served."""
    async with sprite.raw() as greedy, sprite.client() as other:
        before = (await other.ask("memory", {"op": "file", "name": "files.md"}))["payload"]["content"]
        long = "# Files\n\n" + f"- {'x' * 220}\n" * 60
        edited = await other.ask("memory", {"op": "edit", "name": "files.md", "content": long})
        assert edited["type"] != "error", edited
        sock = greedy.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a read transport, too
        greedy.send("auth", {"token": sprite.token})
        async with asyncio.timeout(PATIENCE):
            while not greedy.writer.is_closing():
                for _ in range(8):
                    greedy.send("memory", {"op": "file", "name": "files.md"})
                await still_answers(other)
        await other.ask("memory", {"op": "edit", "name": "files.md", "content": before})


# Reconnecting


async def test_resume_replays_missed_events_once(sprite: SpriteServer) -> None:
    async with sprite.client() as first, sprite.client() as other:
        for place in range(3):
            move = {"action": "move_card", "card_id": "card-0", "position": {"x": place, "y": 0}}
            await other.ask("canvas_interaction", move)
        moved = [await first.until(lambda m: m["type"] == "canvas_update") for _ in range(3)]
        epoch = first.received[0]["payload"]["epoch"]
    assert [m["seq"] for m in moved] == list(range(moved[0]["seq"], moved[0]["seq"] + 3))
    async with sprite.client({"epoch": epoch, "last_seq": moved[0]["seq"]}) as again:
        missed = [await again.next(), await again.next()]
        assert missed == moved[1:], "the replayed frames differ"
        await still_answers(again)
        assert [m["type"] for m in again.received] == ["auth_ok", "canvas_update", "canvas_update", "status"]


@pytest.mark.parametrize(
    "resume",
    [
        {"epoch": "another", "last_seq": 0},
        {"epoch": None, "last_seq": 10**9},
        {"epoch": None, "last_seq": HUGE},
        {"epoch": None, "last_seq": -1},
    ],
)
async def test_invalid_resume_gets_full_state(resume: Message, sprite: SpriteServer) -> None:
    async with sprite.client() as client:
        epoch = client.received[0]["payload"]["epoch"]
    async with sprite.client({**resume, "epoch": resume["epoch"] or epoch}) as client:
        state = await client.next()
        assert state is not None
        assert state["type"] == "state_sync"


# The canvas


async def test_stack_is_created_renamed_archived_and_restored(client: Client, sprite: SpriteServer) -> None:
    made = (await client.ask("canvas_interaction", {"action": "create_stack", "name": "  My\nstack "}))["payload"]
    assert made["status"] == "done"
    stack = {"stack_id": made["stack_id"]}

    async def seen() -> Message:
        async with sprite.client() as fresh:
            state = await fresh.next()
            assert state is not None
            found: Message = next(s for s in state["payload"]["stacks"] if s["stack_id"] == stack["stack_id"])
            return found

    assert (await seen())["name"] == "My stack"
    await client.ask("canvas_interaction", {"action": "rename_stack", "name": "New", **stack})
    await client.ask("canvas_interaction", {"action": "archive_stack", **stack})
    assert await seen() == {**stack, "name": "New", "archived": True}
    await client.ask("canvas_interaction", {"action": "restore_stack", **stack})
    assert await seen() == {**stack, "name": "New", "archived": False}


async def test_card_changes_reach_others_and_persist(client: Client, sprite: SpriteServer) -> None:
    card = {"card_id": "card-1"}
    steps: list[tuple[Message, str]] = [
        ({"action": "move_card", "position": {"x": 5, "y": 6.5}}, "update_card"),
        ({"action": "move_card", "size": {"width": 300, "height": 200}}, "update_card"),
        ({"action": "archive_card"}, "close_card"),
        ({"action": "restore_card"}, "create_card"),
    ]
    async with sprite.client() as other:
        for step, command in steps:
            answer = await client.ask("canvas_interaction", {**step, **card})
            assert answer["payload"] == {"status": "done", **card}
            update = (await other.until(lambda m: m["type"] == "canvas_update"))["payload"]
            assert (update["command"], update["card_id"], update["title"]) == (command, "card-1", "Card 1")
            (block,) = update["blocks"]
            assert block == {"id": "b", "type": "text", "data": {"content": "hello"}, "version": 1, "by": "agent"}
        assert (update["position"], update["size"]) == ({"x": 5, "y": 6.5}, {"width": 300, "height": 200})
    async with sprite.client() as fresh:
        state = await fresh.next()
        assert state is not None
        (kept,) = [c for c in state["payload"]["cards"] if c["card_id"] == "card-1"]
        assert (kept["position"], kept["size"]) == ({"x": 5, "y": 6.5}, {"width": 300, "height": 200})
        assert not kept.get("archived")


async def test_concurrent_block_edit_is_conflict(client: Client, sprite: SpriteServer) -> None:
    """The error contains the current version of the block."""
    blocks = [{"type": "text", "data": {"content": "one"}}]
    note = {"action": "create_card", "title": "", "blocks": blocks}
    sent = client.send("canvas_interaction", note)
    made = (await client.reply(sent))["payload"]
    client.send("canvas_interaction", note, sent)
    assert (await client.reply(sent))["payload"] == made, "a repeated note was created twice"
    update = (await client.ever(lambda m: m["type"] == "canvas_update"))["payload"]
    (block,) = update["blocks"]
    assert (update["card_id"], update["title"], block["version"], block["by"]) == (made["card_id"], "Note", 1, "person")
    edit = {"action": "update_block", "card_id": made["card_id"], "block_id": block["id"], "seen": 1}
    async with sprite.client() as other:
        done = await other.ask("canvas_interaction", {**edit, "data": {"content": "two"}})
        assert done["payload"] == {"status": "done", "card_id": made["card_id"]}
        late = await client.ask("canvas_interaction", {**edit, "data": {"content": "three"}})
        assert (late["type"], late["payload"]["code"]) == ("error", "conflict")
        assert late["payload"]["block"] == {**block, "data": {"content": "two"}, "version": 2}
        await client.ask("canvas_interaction", {**edit, "data": {"content": "three"}, "seen": 2})
        shown = await other.until(lambda m: m["type"] == "canvas_update" and m["payload"]["blocks"][0]["version"] == 3)
        assert shown["payload"]["blocks"][0]["data"] == {"content": "three"}


async def test_long_stack_name_is_truncated(client: Client, sprite: SpriteServer) -> None:
    made = (await client.ask("canvas_interaction", {"action": "create_stack", "name": "é" * 100_000}))["payload"]
    async with sprite.client() as fresh:
        state = await fresh.next()
        assert state is not None
        (stack,) = [s for s in state["payload"]["stacks"] if s["stack_id"] == made["stack_id"]]
        assert stack["name"] == "é" * 200


# Files


def chunks(name: str, *parts: bytes, upload_id: str | None = None) -> list[Message]:
    upload_id = upload_id or str(uuid.uuid4())
    return [
        {
            "upload_id": upload_id,
            "name": name,
            "index": index,
            "last": index == len(parts) - 1,
            "data": base64.b64encode(part).decode(),
        }
        for index, part in enumerate(parts)
    ]


async def upload(client: Client, name: str, *parts: bytes) -> str:
    """Send all chunks of a file without waiting for answers, and return its path."""
    sent = [client.send("file_upload", chunk) for chunk in chunks(name, *parts)]
    answers = [await client.reply(message_id) for message_id in sent]
    assert [a["payload"]["status"] for a in answers] == ["accepted"] * (len(parts) - 1) + ["done"]
    assert [a["payload"]["index"] for a in answers] == list(range(len(parts)))
    return str(answers[-1]["payload"]["path"])


async def test_chunked_upload_is_stored_in_documents(client: Client, sprite: SpriteServer) -> None:
    parts = [os.urandom(512 * 1024), os.urandom(512 * 1024), os.urandom(100)]
    path = await upload(client, "Übersicht 漢字.bin", *parts)
    assert path == "documents/Übersicht 漢字.bin"
    assert (sprite.workspace / path).read_bytes() == b"".join(parts)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("../../escaped.txt", "documents/escaped.txt"),
        ("/etc/passwd", "documents/passwd"),
        ("..\\..\\win.ini", "documents/win.ini"),
        (".hidden", "documents/hidden"),
        ("", "documents/unnamed"),
        ("a\x00b", "documents/a_b"),
    ],
)
async def test_upload_name_cannot_leave_documents(name: str, path: str, client: Client, sprite: SpriteServer) -> None:
    assert await upload(client, name, b"x") == path
    assert (sprite.workspace / path).read_bytes() == b"x"
    assert not (sprite.workspace.parent / "escaped.txt").exists()


async def test_long_upload_name_is_truncated(client: Client, sprite: SpriteServer) -> None:
    path = await upload(client, "漢" * 100_000 + ".txt", b"x")
    assert path.endswith("漢.txt")
    assert (sprite.workspace / path).exists()


async def test_upload_never_overwrites_file(client: Client, sprite: SpriteServer) -> None:
    paths = [await upload(client, "twice.txt", data) for data in (b"one", b"two")]
    assert paths == ["documents/twice.txt", "documents/twice (2).txt"]
    assert [(sprite.workspace / path).read_bytes() for path in paths] == [b"one", b"two"]


async def test_interleaved_uploads_do_not_mix(client: Client, sprite: SpriteServer) -> None:
    one, two = chunks("one.txt", b"1", b"1", b"1"), chunks("two.txt", b"2", b"2", b"2")
    sent = [client.send("file_upload", chunk) for pair in zip(one, two, strict=True) for chunk in pair]
    while sent:  # the answers of the two uploads interleave, too
        answer = await client.until(lambda m: m.get("reply_to") in sent)
        assert answer["type"] == "ack"
        sent.remove(answer["reply_to"])
    assert (sprite.workspace / "documents/one.txt").read_bytes() == b"111"
    assert (sprite.workspace / "documents/two.txt").read_bytes() == b"222"


async def test_invalid_chunk_is_refused_without_leftovers(client: Client, sprite: SpriteServer) -> None:
    (chunk,) = chunks("bad.txt", b"x")
    changes: list[Message] = [{"index": "0"}, {"last": 1}, {"data": None}, {"upload_id": 5}]
    for change in ({"index": 3}, {"index": -1}, {"index": HUGE}, {"data": "***"}, {"data": "\u00e9"}):
        assert (await refused(client, "file_upload", {**chunk, **change}))["code"] == "bad_request"
    for change in changes:
        assert (await refused(client, "file_upload", {**chunk, **change}))["code"] == "bad_payload"
    assert not (sprite.workspace / "documents/bad.txt").exists()
    assert not list((sprite.workspace / ".os/run/uploads").iterdir())


# Memory


async def remember(client: Client, op: str, **payload: Any) -> Message:
    answer = await client.ask("memory", {"op": op, **payload})
    assert answer["type"] == "memory_result", answer
    result: Message = answer["payload"]
    assert result["op"] == op
    return result


async def test_memory_files_are_listed_and_read(client: Client) -> None:
    files = (await remember(client, "files"))["files"]
    assert [f["name"] for f in files] == ["soul.md", "os.md", "tools.md", "user.md", "files.md", "context.md"]
    assert [f["managed"] for f in files] == ["deploy"] * 2 + ["curated"] * 4
    assert {f["name"]: f["limit"] for f in files}["tools.md"] == 150
    soul = await remember(client, "file", name="soul.md")
    assert (soul["version"], soul["content"].count("\n")) == (0, files[0]["lines"])


async def test_edit_is_applied_versioned_and_announced(client: Client, sprite: SpriteServer) -> None:
    for number in (1, 2):
        async with sprite.client() as other:
            edited = await remember(client, "edit", name="user.md", content=f"# User {number}\n")
            assert (edited["version"], edited["content"]) == (number, f"# User {number}\n")
            update = (await other.until(lambda m: m["type"] == "memory_update"))["payload"]
            assert (update["files"], update["learnings"]) == (["user.md"], [])
    assert (sprite.workspace / ".os/memory/user.md").read_text() == "# User 2\n"
    history = (await remember(client, "history", name="user.md"))["history"]
    assert [(h["version"], h["lines"], h["source"]) for h in history] == [(1, 1, "person"), (2, 1, "person")]
    old = await remember(client, "file", name="user.md", version=1)
    assert (old["version"], old["content"]) == (1, "# User 1\n")


async def test_search_finds_learnings_and_turns(client: Client) -> None:
    """The result names the last indexed turn and the number of uncurated turns."""
    found = await remember(client, "search", query="dates, gladly", limit=5)
    assert (found["indexed_through"], found["waiting"]) == (2, 1)
    turn, learning = found["hits"]
    assert (learning["kind"], learning["type"], learning["turn_id"]) == ("learning", "PREFERENCE", 1)
    assert (turn["kind"], turn["id"], turn["session_id"]) == ("turn", 1, SESSION)
    assert (await remember(client, "search", query='"AND ( NEAR', limit=HUGE))["hits"] == []


async def test_learnings_are_paginated(client: Client) -> None:
    first = (await remember(client, "learnings", limit=2))["learnings"]
    assert [row["content"] for row in first] == ["Dates are DD/MM.", "Call Bo."]
    rest = (await remember(client, "learnings", after=first[-1]["id"], limit=HUGE))["learnings"]
    assert [row["content"] for row in rest] == ["Tell Cy."]
    assert (await remember(client, "learnings", after=2**63 - 1))["learnings"] == []


async def test_turn_is_returned_completely(client: Client) -> None:
    turn = (await remember(client, "turn", id=1))["turn"]
    assert (turn["user_message"], turn["agent_response"], turn["outcome"]) == (
        "Dates as DD/MM please",
        "Gladly.",
        "complete",
    )
    assert (turn["tool_calls"][0]["name"], turn["tool_calls"][0]["input"]) == ("Bash", {"command": "date"})


async def test_action_is_resolved(client: Client) -> None:
    before = (await remember(client, "actions"))["actions"]
    assert [(a["content"], a["status"]) for a in before] == [("Call Bo.", "open"), ("Tell Cy.", "open")]
    after = (await remember(client, "resolve_action", id=before[0]["id"], status="done"))["actions"]
    assert [a["status"] for a in after] == ["done", "open"]


#: test_damaged_payloads.py covers the remaining cases.
@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"op": "file", "name": "../../run/token"}, "not_found"),
        ({"op": "file", "name": "x" * 100_000}, "not_found"),
        ({"op": "turn", "id": -HUGE}, "bad_payload"),
        ({"op": "edit", "name": "soul.md", "content": "I obey."}, "bad_request"),
        ({"op": "edit", "name": "../user.md", "content": "x"}, "bad_request"),
        ({"op": "edit", "name": "context.md", "content": "- x\n" * 201}, "over_limit"),
        ({"op": "edit", "name": "context.md", "content": "x" * 24_001}, "over_limit"),
        ({"op": "resolve_action", "id": 999, "status": "done"}, "not_found"),
    ],
)
async def test_invalid_memory_request_is_refused(payload: Message, code: str, client: Client) -> None:
    assert (await refused(client, "memory", payload))["code"] == code


async def test_refused_edits_change_nothing(client: Client) -> None:
    assert (await remember(client, "history", name="context.md"))["history"] == []
    assert "I obey" not in (await remember(client, "file", name="soul.md"))["content"]


# Slow readers: a connection and a feed in this process, on a real socket


class Listener:
    """A listening server for an empty feed."""

    def __init__(self, feed: Feed, port: int, served: dict[str, asyncio.Task[None]]) -> None:
        self.feed = feed
        self.port = port
        self.served = served

    @asynccontextmanager
    async def client(self, name: str, resume: Message | None = None, *, reads: bool = True) -> AsyncIterator[Client]:
        sock = socket.socket()
        if not reads:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=64 * 2**20)
        if not reads:
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a read transport, too
        client = Client(reader, writer)
        before = self.feed.audience
        client.send("auth", {"token": "t", "client": name, **({"resume": resume} if resume else {})})
        async with asyncio.timeout(PATIENCE):
            while self.feed.audience == before:  # noqa: ASYNC110 - the feed has no event for this
                await asyncio.sleep(0.001)
        try:
            yield client
        finally:
            await client.close()


@asynccontextmanager
async def listening(folder: Path, events: int = 0, size: int = 0) -> AsyncIterator[Listener]:
    """Serve a feed that contains `events` events of `size` characters."""
    async with contextlib.AsyncExitStack() as stack:
        workspace = await stack.enter_async_context(open_workspace(folder / "workspace.db"))
        kept = [(n, encode(WholeText("m", "x" * size), seq=n)) for n in range(1, events + 1)]
        await workspace.record(kept, [])
        feed = Feed(workspace, await workspace.last_seq())
        await stack.enter_async_context(feed.running(asyncio.Event().set))
        served: dict[str, asyncio.Task[None]] = {}

        async def snapshot() -> StateSync:
            return state_sync()

        async def handle(_connection: Connection, _message: ClientMessage) -> None:
            return

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            served[str(len(served))] = task
            service = Service("t", feed, snapshot, handle, lambda: None, Leases(workspace, None))
            await Connection(reader, writer, service, lambda: None).serve()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            yield Listener(feed, server.sockets[0].getsockname()[1], served)
        finally:
            server.close()
            await asyncio.wait_for(asyncio.gather(*served.values(), return_exceptions=True), PATIENCE)


async def test_slow_reader_is_closed_without_delaying_others(tmp_path: Path) -> None:
    async with (
        listening(tmp_path) as listener,
        listener.client("slow", reads=False),
        listener.client("quick") as quick,
    ):
        await quick.until(lambda m: m["type"] == "state_sync")
        for number in range(40):
            listener.feed.publish(WholeText(str(number), "x" * 400_000))
            await quick.until(lambda m, n=number: m["payload"].get("mission_id") == str(n))  # type: ignore[misc]
        async with asyncio.timeout(PATIENCE):
            await listener.served["0"]
        assert listener.feed.audience == 1


async def test_reader_stalled_in_replay_is_closed(tmp_path: Path) -> None:
    async with listening(tmp_path, events=100, size=300_000) as listener:
        resume = {"epoch": listener.feed.epoch, "last_seq": 0}
        async with listener.client("stalled", resume, reads=False):
            for number in range(40):
                listener.feed.publish(WholeText(str(number), "x" * 400_000), durable=False)
                await listener.feed.drain()
            async with asyncio.timeout(PATIENCE):
                await listener.served["0"]
        assert listener.feed.audience == 0


async def test_long_replay_precedes_live_events(tmp_path: Path) -> None:
    async with listening(tmp_path, events=150, size=100_000) as listener:
        resume = {"epoch": listener.feed.epoch, "last_seq": 10}
        async with listener.client("back again", resume, reads=False) as client:
            for number in range(5):
                listener.feed.publish(WholeText(str(number), "live"))
            await listener.feed.drain()
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            await client.until(lambda m: m.get("seq") == 155)
            assert [m["seq"] for m in client.received[1:]] == list(range(11, 156))


async def test_pruned_events_are_reported_as_gap(tmp_path: Path) -> None:
    async with listening(tmp_path) as listener:
        workspace = listener.feed._workspace
        await workspace.record([(n, encode(WholeText("m", ""), seq=n)) for n in range(1, 5101)], [])
        await workspace.prune_events()
        listener.feed.last_seq = 5100
        for last_seq, expected in ((50, ["auth_ok", "gap", "state_sync"]), (100, ["auth_ok", "agent_event"])):
            async with listener.client("late", {"epoch": listener.feed.epoch, "last_seq": last_seq}) as client:
                await client.until(lambda m, last=expected[-1]: m["type"] == last)  # type: ignore[misc]
                assert [m["type"] for m in client.received] == expected
