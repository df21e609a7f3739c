"""Replication: the replica gets every row unchanged, resumes at its position, and sees one content per position."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sprite.backup.archive import SCHEMAS
from sprite.backup.replica_files import CHUNK_BYTES, digest
from sprite.backup.replicator import POLL_SECONDS
from sprite.errors import PeerError
from sprite.protocol.replication import Lacks, Ship, Shipped
from sprite.storage.changes import ROWS, shipped_tables
from sprite.storage.connection import empty_database
from sprite.workspace.database import ChatAdded, Effect, TurnBegan
from tests.in_thread import PATIENCE
from tests.memory_stores import SESSION, call
from tests.shipping_stage import Copy, Stage, same, shipping_stage


async def lived(stage: Stage, turns: int = 3) -> None:
    """Write some rows of every kind that a sprite has."""
    for number in range(turns):
        turn = await stage.stores.turn(f"My name is Ada the {number}.", "Noted.", calls=[call("Bash", f"ok {number}")])
        await stage.stores.batch(f"LEARNINGS\n[FACT] Ada the {number} [t{turn}]\n", turn)
        effects: list[Effect] = [
            TurnBegan(f"m{turn}", "person", SESSION),
            ChatAdded("user", f"Ada the {number}", f"m{turn}"),
        ]
        await stage.workspace.record([], effects)
    await stage.stores.projection.settle()
    await stage.workspace.create_stack("Plants")
    await stage.stores.transcript.journal.append("t", SESSION, "prompt", {"text": "in the middle"})


async def test_replica_equals_archive(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        await lived(stage)
        copy = Copy()
        await stage.follow(copy)
        same(copy, await stage.expected(), stage.settings)
        assert len(set(copy.positions)) == len(copy.positions)
        assert copy.rows["manifest", "schemas"]["transcript.db"] == len(SCHEMAS["transcript.db"].migrations)
        assert (await stage.workspace.ship_state.followed()).acked == copy.through
        assert await stage.stores.transcript.changes.count() == await stage.workspace.changes.count() == 0

        await lived(stage)
        await stage.stores.transcript.journal.drop("t")
        seen = len(copy.positions)
        await stage.follow(copy, packed=True)
        same(copy, await stage.expected(), stage.settings)
        assert len(copy.positions) > seen
        assert copy.table("log/journal.jsonl") == []


def test_every_archived_table_has_replication_triggers() -> None:
    for name in ("transcript.db", "workspace.db"):
        with empty_database(SCHEMAS[name]) as database:
            triggers = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
            for table in shipped_tables(name):
                assert {f"{table}_ship_{what}" for what in ("new", "changed", "gone")} <= triggers, table
    assert ROWS not in shipped_tables("workspace.db")


async def test_replication_completes_only_after_acknowledgement_is_applied(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        (stage.settings.workspace / "documents").mkdir()
        (stage.settings.workspace / "documents/notes.txt").write_text("Notes")
        peer, sent = object(), asyncio.Queue[Shipped]()
        shipping = asyncio.create_task(stage.shipping.ship(peer, Ship(0, ""), sent.put_nowait))
        try:
            async with asyncio.timeout(PATIENCE):
                while not (message := await sent.get()).chunks:
                    await stage.shipping.acknowledge(peer, message.through)
                # The acknowledged file cannot be recorded for a while, so its row cannot be sent.
                with closing(sqlite3.connect(stage.settings.workspace_db, isolation_level=None)) as other:
                    other.execute("BEGIN IMMEDIATE")
                    acknowledging = asyncio.create_task(stage.shipping.acknowledge(peer, message.through))
                    await asyncio.sleep(2 * POLL_SECONDS)
                    assert sent.empty(), "replication is incomplete"
                    other.execute("ROLLBACK")
                await acknowledging
                rows = (await sent.get()).rows
                assert [row.table for row in rows] == ["files"]
        finally:
            shipping.cancel()
            await asyncio.gather(shipping, return_exceptions=True)


async def test_replication_resumes_after_any_interruption(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        (stage.settings.workspace / "documents").mkdir()
        copy = Copy()
        for number in range(6):
            (stage.settings.workspace / f"documents/{number}.txt").write_text(f"{number} " * 99)
            await lived(stage, 1)
            left = copy.messages + number % 3
            await stage.follow(copy, lambda seen, message, left=left: seen.messages > left or message.whole)
        await stage.follow(copy)
        same(copy, await stage.expected(), stage.settings)
        assert len(copy.files()) == 6
        assert copy.positions == sorted(set(copy.positions))


async def test_replica_ahead_of_restored_disk_is_reported(tmp_path: Path) -> None:
    """It is also reported after the restored disk continued."""
    async with shipping_stage(tmp_path / "new") as stage:
        await lived(stage)
        copy = Copy()
        await stage.follow(copy)
        for path in (stage.stores.transcript, stage.workspace):
            await path._db.copy_to(tmp_path / path._db.path.name)
        await lived(stage)
        await stage.follow(copy)
    settings = stage.settings
    for name, place in (("transcript.db", settings.transcript_db), ("workspace.db", settings.workspace_db)):
        for suffix in ("-wal", "-shm"):
            Path(f"{place}{suffix}").unlink(missing_ok=True)
        (tmp_path / name).replace(place)
    settings.memory_db.unlink()
    async with shipping_stage(tmp_path / "new") as stage:
        rows = dict(copy.rows)
        with pytest.raises(PeerError, match="an older disk was restored") as raised:
            await stage.follow(copy)
        assert raised.value.code == "store_ahead"
        await lived(stage, 9)
        other = Copy()
        await stage.follow(other, lambda seen, _: len(seen.positions) > 9)
        with pytest.raises(PeerError, match="an older disk was restored"):
            await stage.follow(copy)
        assert copy.rows == rows
        # The replica follows the new history if told to.
        copy = Copy()
        await stage.follow(copy)
        same(copy, await stage.expected(), stage.settings)


async def test_replica_with_losses_gets_all_and_deletions(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        await lived(stage)
        old = Copy()
        await stage.follow(old)
        position, rows = old.through, dict(old.rows)
        await stage.stores.transcript.journal.drop("t")
        await stage.follow(old)
        # Restored from its own copy: it still has the journal, and does not know that it is deleted.
        old.through, old.rows = position, rows
        await stage.follow(old)
        baseline = old.rows["manifest", "baseline"]["position"]
        assert baseline > position
        assert old.table("log/journal.jsonl") != []
        fresh = Copy()
        await stage.follow(fresh)
        same(fresh, await stage.expected(), stage.settings)


async def test_restored_replica_cut_off_is_behind(tmp_path: Path) -> None:
    """A replica restored from a backup and cut off before new rows is behind, not ahead."""
    async with shipping_stage(tmp_path) as stage:
        await lived(stage)
        copy = Copy()
        await stage.follow(copy)
        backup = copy.through, dict(copy.rows)
        await lived(stage)
        await stage.follow(copy)
        for _ in range(2):
            copy.through, copy.rows = backup[0], dict(backup[1])
            await stage.follow(copy, lambda *_: True)
        copy.through, copy.rows = backup
        await stage.follow(copy)
        fresh = Copy()
        await stage.follow(fresh)
        same(fresh, await stage.expected(), stage.settings)


async def test_replica_with_older_log_is_behind(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        await lived(stage)
        copy = Copy()
        await stage.follow(copy, store="one")
        older = Copy(log="earlier.log", through=copy.through)
        with pytest.raises(PeerError, match="restored from a backup") as raised:
            await stage.follow(older, store="one")
        assert raised.value.code == "store_behind"
        # Another replica may have another log for other reasons: its bridge sees that the log is foreign.
        await stage.follow(older, lambda *_: True, store="two")


async def test_replica_gets_only_lost_pieces_again(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        folder = stage.settings.workspace / "documents"
        folder.mkdir()
        half, rest = os.urandom(CHUNK_BYTES), os.urandom(CHUNK_BYTES)
        (folder / "note.txt").write_bytes(half + rest)
        (folder / "other.txt").write_text("another")
        for file in folder.iterdir():
            # A file that was just written is sent twice.
            os.utime(file, (1.0, 1.0))
        await lived(stage)
        copy = Copy()
        await stage.follow(copy)
        rows, chunks, through = dict(copy.rows), dict(copy.chunks), copy.through
        turns = "log/observations.jsonl"
        for key in ((turns, 2), ("memory", "user.md")):
            del copy.rows[key]
        del copy.chunks[digest(half)]
        lacks = Lacks({turns: [(2, 2), (99, 99)], "memory": [(0, 0)]}, [digest(half)])
        # After an interruption, the rows come without another request.
        await stage.follow(copy, lambda *_: True, again=lacks)
        await stage.follow(copy, again=Lacks({}, [digest(half)]))
        assert copy.rows == rows
        assert copy.chunks == chunks
        sent = {*(key for key, position in copy.position_of.items() if position > through)}
        (note,) = [key for key, row in rows.items() if row.get("path") == "documents/note.txt" and key[0] == "files"]
        assert sent == {(turns, 2), (turns, 99), note, *(key for key in rows if key[0] == "memory")}


async def test_invalid_message_is_refused_without_effect(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        await lived(stage)
        copy = Copy()
        await stage.follow(copy)
        followed = await stage.workspace.ship_state.followed()
        for after in (-1, 2**63, 2**70):
            with pytest.raises(PeerError, match="no such position"):
                await stage.shipping.ship(object(), Ship(after, copy.log), lambda _: None)
        with pytest.raises(PeerError, match="does not receive replica data"):
            await stage.shipping.acknowledge(object(), 3)
        assert await stage.workspace.ship_state.followed() == followed
        await lived(stage)
        messages: asyncio.Queue[Shipped] = asyncio.Queue()
        peer = object()
        shipping = asyncio.create_task(stage.shipping.ship(peer, Ship(copy.through, copy.log), messages.put_nowait))
        message = await messages.get()
        for through in (-1, message.through + 2**40, 2**70):
            with pytest.raises(PeerError, match="No replica data was sent"):
                await stage.shipping.acknowledge(peer, through)
        with pytest.raises(PeerError, match="does not receive replica data"):
            await stage.shipping.acknowledge(object(), message.through)
        assert await stage.workspace.ship_state.followed() == followed
        for _ in range(2):
            await stage.shipping.acknowledge(peer, message.through)
        # The latest request gets the replication.
        await stage.follow(copy)
        with pytest.raises(PeerError, match="Another connection"):
            await shipping
        same(copy, await stage.expected(), stage.settings)
