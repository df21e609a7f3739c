"""Replication from a real sprite: equal to an export, through kills, cut connections and invalid requests."""

from __future__ import annotations

import asyncio
import base64
import os
import random
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from sprite.config import Settings
from sprite.protocol.messages import RELAYED_TYPES, VISITOR_TYPES
from sprite.protocol.replication import Shipped, Unpacker
from tests.command_line import command
from tests.harness import Client, Message, Sprite, running_sprite, sprite_process
from tests.inspection import chat, eventually, journal
from tests.memory_stores import seed_turns
from tests.scripted_model import OfflineModel
from tests.shipping_stage import Copy, archived, same

KILLS = int(os.environ.get("SOAK_KILLS", "0")) // 10 or 1
#: Missions of each life; with a single life, the log is seeded instead.
TEXTS = ("Hello there", "Write a file note{}.md with plant {}", "run `echo hi`") if KILLS > 1 else ()


@asynccontextmanager
async def store(sprite: Sprite) -> AsyncIterator[Client]:
    """Open a connection for replication only."""
    async with sprite.raw() as client:
        client.send("auth", {"token": sprite.token, "protocol": 1, "client": "store"})
        hello = await client.next()
        assert hello is not None
        assert hello["type"] == "auth_ok"
        yield client


async def follow(sprite: Sprite, copy: Copy, enough: Callable[[Shipped], bool], **more: object) -> list[Message]:
    """Replicate until `enough` is true of a batch. Return all other messages."""
    other = []
    copy.unpacker = Unpacker()
    async with store(sprite) as client:
        client.send("ship", {"after": copy.through, "log": copy.log, **more})
        while (message := await client.next()) is not None:
            if message["type"] != "shipped":
                other.append(message)
                continue
            shipped = msgspec.convert(message["payload"], Shipped)
            copy.take(shipped, len(msgspec.json.encode(message)))
            client.send("ship_ack", {"through": shipped.through})
            if enough(shipped):
                break
    return other


async def exported(workspace: Path) -> dict[str, list[dict[str, object]]]:
    path = workspace.parent / "exported.zip"
    code, _, err = await command(workspace, "export", "--force", str(path))
    assert code == 0, err
    return archived(path)


async def test_replication_delivers_exported_rows_only(model: OfflineModel, workspace: Path) -> None:
    copy = Copy()
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        turns: asyncio.Queue[int] = asyncio.Queue()

        def has_one(shipped: Shipped) -> bool:
            turns.put_nowait(len(copy.table("log/observations.jsonl")))
            return copy.table("log/observations.jsonl") != [] and shipped.whole

        # Rows are replicated as the log grows.
        following = asyncio.create_task(follow(sprite, copy, has_one))
        await turns.get()
        await chat(client, "My name is Ada.")
        await following
        assert len(copy.table("log/observations.jsonl")) == 1
        await chat(client, "Make a table of apples 3, pears 5")
        data = base64.b64encode(b"a letter").decode()
        upload = {"upload_id": "u", "name": "letter.txt", "index": 0, "last": True, "data": data}
        assert (await client.ask("file_upload", upload))["type"] == "ack"
        client.send("mission", {"text": "run `python3 -c 'import time; time.sleep(600)'`"})
        await client.event("tool_use")
        await eventually(
            lambda: any(entry["event"] == "start" for entry in journal(workspace)),
            "the tool call is not in the journal",
        )
        # The journal of a running turn is replicated too.
        heard = await follow(sprite, copy, lambda shipped: shipped.whole, packed=True)
        assert heard == []
        assert copy.table("log/journal.jsonl") == journal(workspace) != []
        assert copy.files() == {"documents/letter.txt": b"a letter"}
        client.send("interrupt")
        await client.event("interrupted")
        await client.ask("system", {"action": "flush"})
        await follow(sprite, copy, lambda shipped: shipped.whole)
        same(copy, await exported(workspace), Settings(workspace))
        assert copy.table("log/journal.jsonl") == []
        code, out, _ = await command(workspace, "status")
        assert code == 0
        assert "the bridge has everything" in out


async def test_invalid_replication_requests_do_not_stop_it(model: OfflineModel, workspace: Path) -> None:
    async with running_sprite(workspace, model.url) as sprite:
        async with store(sprite) as client:
            lacks = {"rows": {"log/observations.jsonl": [[1, 2**63]]}, "chunks": []}
            invalid: tuple[Message, ...] = ({"after": -1}, {"after": 2**63}, {"after": "1"}, {}, {"after": 0, "log": 3})
            for payload in (*invalid, {"after": 0, "again": True}, {"after": 0, "again": lacks}):
                assert (await client.ask("ship", payload))["type"] == "error"
            early = await client.ask("ship_ack", {"through": 0})
            assert early["payload"]["code"] == "not_shipped"
            asked = client.send("ship", {"after": 7, "log": "another.log"})
            first = await client.until(lambda m: m["type"] == "shipped")
            assert first["payload"]["log"] != "another.log"
            for through in (-1, 2**62, 1e300):
                assert (await client.ask("ship_ack", {"through": through}))["type"] == "error"
            client.send("ship_ack", {"through": first["payload"]["through"]})
            client.send("ship_ack", {"through": first["payload"]["through"]})
            log = first["payload"]["log"]
            async with store(sprite) as second:
                ahead = await second.ask("ship", {"after": 2**61, "log": log})
                assert ahead["payload"]["code"] == "store_ahead"
            still = await client.ask("ship_ack", {"through": -1})
            assert still["payload"]["message"].startswith("No replica data was sent up to")
            # A rejected request does not replace the current replication; a valid one does.
            async with store(sprite) as third:
                third.send("ship", {"after": 0, "log": None})
                assert (await client.reply(asked))["payload"]["code"] == "ship_replaced"
                await third.until(lambda m: m["type"] == "shipped")
        copy = Copy()
        await follow(sprite, copy, lambda shipped: shipped.whole)
        same(copy, await exported(workspace), Settings(workspace))


async def test_killed_sprite_replicates_every_row_once(model: OfflineModel, workspace: Path) -> None:
    seed = int(os.environ.get("KILL_SEED") or secrets.randbits(32))
    print(f"KILL_SEED={seed}")  # noqa: T201 - pytest shows it where the test fails
    rng = random.Random(seed)  # noqa: S311 - no secret
    copy = Copy()
    await seed_turns(workspace, *(f"Hello {number}" for number in range(50)))
    for number in range(KILLS):
        async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
            (workspace / f"documents/{number}.bin").write_bytes(os.urandom(300_000))
            left = rng.randrange(1, 9)
            for text in TEXTS:
                client.send("mission", {"text": text.format(number, number)})
            for edit in range(20):
                content = f"# User\n\n- Says {edit} in life {number}.\n"
                client.send("memory", {"op": "edit", "name": "user.md", "content": content})

            async def cut(sprite: Sprite = sprite, left: int = left) -> None:
                count = 0

                def enough(_shipped: Shipped) -> bool:
                    nonlocal count
                    count += 1
                    return count >= left

                await follow(sprite, copy, enough, packed=bool(left % 2))

            with suppress(ConnectionError):
                await cut()
            await sprite.kill()
    assert copy.positions == sorted(set(copy.positions))
    async with running_sprite(workspace, model.url) as again, again.client() as client:
        await client.ask("heartbeat")
        await client.ask("system", {"action": "flush"})
        await follow(again, copy, lambda shipped: shipped.whole)
        same(copy, await exported(workspace), Settings(workspace))
        assert len(copy.files()) >= KILLS


@pytest.mark.parametrize("type_", ["ship", "ship_ack", "shipped"])
def test_browser_cannot_send_or_receive_replication(type_: str) -> None:
    assert type_ not in VISITOR_TYPES
    assert type_ not in RELAYED_TYPES
