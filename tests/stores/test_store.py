"""Replica storage in files and in Postgres: complete current and past rows, sealed against readers."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from bridge.config import Settings
from bridge.db.database import Transaction
from bridge.db.open import open_database
from bridge.db.postgres import CONNECTIONS
from bridge.errors import OperatorError
from bridge.replicas.keys import fixed_keys, key_file
from bridge.replicas.replicator import standing
from bridge.replicas.sealed_store import SealedStore, open_store
from bridge.replicas.sprite_log import PIECE_BYTES, SpriteLog
from bridge.replicas.store import (
    BadShipmentError,
    DamagedError,
    MissingChunkError,
    Position,
    StoreAheadError,
    StoredRow,
    StoreError,
    StoreFullError,
    WrongKeyError,
)
from bridge.replicas.tables import DatabaseShelf, FolderShelf, Shelf
from bridge.replicas.upkeep import Checks, checked, verified
from sprite.protocol.replication import Lacks, Shipped, ShippedChunk, ShippedRow
from tests.in_thread import PATIENCE
from tests.postgres import Server
from tests.shipments import (
    LOG,
    TURNS,
    all_rows,
    append,
    bytes_in,
    chunk,
    new_keys,
    sha,
    shipped,
    store_at,
    turn,
    words,
)

SPRITE = "ada"


@pytest.fixture
def place(chosen_server: Server | None, tmp_path: Path) -> Iterator[Path | str]:
    """A folder, or a database on a real Postgres."""
    if chosen_server is None:
        yield tmp_path
    else:
        url = chosen_server.lend()
        yield url
        chosen_server.take_back(url)


async def move_clock(store: SealedStore, sprite: str, seconds: float) -> None:
    """Age everything stored by the given number of seconds."""

    def move(tx: Transaction) -> None:
        tx.execute("UPDATE stored_moments SET at = at - ? WHERE sprite = ?", (seconds, sprite))
        tx.execute(
            "UPDATE stored_positions SET at = at - ?, whole_at = whole_at - ? WHERE sprite = ?",
            (seconds, seconds, sprite),
        )
        tx.execute("UPDATE stored_chunks SET unused_since = unused_since - ? WHERE sprite = ?", (seconds, sprite))

    await store.shelf.write(sprite, move)


async def sealed_pieces(store: SealedStore, sprite: str) -> list[bytes]:
    def read(tx: Transaction) -> list[bytes]:
        return [
            bytes(row["sealed"])
            for table in ("stored_rows", "stored_chunks", "stored_sprites")
            for row in tx.execute(f"SELECT sealed FROM {table} WHERE sprite = ?", (sprite,))
        ]

    return await store.shelf.read(sprite, read)


def size_of(pieces: list[bytes]) -> int:
    """Return the counted size of all pieces except the sprite's secret."""
    return sum(len(piece) + PIECE_BYTES for piece in pieces) - 60 - PIECE_BYTES


async def test_rows_and_chunks_are_stored_by_key(place: Path | str) -> None:
    content = os.urandom(5000)
    file = {"size": 5000, "mode": 0o644, "modified_ns": 1, "chunks": [sha(content)]}
    async with store_at(place) as store:
        assert await store.position(SPRITE) == Position()
        with pytest.raises(StoreError, match="Nothing is stored of ada"):
            await all_rows(store, SPRITE)
        position = await append(
            store,
            SPRITE,
            shipped(
                turn(10, "ten", 1),
                turn(9, "nine", 2),
                ("files", "notes/ä \N{GRINNING FACE}.md", file, 3),
                ("memory", "soul.md", {"content": {"base64": base64.b64encode(b"\0\xff").decode()}}, 4),
                chunks=[chunk(content)],
                whole=True,
            ),
        )
        assert (position.log, position.through, position.is_whole) == (LOG, 4, True)
        assert await store.position(SPRITE) == position
        assert await all_rows(store, SPRITE) == [
            StoredRow("files", "notes/ä \N{GRINNING FACE}.md", file),
            StoredRow(TURNS, 9, {"id": 9, "user_text": "nine"}),
            StoredRow(TURNS, 10, {"id": 10, "user_text": "ten"}),
            StoredRow("memory", "soul.md", {"content": {"base64": "AP8="}}),
        ]
        assert await store.chunk(SPRITE, sha(content)) == content
        assert await store.sprites() == [SPRITE]
        kept = await store.kept(SPRITE)
        assert (kept.rows, kept.older_rows, kept.chunks) == (4, 0, 1)
        assert kept.size == size_of(await sealed_pieces(store, SPRITE))


async def test_paged_rows_are_ordered_and_unique(place: Path | str) -> None:
    async with store_at(place) as store:
        rows = [turn(number, f"turn {number}", 500 - number) for number in range(499, 0, -1)]
        await append(store, SPRITE, shipped(*rows))
        assert await words(store, SPRITE) == [f"turn {number}" for number in range(1, 500)]


async def test_duplicate_message_is_idempotent_and_atomic(place: Path | str) -> None:
    async with store_at(place) as store:
        first = shipped(turn(1, "one", 1), turn(2, "two", 2), whole=True)
        before = await append(store, SPRITE, first)
        again = await append(store, SPRITE, first)
        assert (again.through, again.whole_through) == (before.through, before.whole_through)
        await append(store, SPRITE, shipped(turn(2, "two", 2), turn(3, "three", 3)))
        assert await words(store, SPRITE) == ["one", "two", "three"]
        assert not (await store.position(SPRITE)).is_whole
        with pytest.raises(BadShipmentError):
            await append(store, SPRITE, shipped(turn(4, "four", 4), ("../etc", 1, {}, 5)))
        with pytest.raises(StoreError, match="asked again"):
            await append(store, SPRITE, shipped(turn(9, "nine", 9)), after=8)
        assert await words(store, SPRITE) == ["one", "two", "three"]
        kept = await store.kept(SPRITE)
        assert (kept.rows, kept.older_rows) == (3, 0)


async def test_past_state_is_readable_for_month(place: Path | str) -> None:
    async with store_at(place) as store:
        await append(store, SPRITE, shipped(turn(1, "first", 1), turn(2, "second", 2), whole=True))
        await move_clock(store, SPRITE, 100)
        then = time.time() - 50
        # Incomplete: a state in between belongs to no time.
        await append(store, SPRITE, shipped(turn(1, "changed", 3)))
        assert await words(store, SPRITE, time.time() + 50) == ["first", "second"]
        await append(store, SPRITE, shipped((TURNS, 2, None, 4), turn(3, "third", 5), whole=True))
        assert await words(store, SPRITE) == ["changed", "third"]
        assert await words(store, SPRITE, then) == ["first", "second"]
        with pytest.raises(StoreError, match="of that time"):
            await all_rows(store, SPRITE, then - 100)

        await move_clock(store, SPRITE, 29 * 86400)
        await store.tidy(SPRITE)
        assert await words(store, SPRITE, then - 29 * 86400) == ["first", "second"]
        await move_clock(store, SPRITE, 2 * 86400)
        await store.tidy(SPRITE)
        with pytest.raises(StoreError, match="of that time"):
            await all_rows(store, SPRITE, then - 31 * 86400)
        assert await words(store, SPRITE) == ["changed", "third"]
        kept = await store.kept(SPRITE)
        assert (kept.rows, kept.older_rows) == (2, 0)


async def test_reader_has_consistent_snapshot(place: Path | str) -> None:
    async with store_at(place) as store:
        await append(store, SPRITE, shipped(*(turn(number, f"old {number}", number) for number in range(1, 301))))
        reading = store.rows(SPRITE)
        seen = [(await anext(reading)).row["user_text"]]
        await append(store, SPRITE, shipped(*(turn(number, f"new {number}", 300 + number) for number in range(1, 302))))
        seen += [row.row["user_text"] async for row in reading]
        assert seen == [f"old {number}" for number in range(1, 301)]


async def test_unreferenced_chunks_are_evicted_after_week(place: Path | str) -> None:
    kept, dropped = b"kept" * 100, b"dropped" * 100
    async with store_at(place) as store:
        await append(
            store,
            SPRITE,
            shipped(
                ("files", "a.txt", {"chunks": [sha(kept)]}, 1),
                ("files", "b.txt", {"chunks": [sha(kept), sha(dropped)]}, 2),
                chunks=[chunk(kept), chunk(dropped)],
                whole=True,
            ),
        )
        await move_clock(store, SPRITE, 100)
        await append(store, SPRITE, shipped(("files", "b.txt", None, 3), whole=True))
        await move_clock(store, SPRITE, 31 * 86400)
        await store.tidy(SPRITE)
        assert await store.chunk(SPRITE, sha(dropped)) == dropped
        await move_clock(store, SPRITE, 8 * 86400)
        await store.tidy(SPRITE)
        assert await store.chunk(SPRITE, sha(kept)) == kept
        with pytest.raises(DamagedError, match="lacks a chunk"):
            await store.chunk(SPRITE, sha(dropped))
        assert (await verified(store, SPRITE)).wrong == []
        assert (await store.kept(SPRITE)).size == size_of(await sealed_pieces(store, SPRITE))


async def test_other_log_waits_for_acceptance_and_keeps_old(place: Path | str) -> None:
    async with store_at(place) as store:
        await append(store, SPRITE, shipped(turn(1, "before", 1), whole=True))
        other = shipped(turn(1, "another", 1), log="log-2")
        with pytest.raises(StoreAheadError):
            await append(store, SPRITE, other)
        assert await words(store, SPRITE) == ["before"]
        await move_clock(store, SPRITE, 100)
        await store.accept(SPRITE)
        assert await store.position(SPRITE) == Position(None, 0, (await store.position(SPRITE)).at)
        # The status describes what a restore would use.
        found = await standing(store, SPRITE)
        assert found.behind is not None
        assert found.behind >= 100
        assert (await store.read(SPRITE, SpriteLog.newest)).log == LOG
        assert (await store.kept(SPRITE)).rows == 1
        await append(store, SPRITE, other)
        assert (await store.read(SPRITE, SpriteLog.newest)).log == LOG
        # Until the new log is complete, the old one is restorable.
        assert await words(store, SPRITE) == ["before"]
        await append(store, SPRITE, shipped(turn(2, "and more", 2), log="log-2", whole=True))
        assert await words(store, SPRITE) == ["another", "and more"]
        assert (await store.read(SPRITE, SpriteLog.newest)).log == "log-2"
        assert (await standing(store, SPRITE)).behind == 0
        assert await words(store, SPRITE, time.time() - 50) == ["before"]
        assert (await verified(store, SPRITE)).wrong == []
        await move_clock(store, SPRITE, 31 * 86400)
        await store.tidy(SPRITE)
        assert (await store.kept(SPRITE)).older_rows == 0


def tombstone(position: int) -> tuple[str, int, Any, int]:
    return "tombstones", position, {"rows": {TURNS: [1, 3], "files": ["secret.txt"]}}, position


async def test_forgotten_text_leaves_versions_generations_and_bytes(place: Path | str) -> None:
    secret, kept = b"the secret file" * 50, b"another file" * 50
    async with store_at(place) as store:
        await append(store, SPRITE, shipped(turn(1, "SECRET of before", 1), log="log-0", whole=True))
        await store.accept(SPRITE)
        await append(
            store,
            SPRITE,
            shipped(
                turn(1, "SECRET one", 1),
                turn(2, "harmless", 2),
                ("files", "secret.txt", {"chunks": [sha(secret)]}, 3),
                ("files", "kept.txt", {"chunks": [sha(kept)]}, 4),
                turn(3, "SECRET three", 5),
                chunks=[chunk(secret), chunk(kept)],
                whole=True,
            ),
        )
        await append(store, SPRITE, shipped(turn(1, "SECRET two", 6), whole=True))
        blobs = await sealed_pieces(store, SPRITE)
        then = time.time()
        rows = [turn(1, "[forgotten]", 7), ("files", "secret.txt", None, 8), tombstone(9)]
        # A row that is overwritten later is removed then, without a month of versions.
        await append(store, SPRITE, shipped(*rows))
        await append(store, SPRITE, shipped(turn(3, "[forgotten, too]", 10), whole=True))

        assert await words(store, SPRITE) == ["[forgotten]", "harmless", "[forgotten, too]"]
        with pytest.raises(StoreError, match="of that time"):
            await all_rows(store, SPRITE, then)
        with pytest.raises(DamagedError):
            await store.chunk(SPRITE, sha(secret))
        assert await store.chunk(SPRITE, sha(kept)) == kept
        assert b"secret" not in (await everything_unsealed(store, SPRITE)).lower()

        left = await sealed_pieces(store, SPRITE)
        gone = [blob for blob in blobs if blob not in left]
        assert len(gone) == 6
        if isinstance(place, Path):
            on_disk = bytes_in(place)
            assert all(blob in on_disk for blob in left)
            assert [blob for blob in gone if blob[:16] in on_disk or blob[-16:] in on_disk] == []
        assert (await verified(store, SPRITE)).wrong == []
        # Later changes are kept for a month again.
        await append(store, SPRITE, shipped(turn(2, "changed", 11), whole=True))
        assert (await store.kept(SPRITE)).older_rows == 1


async def test_forget_is_completed_after_stop_before_wipe(place: Path | str) -> None:
    async with store_at(place) as store:
        await append(store, SPRITE, shipped(turn(1, "one", 1)))
        await store.write(SPRITE, lambda log: log.forget(1, 1))
        assert await store.wipe_is_due(SPRITE)
        # A forget during the wipe makes another wipe due.
        await store.write(SPRITE, lambda log: log.forget(1, 1))
        assert not await store.write(SPRITE, lambda log: log.wiped(1))
        assert not await store.finish_wipe(SPRITE)
        assert not await store.wipe_is_due(SPRITE)


async def test_full_resend_replaces_everything(place: Path | str) -> None:
    async with store_at(place) as store:
        await append(store, SPRITE, shipped(turn(1, "one", 1), turn(2, "two", 2), turn(3, "three", 3), whole=True))
        await append(store, SPRITE, shipped(turn(1, "one", 11), turn(3, "three, changed", 12)))
        await append(store, SPRITE, shipped(("manifest", "baseline", {"position": 10}, 13), whole=True))
        assert await all_rows(store, SPRITE) == [
            StoredRow(TURNS, 1, {"id": 1, "user_text": "one"}),
            StoredRow(TURNS, 3, {"id": 3, "user_text": "three, changed"}),
        ]


async def test_row_without_its_chunks_is_refused(place: Path | str) -> None:
    async with store_at(place) as store:
        with pytest.raises(MissingChunkError):
            await append(store, SPRITE, shipped(("files", "f", {"chunks": [sha(b"content")]}, 1)))
        assert await store.position(SPRITE) == Position()
        await append(store, SPRITE, shipped(through=1, chunks=[chunk(b"content")]))
        await append(store, SPRITE, shipped(("files", "f", {"chunks": [sha(b"content")]}, 2)))
        assert await store.chunk(SPRITE, sha(b"content")) == b"content"


async def everything_unsealed(store: SealedStore, sprite: str) -> bytes:
    """Return every stored piece, decrypted with the key."""
    found = b""

    def read(tx: Transaction) -> list[Any]:
        return [dict(row) for row in tx.execute("SELECT * FROM stored_rows WHERE sprite = ?", (sprite,))]

    for row in await store.shelf.read(sprite, read):
        stored = await store.read(sprite, lambda log, row=row: log.row(row))  # type: ignore[misc]
        found += msgspec.json.encode(stored.row)
    for row in await all_rows(store, sprite):
        for name in row.row.get("chunks", []):
            found += await store.chunk(sprite, name)
    return found


async def test_sealed_store_reveals_nothing_without_key(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await append(
            store,
            SPRITE,
            shipped(
                turn(1, "words that nobody reads", 1),
                ("files", "path/that/nobody/reads.txt", {"chunks": [sha(b"content")]}, 2),
                chunks=[chunk(b"content")],
            ),
        )
    on_disk = bytes_in(tmp_path)
    for told in (b"nobody", b"content", sha(b"content").encode(), bytes.fromhex(sha(b"content")), b"user_text"):
        assert told not in on_disk
    assert oct((tmp_path / "store/ada").stat().st_mode & 0o777) == "0o700"
    assert oct((tmp_path / "store/ada/log.db").stat().st_mode & 0o777) == "0o600"

    async with store_at(tmp_path) as another:
        with pytest.raises(WrongKeyError, match="not in BRIDGE_STORE_KEY"):
            await append(another, SPRITE, shipped(turn(2, "two", 3)))
        with pytest.raises(WrongKeyError):
            await words(another, SPRITE)
        with pytest.raises(WrongKeyError):
            await verified(another, SPRITE)
    assert bytes_in(tmp_path) == on_disk


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE stored_rows SET sealed = CAST(substr(sealed, 1, 20) || x'0001' AS BLOB) WHERE number = 1",
        "UPDATE stored_rows SET sealed = (SELECT sealed FROM stored_rows WHERE number = 2) WHERE number = 1",
        "UPDATE stored_rows SET position = 0, since = 0 WHERE number = 1",
        "UPDATE stored_rows SET part = 'log/sessions.jsonl' WHERE number = 1",
        "UPDATE stored_rows SET is_gone = 1 WHERE number = 1",
        "UPDATE stored_rows SET sealed = x'00' WHERE number = 1",
        "UPDATE stored_chunks SET sealed = zeroblob(length(sealed))",
        "DELETE FROM stored_chunks",
    ],
)
async def test_tampered_piece_is_named(tmp_path: Path, change: str) -> None:
    async with store_at(tmp_path) as store:
        rows = [turn(1, "one", 1), turn(2, "two", 2), ("files", "f", {"chunks": [sha(b"content")]}, 3)]
        await append(store, SPRITE, shipped(*rows, chunks=[chunk(b"content")]))
        assert (await verified(store, SPRITE)).wrong == []
        await store.shelf.write(SPRITE, lambda tx: tx.execute(change))
        wrong = (await verified(store, SPRITE)).wrong
        assert wrong
        assert all(words.startswith("The store of ada ") for words in wrong)
        if "stored_rows" in change:
            with pytest.raises(DamagedError, match=r"row \d of log/\w+.jsonl is not what was stored"):
                await all_rows(store, SPRITE)


async def test_check_counts_lost_rows(place: Path | str) -> None:
    async with store_at(place) as store:
        for at in range(1, 8):
            await append(store, SPRITE, shipped(turn(at, f"turn {at}", 10 * at), turn(1, f"edit {at}", 10 * at + 1)))
        await move_clock(store, SPRITE, 40 * 86400)
        await append(store, SPRITE, shipped(turn(9, "nine", 100), through=100, whole=True))
        await store.tidy(SPRITE)
        await append(store, SPRITE, shipped(tombstone(101)))
        await append(store, SPRITE, shipped(turn(9, "ten", 110), log=LOG, whole=True))
        assert (await checked(store, SPRITE)).wrong == []

        def lose(tx: Transaction) -> None:
            tx.execute("DELETE FROM stored_rows WHERE sprite = ? AND position >= 60", (SPRITE,))

        lost = len(await sealed_pieces(store, SPRITE))
        await store.shelf.write(SPRITE, lose)
        lost -= len(await sealed_pieces(store, SPRITE))
        findings = await checked(store, SPRITE)
        assert lost
        assert findings.count == lost
        assert all("lacks" in words and TURNS in words for words in findings.wrong)
        assert (await store.read(SPRITE, SpriteLog.health)).damaged == lost
        assert (await store.kept(SPRITE)).sprite == SPRITE
        # A missing count is detected too.
        await store.shelf.write(SPRITE, lambda tx: tx.execute("DELETE FROM stored_census WHERE sprite = ?", (SPRITE,)))
        await store.shelf.write(SPRITE, lambda tx: tx.execute("DELETE FROM stored_rows WHERE sprite = ?", (SPRITE,)))
        assert (await verified(store, SPRITE)).wrong == ["The store of ada has lost some of its row counts."]


async def test_damaged_pieces_are_wanted_and_replaced(place: Path | str) -> None:
    async with store_at(place) as store:
        content, other = os.urandom(999), os.urandom(999)
        file, long = {"size": 1998, "chunks": [sha(content), sha(other)]}, {"chunks": [sha(content)]}
        rows = [turn(1, "one", 1), turn(2, "two", 2), (TURNS, 3, long, 3), ("files", "f", file, 4)]
        await append(store, SPRITE, shipped(*rows, chunks=[chunk(content), chunk(other)], whole=True))
        then = time.time()

        def damage(tx: Transaction) -> None:
            log = SpriteLog(tx, SPRITE, store.keyring)
            tx.execute("UPDATE stored_rows SET sealed = ? WHERE sprite = ? AND number = 1", (b"0" * 40, SPRITE))
            sql = "UPDATE stored_chunks SET sealed = ? WHERE sprite = ? AND name = ?"
            tx.execute(sql, (b"0" * 40, SPRITE, log.chunk_name(sha(content))))

        await store.shelf.write(SPRITE, damage)
        assert not await store.write(SPRITE, lambda log: log.ask_again(60))
        assert (await checked(store, SPRITE)).count == 2
        assert await store.write(SPRITE, lambda log: log.ask_again(60))
        assert not await store.write(SPRITE, lambda log: log.ask_again(60))
        # The row of a file is intact, and so is the file's other chunk.
        assert await store.read(SPRITE, SpriteLog.wanted) == Lacks({TURNS: [(1, 1), (3, 3)]}, [sha(content)])
        again = [turn(1, "one", 11), (TURNS, 3, long, 12)]
        await append(store, SPRITE, shipped(*again, chunks=[chunk(content)], whole=True))
        await store.write(SPRITE, SpriteLog.recount)
        assert (await checked(store, SPRITE)).wrong == []
        assert await store.read(SPRITE, SpriteLog.wanted) == Lacks({}, [])
        for as_of in (None, then):
            texts = [row.row.get("user_text") for row in await all_rows(store, SPRITE, as_of) if row.table == TURNS]
            assert texts == ["one", "two", None]
        assert await store.chunk(SPRITE, sha(content)) == content


async def test_lost_rows_are_wanted_by_gaps(place: Path | str) -> None:
    async with store_at(place) as store:
        rows = [turn(number, str(number), number) for number in range(1, 7)]
        await append(store, SPRITE, shipped(*rows, ("memory", "user.md", {}, 7), whole=True))

        def lose(tx: Transaction) -> None:
            tx.execute("DELETE FROM stored_rows WHERE sprite = ? AND number IN (2, 5, 6)", (SPRITE,))

        await store.shelf.write(SPRITE, lose)
        assert (await checked(store, SPRITE)).count == 3
        assert (await store.read(SPRITE, SpriteLog.wanted)).rows == {TURNS: [(2, 2), (5, 2**63 - 1)]}
        # A sprite that does not have all of them any more has shipped what there is.
        await append(store, SPRITE, shipped(turn(2, "2", 12), turn(5, "5", 13), whole=True))
        await store.write(SPRITE, SpriteLog.recount)
        assert (await checked(store, SPRITE)).wrong == []
        assert await words(store, SPRITE) == ["1", "2", "3", "4", "5"]
        # Without a count, a row of any part may be missing.
        await store.shelf.write(SPRITE, lambda tx: tx.execute("DELETE FROM stored_census WHERE sprite = ?", (SPRITE,)))
        wanted = (await store.read(SPRITE, SpriteLog.wanted)).rows
        assert wanted[TURNS] == [(6, 2**63 - 1)]
        assert {"memory", "files", "log/curations.jsonl"} <= wanted.keys()


async def test_checks_are_shared_and_paced(place: Path | str) -> None:
    async with store_at(place) as store:
        for sprite in (SPRITE, "eve"):
            await append(store, sprite, shipped(turn(1, "one", 1), whole=True))
        damaged = list[str]()
        checks, others = Checks(store, damaged.append), Checks(store, damaged.append)
        await asyncio.gather(checks.look(), others.look())
        assert (checks.outcomes + others.outcomes)["whole"] == 2
        await store.shelf.write(SPRITE, lambda tx: tx.execute("DELETE FROM stored_rows WHERE sprite = ?", (SPRITE,)))
        await checks.look()
        assert damaged == []
        again = "UPDATE stored_sprites SET check_began_at = NULL WHERE sprite = ?"
        await store.shelf.write(SPRITE, lambda tx: tx.execute(again, (SPRITE,)))
        await checks.look()
        assert damaged == [SPRITE]
        assert checks.damaged == {SPRITE: 1, "eve": 0}
        assert (await standing(store, SPRITE)).health.damaged == 1


async def test_row_of_another_sprite_is_rejected(place: Path | str) -> None:
    async with store_at(place) as store:
        for sprite in (SPRITE, "eve"):
            await append(store, sprite, shipped(turn(1, f"of {sprite}", 1)))
        (_, secret), (row, _) = await sealed_pieces(store, "eve"), await sealed_pieces(store, SPRITE)

        def put(tx: Transaction) -> None:
            tx.execute("UPDATE stored_rows SET sealed = ? WHERE sprite = ?", (row, "eve"))

        await store.shelf.write("eve", put)
        with pytest.raises(DamagedError, match="store of eve"):
            await words(store, "eve")
        assert await words(store, SPRITE) == ["of ada"]
        assert secret not in await sealed_pieces(store, SPRITE)


class Ending:
    """A shelf whose process ends before its nth write."""

    def __init__(self, shelf: Shelf, writes: int) -> None:
        self._shelf = shelf
        self._left = writes
        self.read, self.sprites, self.wipe, self.remove = shelf.read, shelf.sprites, shelf.wipe, shelf.remove

    async def write(self, sprite: str, work: Callable[[Transaction], Any]) -> Any:
        if not self._left:
            raise asyncio.CancelledError
        self._left -= 1
        return await self._shelf.write(sprite, work)


async def test_large_forget_proceeds_in_steps_and_resumes(tmp_path: Path) -> None:
    rows, names = 1300, {"rows": {TURNS: list(range(1, 1201)), "files": [f"{n}.txt" for n in range(600)]}}
    listed = msgspec.json.encode(names)
    pieces = [listed[at : at + 4096] for at in range(0, len(listed), 4096)]
    async with store_at(tmp_path) as store:
        for version in (0, 1):
            first = version * rows + 1
            turns = [turn(n, f"SECRET {version}", first + n - 1) for n in range(1, rows + 1)]
            await append(store, SPRITE, shipped(*turns, whole=True))
        through = 2 * rows
        # Its targets are sent first, as with everything too long for one message.
        await append(store, SPRITE, shipped(through=through + 1, chunks=[chunk(piece) for piece in pieces]))
        before = await append(store, SPRITE, shipped(through=through + 1, whole=True))
        gone = ("tombstones", 1, {"chunks": [sha(piece) for piece in pieces]}, through + 3)
        message = shipped(turn(1, "[forgotten]", through + 2), gone)
        steps, position = 0, before
        while position.through == before.through:
            ending = SealedStore(cast("Shelf", Ending(store.shelf, steps)), store.keyring, 2**30)
            steps += 1
            try:
                position = await append(ending, SPRITE, message, before.through)
            except asyncio.CancelledError:
                position = await store.position(SPRITE)
                if position.through > before.through:
                    # All except the note that the disk was wiped.
                    break
                # The forget is incomplete, and no remaining row was lost.
                assert position.is_whole == (steps == 1)
                assert await store.count(SPRITE, TURNS) == rows
        # The start; 1,300 older versions, 1,200 turns and 600 files, 500 at a time; and the end.
        assert steps > 8
        assert (await store.kept(SPRITE)).older_rows == 0
        await append(
            store, SPRITE, shipped(*(turn(n, "[forgotten]", through + 2 + n) for n in range(2, 1201)), whole=True)
        )
        assert await words(store, SPRITE) == ["[forgotten]"] * 1200 + ["SECRET 1"] * 100
        assert (await store.kept(SPRITE)).older_rows == 0
        assert (await verified(store, SPRITE)).wrong == []


HOSTILE = [
    shipped(turn(1, "x", 1), log=""),
    shipped(turn(1, "x", 1), log="a\0b"),
    shipped(turn(1, "x", 1), log="x" * 201),
    shipped(turn(1, "x", 1), through=-1),
    shipped(turn(1, "x", 1), through=2**53),
    shipped(turn(1, "x", 5), through=4),
    shipped(turn(1, "x", -5), through=4),
    shipped(("files", "a" * 4097, {}, 1)),
    shipped(("files", "a\ud800", {}, 1)),
    shipped(("files", 2**63, {}, 1)),
    shipped(("files/x\0.jsonl", 1, {}, 1)),
    shipped(("a" * 41, 1, {}, 1)),
    shipped(("tombstones", 1, {"rows": 3}, 1)),
    shipped(("tombstones", 1, {"rows": {"../x": [1]}}, 1)),
    shipped(("tombstones", 1, {"rows": {"files": [{}]}}, 1)),
    shipped(("manifest", "baseline", {"position": "x"}, 1)),
    shipped(("manifest", "baseline", {"position": -1}, 1)),
    shipped(("manifest", "baseline", {}, 1)),
    shipped(("tombstones", 1, {"chunks": [sha(b"a" * 2**19)] * 40}, 1), chunks=[chunk(b"a" * 2**19)]),
    Shipped(LOG, 1, [], [ShippedChunk(sha(b"a"), base64.b64encode(b"b").decode())]),
    Shipped(LOG, 1, [], [ShippedChunk(sha(b"a"), "*")]),
    Shipped(LOG, 1, [], [ShippedChunk("../../a", "")]),
]


async def test_hostile_batch_is_refused_and_not_stored(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        for message in HOSTILE:
            with pytest.raises(BadShipmentError):
                await append(store, SPRITE, message)
            assert await store.position(SPRITE) == Position(), message
            kept = await store.kept(SPRITE)
            assert (kept.rows, kept.older_rows, kept.chunks, kept.size) == (0, 0, 0, 0), message


async def test_endless_replication_fills_own_quota_only(place: Path | str) -> None:
    async with store_at(place, quota=100_000) as store:
        await append(store, "eve", shipped(turn(1, "of eve", 1), whole=True))

        async def without_end() -> None:
            for number in range(1, 100):
                await append(store, SPRITE, shipped(turn(1, "x" * 5000, number)))

        with pytest.raises(StoreFullError, match="has used up its"):
            await without_end()
        kept = await store.kept(SPRITE)
        assert kept.size <= 100_000
        assert kept.position.through == kept.rows + kept.older_rows
        # A message that frees space is accepted, and so is a forget.
        await append(store, SPRITE, shipped(turn(1, "x" * 5000, 49), tombstone(50)))
        assert (await store.kept(SPRITE)).size < 10_000
        await append(store, "eve", shipped(turn(2, "and more", 2), whole=True))


async def test_tiny_rows_count_with_disk_overhead(tmp_path: Path) -> None:
    quota = 500_000
    async with store_at(tmp_path, quota=quota) as store:

        async def without_end() -> None:
            for number in range(0, 100_000, 500):
                rows = [turn(each, "", each) for each in range(number + 1, number + 501)]
                await append(store, SPRITE, shipped(*rows, whole=True))

        with pytest.raises(StoreFullError):
            await without_end()
        assert sum(path.stat().st_size for path in (tmp_path / "store").rglob("*.db")) < 2 * quota


async def test_repeated_completion_uses_no_space(place: Path | str) -> None:
    async with store_at(place) as store:
        await append(store, SPRITE, shipped(turn(1, "first", 1), whole=True))
        for through in range(2, 30):
            more: dict[str, Any] = {"chunks": [chunk(b"again")]} if through % 3 else {}
            row = [("manifest", "baseline", {"position": 1}, through)] if through % 5 == 0 else []
            await append(store, SPRITE, shipped(*row, through=through, whole=through % 2 == 0, **more))
        await append(store, SPRITE, shipped(turn(1, "second", 30), whole=True))

        def moments(tx: Transaction) -> int:
            return int(tx.execute("SELECT count(*) AS count FROM stored_moments").fetchone()["count"])

        assert await store.shelf.read(SPRITE, moments) == 2
        position = await store.position(SPRITE)
        assert (position.through, position.is_whole) == (30, True)
        assert await words(store, SPRITE) == ["second"]


async def test_replication_leaves_database_connections_free(postgres_url: str) -> None:
    """Leases are renewed over the same connections."""
    go_on = threading.Event()
    async with open_database(postgres_url) as database:
        shelf = DatabaseShelf(database)
        try:
            shipping = [asyncio.create_task(shelf.write(f"s{n}", lambda _: go_on.wait())) for n in range(CONNECTIONS)]
            await asyncio.sleep(0)  # all of them are running
            async with asyncio.timeout(PATIENCE):
                await database.statement("SELECT 1")
        finally:
            go_on.set()
        assert await asyncio.gather(*shipping) == [True] * CONNECTIONS


async def test_first_key_seals_and_all_unseal(place: Path | str) -> None:
    old, new = new_keys(2)
    async with store_at(place, fixed_keys([old])) as store:
        await append(store, SPRITE, shipped(turn(1, "one", 1)))
    async with store_at(place, fixed_keys([new, old])) as store:
        await append(store, SPRITE, shipped(turn(2, "two", 2)))
        assert await words(store, SPRITE) == ["one", "two"]
    async with store_at(place, fixed_keys([new])) as store:
        with pytest.raises(WrongKeyError):
            await words(store, SPRITE)
        # A deleted replica of a running agent is shipped once more.
        await store.delete(SPRITE)
        await append(store, SPRITE, shipped(turn(1, "one", 1), turn(2, "two", 2)))
        assert await words(store, SPRITE) == ["one", "two"]


async def test_bridges_sharing_secret_derive_same_seal(postgres_url: str, tmp_path: Path) -> None:
    """This holds also for a named key."""
    async with open_database(postgres_url) as database:

        def store_of(bridge: str, **settings: Any) -> AbstractAsyncContextManager[SealedStore]:
            return open_store(Settings(tmp_path / bridge, database_url=postgres_url, **settings), database)

        secret = "what these two share"
        async with store_of("one", cluster_secret=secret) as one, store_of("two", cluster_secret=secret) as two:
            await append(one, "ada", shipped(turn(1, "one", 1), whole=True), 0)
            assert await words(two, "ada") == ["one"]
        async with store_of("one", cluster_secret=secret, store_keys=(new_keys()[0],)) as named:
            assert await words(named, "ada") == ["one"]
        async with store_of("one", cluster_secret="what others share") as other:
            with pytest.raises(WrongKeyError):
                await words(other, "ada")
        # No new key is made for it.
        async with store_of("alone") as alone:
            with pytest.raises(OperatorError, match="BRIDGE_STORE_KEY"):
                await words(alone, "ada")


async def test_empty_log_of_killed_bridge_needs_no_key(tmp_path: Path) -> None:
    """A bridge makes the log before the key; after a kill in between it starts again."""
    async with open_store(Settings(tmp_path), None) as store:
        await store.tidy("ada")
        assert await store.sprites() == ["ada"]
    async with open_store(Settings(tmp_path), None) as store:
        await append(store, "ada", shipped(turn(1, "one", 1), whole=True), 0)
        assert await words(store, "ada") == ["one"]


async def test_key_file_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "store.key"
    assert key_file(path, makes=True).current().id == key_file(path, makes=True).current().id
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    path.chmod(0o644)
    with pytest.raises(OperatorError, match="can be read by others"):
        key_file(path).current()
    path.chmod(0o600)
    path.write_text("no key\n")
    with pytest.raises(OperatorError, match="contains no valid key"):
        key_file(path).current()
    path.unlink()
    with pytest.raises(OperatorError, match="Restore it from"):
        key_file(path).current()


async def test_deleted_replica_leaves_no_bytes_and_is_replaceable(place: Path | str) -> None:
    async with store_at(place) as store:
        await append(store, "eve", shipped(turn(1, "of eve", 1)))
        await append(store, SPRITE, shipped(turn(1, "one", 1), chunks=[chunk(b"content")]))
        await store.delete(SPRITE)
        assert await store.sprites() == ["eve"]
        assert await store.position(SPRITE) == Position()
        await store.delete(SPRITE)
        await append(store, SPRITE, shipped(turn(7, "seven", 7)))
        assert await words(store, SPRITE) == ["seven"]
        assert await words(store, "eve") == ["of eve"]


async def test_foreign_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store/ada/log.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database at all" * 300)
    async with store_at(tmp_path) as store:
        with pytest.raises(DamagedError, match="damaged"):
            await append(store, SPRITE, shipped(turn(1, "one", 1)))
        assert path.read_bytes() == b"no database at all" * 300
        await append(store, "eve", shipped(turn(1, "of eve", 1)))
        with pytest.raises(StoreError, match="not a valid name"):
            await store.position("../eve")


async def test_folders_without_person_names_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "store/Not A Name").mkdir(parents=True)
    (tmp_path / "store/Not A Name/log.db").touch()
    async with FolderShelf(tmp_path / "store") as shelf:
        assert await shelf.sprites() == []


def test_row_position_defaults_to_messages() -> None:
    assert ShippedRow("files", "a", {}).position == 0
