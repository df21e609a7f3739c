"""Replication of user files: contents once, then changes only, within the size limit, and regular files only."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from sprite.backup import replica_files as looks
from sprite.backup.replica_files import CHUNK_BYTES, chunks_of
from sprite.backup.replicator import MOST_UNACKED_BYTES
from sprite.protocol.frames import encode
from sprite.protocol.replication import Ship, Shipped
from tests.looks import eventually
from tests.shipping_stage import Copy, Stage, same, shipping_stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with shipping_stage(tmp_path) as opened:
        (opened.settings.workspace / "documents").mkdir()
        yield opened


def write(stage: Stage, path: str, content: bytes) -> Path:
    file = stage.settings.workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    # Old enough that a change cannot go unnoticed.
    os.utime(file, (1_700_000_000, 1_700_000_000))
    return file


async def test_files_and_folders_are_sent_content_once(stage: Stage) -> None:
    large = os.urandom(CHUNK_BYTES * 3 + 5)
    write(stage, "documents/large.bin", large)
    write(stage, "documents/same.bin", large)
    write(stage, "artifacts/deep/empty", b"").chmod(0o640)
    copy = Copy()
    await stage.follow(copy)
    assert copy.files() == {"documents/large.bin": large, "documents/same.bin": large, "artifacts/deep/empty": b""}
    assert {row["path"]: row["mode"] for row in copy.table("files")}["artifacts/deep/empty"] == 0o640
    assert {row["path"] for row in copy.table("folders")} == {"artifacts/deep"}
    assert copy.size < len(large) * 1.5
    same(copy, await stage.expected(), stage.settings)

    write(stage, "documents/large.bin", large + b"!")
    (stage.settings.workspace / "documents/same.bin").rename(stage.settings.workspace / "documents/moved.bin")
    before = copy.size
    await stage.follow(copy)
    assert copy.files()["documents/large.bin"] == large + b"!"
    assert copy.files().keys() == {"documents/large.bin", "documents/moved.bin", "artifacts/deep/empty"}
    # Its last chunk and rows, without the chunks sent before.
    assert copy.size - before < CHUNK_BYTES


async def test_file_scan_reports_its_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica never passes off an older scan as current."""
    # Replaces half a minute.
    monkeypatch.setattr(looks, "_LATEST_SECONDS", 0.1)
    monkeypatch.setattr(looks, "_RARELY", 0)
    told = []

    def twice(_copy: Copy, message: Shipped) -> bool:
        told.extend([message] if message.whole else [])
        return len(told) == 2

    await stage.follow(Copy(), twice)
    assert (told[1].rows, told[1].chunks, told[1].through) == ([], [], told[0].through)


async def test_only_regular_user_files_are_sent(stage: Stage, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("somebody else's")
    folder = stage.settings.workspace / "documents"
    (folder / "link").symlink_to(outside)
    (folder / "folder").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    write(stage, "documents/notes.txt", b"notes")
    # A project without its keys cannot run.
    keys = {f"documents/{name}": name.encode() for name in (".env", "server.pem", ".ssh/id_ed25519")}
    for name, key in keys.items():
        write(stage, name, key)
    copy = Copy()
    await stage.follow(copy)
    assert copy.files() == {"documents/notes.txt": b"notes", **keys}
    assert ("manifest", "files_left_out") not in copy.rows
    assert b"somebody else's" not in b"".join(copy.chunks.values())
    with pytest.raises(NotADirectoryError):
        next(chunks_of(stage.settings.workspace, "documents/folder/outside.txt", set()))
    with pytest.raises(OSError, match="symbolic links"):
        next(chunks_of(stage.settings.workspace, "documents/link", set()))


async def test_files_over_limit_are_omitted_newest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The omission is reported."""
    monkeypatch.setattr("sprite.backup.replica_files.MOST_FILE_BYTES", 1000)
    async with shipping_stage(tmp_path) as stage:
        for number, size in enumerate((400, 500, 300, 2000, 100)):
            os.utime(write(stage, f"documents/{number}", b"x" * size), (number, number))
        copy = Copy()
        await stage.follow(copy)
        assert {path.rpartition("/")[2] for path in copy.files()} == {"4", "2", "1"}
        assert copy.rows["manifest", "files_left_out"] == {"over_limit": 2, "bytes": 2400}
        (stage.settings.workspace / "documents/1").unlink()
        await stage.follow(copy)
        assert {path.rpartition("/")[2] for path in copy.files()} == {"4", "2", "0"}
        assert copy.rows["manifest", "files_left_out"] == {"over_limit": 1, "bytes": 2000}


async def test_file_changed_during_read_is_sent_as_current(stage: Stage) -> None:
    file = write(stage, "documents/log.txt", b"one" * 1000)
    reading = chunks_of(stage.settings.workspace, "documents/log.txt", set())
    assert next(reading) is not None
    file.write_bytes(b"other" * 1000)
    with pytest.raises(StopIteration) as end:
        next(reading)
    assert end.value.value is None
    copy = Copy()
    await stage.follow(copy)
    # Just written: it might have changed again in the same clock tick.
    file.write_bytes(b"again" * 1000)
    await stage.follow(copy)
    assert copy.files() == {"documents/log.txt": b"again" * 1000}


async def test_many_files_and_large_row_arrive(stage: Stage) -> None:
    for number in range(600):
        folder = stage.settings.workspace / f"documents/{number % 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.txt").write_bytes(b"file %d" % number)
    await stage.stores.turn("A book: " + "lorem äpsum " * 100_000)
    copy = Copy()
    await stage.follow(copy)
    assert len(copy.files()) == 600
    assert copy.files()["documents/77/577.txt"] == b"file 577"
    assert len(copy.table("log/observations.jsonl")[0]["user_message"]) >= 1_200_000
    seen = copy.messages
    await stage.follow(copy)
    # A complete scan found nothing new.
    assert copy.messages - seen < 10


async def test_interruption_never_leaves_row_without_chunks(stage: Stage) -> None:
    for number in range(40):
        write(stage, f"documents/{number}.bin", os.urandom(100_000))
    copy = Copy()
    for cut in range(1, 30, 4):
        left = copy.messages + cut
        await stage.follow(copy, lambda seen, message, left=left: seen.messages >= left or message.whole)
        assert all(name in copy.chunks for row in copy.table("files") for name in row["chunks"])
    await stage.follow(copy)
    assert len(copy.files()) == 40


async def test_unacknowledging_replica_blocks_nothing_and_bounds_memory(stage: Stage) -> None:
    for number in range(30):
        write(stage, f"documents/{number}.bin", os.urandom(CHUNK_BYTES * 2))
    held: list[int] = []
    shipping = asyncio.create_task(
        stage.shipping.ship(object(), Ship(0), lambda message: held.append(len(encode(message))))
    )
    await eventually(lambda: sum(held) > MOST_UNACKED_BYTES // 2, "no batch was replicated")
    for number in range(100):
        await stage.stores.turn(f"Turn {number}")
    # Of 20 MB.
    assert sum(held) <= MOST_UNACKED_BYTES
    shipping.cancel()
    with suppress(asyncio.CancelledError):
        await shipping
