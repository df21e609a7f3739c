"""Archives made from replicas: the same rows, files and restored workspace as the sprite's own archive."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
import zipfile
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from bridge.config import Settings
from bridge.replicas.archive import MOST_BYTES, LeftOut, archive_of
from bridge.replicas.sealed_store import SealedStore, open_store
from bridge.replicas.store import DamagedError, StoreError
from sprite.protocol.archive import MANIFEST
from sprite.protocol.replication import Shipped, ShippedRow, Unpacker
from tests.shipments import append, chunk
from tests.shipping_by_hand import named, ship
from tests.shipping_stage import Copy, shipping_stage
from tests.stores.test_archive import exported, imported, live_in, opened


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace, which tests copy."""
    workspace = tmp_path_factory.mktemp("original")
    asyncio.run(live_in(workspace))
    (workspace / "documents/large.bin").write_bytes(bytes(range(256)) * 5_000)
    (workspace / "documents/nothing").touch()
    return workspace


@pytest.fixture
def lived_in(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "lived-in")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SealedStore]:
    async with open_store(Settings(tmp_path / "data"), None) as store:
        yield store


async def written(store: SealedStore, target: Path, as_of: float | None = None) -> Path:
    pieces = [piece async for piece in archive_of(store, "ada", as_of=as_of)]
    # A streaming reader takes an empty chunk for the end.
    assert all(pieces)
    target.write_bytes(b"".join(pieces))
    return target


async def left_out(store: SealedStore) -> LeftOut:
    told = list[LeftOut]()
    async for _ in archive_of(store, "ada", on_left_out=told.append):
        break
    return told[0]


def damage(tmp_path: Path, table: str, where: str) -> None:
    with closing(sqlite3.connect(tmp_path / "data/store/ada/log.db")) as file, file:
        assert file.execute(f"UPDATE {table} SET sealed = zeroblob(length(sealed)) WHERE {where}").rowcount


async def test_damaged_chunk_costs_only_its_file(lived_in: Path, store: SealedStore, tmp_path: Path) -> None:
    large, notes = "documents/large.bin", "documents/notes.txt"
    await ship(store, "ada", lived_in)
    damage(tmp_path, "stored_chunks", "length(sealed) = (SELECT max(length(sealed)) FROM stored_chunks)")
    assert (await left_out(store)).words() == f"Left out, because they are damaged in the store: {large}."
    await imported(await written(store, tmp_path / "made.zip"), tmp_path / "new")
    assert (tmp_path / "new" / notes).read_bytes() == (lived_in / notes).read_bytes()
    assert not (tmp_path / "new" / large).exists()


async def test_damaged_turn_is_skipped_on_request(lived_in: Path, store: SealedStore, tmp_path: Path) -> None:
    await ship(store, "ada", lived_in)
    damage(tmp_path, "stored_rows", "part = 'log/observations.jsonl' AND number = 2")
    with pytest.raises(DamagedError, match=r"row 2 of log/observations.jsonl .* --leave-out-damaged"):
        await written(store, tmp_path / "whole.zip")
    told = list[LeftOut]()
    pieces = [piece async for piece in archive_of(store, "ada", on_left_out=told.append, leaves_out_damaged=True)]
    (tmp_path / "rest.zip").write_bytes(b"".join(pieces))
    assert told[0].damaged_named == ["row 2 of log/observations.jsonl"]
    await imported(tmp_path / "rest.zip", tmp_path / "new")
    numbers = list[set[int]]()
    for number, workspace in enumerate((lived_in, tmp_path / "new")):
        rows = entries(await exported(workspace, tmp_path / f"{number}.zip"))["log/observations.jsonl"].splitlines()
        numbers.append({json.loads(row)["id"] for row in rows})
    assert len(numbers[0] - numbers[1]) == 1


async def test_file_row_without_readable_name_is_skipped(lived_in: Path, store: SealedStore, tmp_path: Path) -> None:
    await ship(store, "ada", lived_in)
    damage(tmp_path, "stored_rows", "part = 'files'")
    assert (await left_out(store)).damaged_named[0] == "one with a damaged name"
    await imported(await written(store, tmp_path / "made.zip"), tmp_path / "new")


def entries(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as file:
        return {name: file.read(name) for name in file.namelist()}


async def test_replica_archive_matches_sprite_archive_except_log_metadata(
    lived_in: Path, store: SealedStore, tmp_path: Path
) -> None:
    await ship(store, "ada", lived_in)
    own = entries(await exported(lived_in, tmp_path / "own.zip"))
    made = entries(await written(store, tmp_path / "made.zip"))
    assert set(own) == set(made)
    told = {name: json.loads(archive[MANIFEST]) for name, archive in (("own", own), ("made", made))}
    assert told["own"] == told["made"]
    for name in made.keys() - {MANIFEST}:
        assert made[name] == own[name], name


async def test_workspace_restored_from_replica_exports_same_archive(
    lived_in: Path, store: SealedStore, tmp_path: Path
) -> None:
    await ship(store, "ada", lived_in)
    own = await exported(lived_in, tmp_path / "own.zip")
    await imported(await written(store, tmp_path / "made.zip"), tmp_path / "new")
    assert (await exported(tmp_path / "new", tmp_path / "again.zip")).read_bytes() == own.read_bytes()


async def test_missing_or_altered_piece_fails_archive(lived_in: Path, store: SealedStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Nothing is stored of ada"):
        await written(store, tmp_path / "none.zip")
    await ship(store, "ada", lived_in)
    # The rows of one replica could fill the disk that others share.
    with pytest.raises(StoreError, match="too little space"):
        await anext(archive_of(store, "ada", room=1000))
    damage(tmp_path, "stored_rows", "part = 'chat/messages.jsonl'")
    with pytest.raises(DamagedError, match=r"store of ada is damaged: row \d+ of chat/messages.jsonl is not what was"):
        await written(store, tmp_path / "changed.zip")


async def test_abandoned_archive_closes_open_entry(lived_in: Path, store: SealedStore) -> None:
    await ship(store, "ada", lived_in)
    made = archive_of(store, "ada")
    async for piece in made:
        if b"large.bin" in piece:
            break
    await made.aclose()


async def test_malformed_row_is_named(lived_in: Path, store: SealedStore, tmp_path: Path) -> None:
    await ship(store, "ada", lived_in)
    at = (await store.position("ada")).through + 1
    facts = {"path": "documents/notes.txt", "size": 7, "mode": 0o600, "modified_ns": 1}
    log = (await store.position("ada")).log or ""
    broken: list[object] = [[], "x"]
    for chunks in broken:
        row = ShippedRow("files", named("documents/notes.txt"), {**facts, "chunks": chunks}, position=at)
        await append(store, "ada", Shipped(log, at, [row], whole=True))
        assert (await left_out(store)).damaged_named == ["documents/notes.txt"]
        at += 1
    row = ShippedRow("chat/messages.jsonl", 1, {"chunks": "x"}, position=at)
    await append(store, "ada", Shipped(log, at, [row], whole=True))
    with pytest.raises(DamagedError, match=r"row 1 of chat/messages.jsonl is invalid. Expected `array`"):
        await written(store, tmp_path / "odd.zip")


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (10, "damaged in the store: documents/more.txt; documents/notes.txt"),
        (MOST_BYTES, "larger than an archive can be"),
    ],
)
async def test_file_repeating_one_chunk_is_bounded(
    lived_in: Path, store: SealedStore, tmp_path: Path, size: int, words: str
) -> None:
    await ship(store, "ada", lived_in)
    piece = chunk(b"a" * 2**19)
    for name in ("documents/notes.txt", "documents/more.txt"):
        position = await store.position("ada")
        facts = {"path": name, "size": size, "mode": 0o600, "modified_ns": 1, "chunks": [piece.sha256] * 15_000}
        row = ShippedRow("files", named(name), facts, position=position.through + 1)
        await append(store, "ada", Shipped(position.log or "", position.through + 1, [row], [piece], whole=True))
    assert words in (await left_out(store)).words()
    assert (await written(store, tmp_path / "flood.zip")).stat().st_size < 2**20


async def test_archive_at_past_time_has_past_state(lived_in: Path, store: SealedStore, tmp_path: Path) -> None:
    await ship(store, "ada", lived_in)
    before, then = await exported(lived_in, tmp_path / "before.zip"), time.time()
    (lived_in / "documents/notes.txt").unlink()
    async with opened(lived_in) as (stores, _):
        await stores.turn("This came later")
    await ship(store, "ada", lived_in)
    now = await exported(lived_in, tmp_path / "now.zip")
    for name, as_of, own in (("then", then, before), ("newest", None, now)):
        await imported(await written(store, tmp_path / f"{name}.zip", as_of), tmp_path / name)
        assert (await exported(tmp_path / name, tmp_path / f"{name}-again.zip")).read_bytes() == own.read_bytes()
    with pytest.raises(StoreError, match="of before"):
        await written(store, tmp_path / "never.zip", 5.0)


async def test_long_row_is_assembled_from_chunks(lived_in: Path, store: SealedStore, tmp_path: Path) -> None:
    async with opened(lived_in) as (stores, _):
        await stores.turn("A long story: " + "word " * 100_000)
    own = await exported(lived_in, tmp_path / "own.zip")
    await ship(store, "ada", lived_in)
    await imported(await written(store, tmp_path / "made.zip"), tmp_path / "new")
    assert (await exported(tmp_path / "new", tmp_path / "again.zip")).read_bytes() == own.read_bytes()


async def test_replica_of_real_sprite_equals_its_export(tmp_path: Path, store: SealedStore) -> None:
    (tmp_path / "workspace").mkdir()
    await live_in(tmp_path / "workspace")
    shipped: list[Shipped] = []
    async with shipping_stage(tmp_path) as stage:

        def hear(copy: Copy, message: Shipped) -> bool:
            del copy
            shipped.append(unpacker.unpack(message))
            return message.whole

        unpacker = Unpacker()
        await stage.follow(Copy(), hear)
    own = await exported(tmp_path / "workspace", tmp_path / "own.zip")
    for message in shipped:
        await append(store, "ada", message)
    await imported(await written(store, tmp_path / "made.zip"), tmp_path / "new")
    assert (await exported(tmp_path / "new", tmp_path / "again.zip")).read_bytes() == own.read_bytes()
