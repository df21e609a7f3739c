"""Uploads: safe names, atomic writes without overwriting, and limits."""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite import gateway as clients
from sprite.errors import PeerError, StorageError
from sprite.gateway.uploads import MAX_ID_CHARS, MAX_NAME_BYTES, MAX_OPEN, Uploads, safe_name
from sprite.protocol.messages import MAX_UPLOAD_BYTES, FileUpload


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    (tmp_path / "documents").mkdir()
    made = Uploads(tmp_path, tmp_path / "parts")
    made.prepare()
    return made


def chunk(upload_id: str, index: int, data: bytes, *, last: bool = False, name: str = "a.txt") -> FileUpload:
    return FileUpload(upload_id, name, index, last, base64.b64encode(data).decode())


async def send(uploads: Uploads, name: str, data: bytes = b"content", upload_id: str = "u") -> str:
    path = await uploads.take(chunk(upload_id, 0, data, last=True, name=name))
    assert path is not None
    return path


def stored(tmp_path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(tmp_path)): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


# Names


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\windows\\system.ini", "system.ini"),
        ("..", "unnamed"),
        (".", "unnamed"),
        ("", "unnamed"),
        ("   ", "unnamed"),
        ("a/", "unnamed"),
        (".hidden", "hidden"),
        ("...bashrc", "bashrc"),
        (". .env", "env"),
        ("a\x00b\nc.txt", "a_b_c.txt"),
        ('what? "is" <this>|*:.md', "what_ _is_ _this_.md"),
        ("Übersicht 漢字 😀.pdf", "Übersicht 漢字 😀.pdf"),
        ("half \ud83d.txt", "half _.txt"),
    ],
)
def test_name_becomes_plain_visible_file_name(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@given(st.text(st.characters()) | st.text("./\\ a\x00漢", max_size=20) | st.text("é.", min_size=200))
def test_name_never_escapes_hides_or_overflows(name: str) -> None:
    safe = safe_name(name)
    assert safe
    assert safe == Path(safe).name
    assert not safe.startswith(".")
    assert not safe.startswith(" ")
    assert len(f"{Path(safe).stem} (9999){Path(safe).suffix}".encode()) <= 255
    assert "\x00" not in safe


@pytest.mark.parametrize("name", ["é" * 400 + ".pdf", "a." + "é" * 400, "." * 400 + "x" * 400, "漢" * 300])
async def test_huge_name_is_cut_to_file_system_limit(name: str, uploads: Uploads, tmp_path: Path) -> None:
    for _ in range(2):
        path = await send(uploads, name)
        assert (tmp_path / path).read_bytes() == b"content"
        assert len(Path(path).name.encode()) <= MAX_NAME_BYTES + len(" (2)")
    assert safe_name("é" * 400 + ".pdf").endswith("é.pdf")


def test_name_as_long_as_frame_is_cut() -> None:
    assert len(safe_name("x" * 1_000_000 + ".txt").encode()) == MAX_NAME_BYTES


# Placing


async def test_chunks_become_one_file(uploads: Uploads, tmp_path: Path) -> None:
    assert await uploads.take(chunk("u", 0, b"one ")) is None
    assert await uploads.take(chunk("u", 1, b"two ")) is None
    assert not list((tmp_path / "documents").iterdir()), "an incomplete file is not visible"
    assert await uploads.take(chunk("u", 2, b"three", last=True)) == "documents/a.txt"
    assert stored(tmp_path) == {"documents/a.txt": b"one two three"}


async def test_taken_name_is_numbered_without_overwriting(uploads: Uploads, tmp_path: Path) -> None:
    paths = [await send(uploads, "a.tar.gz", bytes([n])) for n in range(3)]
    assert paths == ["documents/a.tar.gz", "documents/a.tar (2).gz", "documents/a.tar (3).gz"]
    assert [stored(tmp_path)[path] for path in paths] == [b"\x00", b"\x01", b"\x02"]


async def test_concurrent_uploads_of_one_name_make_separate_files(uploads: Uploads, tmp_path: Path) -> None:
    paths = await asyncio.gather(*(send(uploads, "a.txt", str(n).encode(), f"u{n}") for n in range(10)))
    assert len(set(paths)) == 10
    assert set(stored(tmp_path).values()) == {str(n).encode() for n in range(10)}


async def test_existing_link_or_folder_is_kept_unfollowed(uploads: Uploads, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (tmp_path / "documents" / "a.txt").symlink_to(outside)
    (tmp_path / "documents" / "a (2).txt").mkdir()
    assert await send(uploads, "a.txt") == "documents/a (3).txt"
    assert not outside.exists()


async def test_upload_follows_no_link_to_folder(uploads: Uploads, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "documents").rmdir()
    (tmp_path / "documents").symlink_to(outside)
    with pytest.raises(StorageError, match="Not a directory"):
        await send(uploads, "a.txt")
    assert not list(outside.iterdir())


async def test_deleted_folder_is_made_again(uploads: Uploads, tmp_path: Path) -> None:
    (tmp_path / "documents").rmdir()
    assert await send(uploads, "a.txt") == "documents/a.txt"


async def test_empty_upload_makes_empty_file(uploads: Uploads, tmp_path: Path) -> None:
    await send(uploads, "empty", b"")
    assert stored(tmp_path) == {"documents/empty": b""}


async def test_interleaved_uploads_do_not_mix(uploads: Uploads, tmp_path: Path) -> None:
    for index in range(3):
        for name in ("x", "y"):
            await uploads.take(chunk(name, index, f"{name}{index}".encode(), last=index == 2, name=name))
    assert stored(tmp_path) == {"documents/x": b"x0x1x2", "documents/y": b"y0y1y2"}


async def test_upload_id_is_never_path(uploads: Uploads, tmp_path: Path) -> None:
    await uploads.take(chunk("../../evil", 0, b"x"))
    (part,) = (tmp_path / "parts").iterdir()
    assert part.name.isalnum()


# Errors


@pytest.mark.parametrize("index", [1, -1, 2**70])
async def test_out_of_order_chunk_ends_upload(index: int, uploads: Uploads, tmp_path: Path) -> None:
    await uploads.take(chunk("u", 0, b"x"))
    await uploads.take(chunk("u", 1, b"x"))
    with pytest.raises(PeerError, match="Chunk 2 was expected"):
        await uploads.take(chunk("u", index, b"x"))
    assert stored(tmp_path) == {}
    assert await send(uploads, "a.txt") == "documents/a.txt", "it can be sent again"


@pytest.mark.parametrize("data", ["!!!!", "YQ", "YQ==YQ==", "é", "Y Q ="])
async def test_invalid_base64_ends_upload(data: str, uploads: Uploads, tmp_path: Path) -> None:
    await uploads.take(chunk("u", 0, b"x"))
    with pytest.raises(PeerError, match="base64"):
        await uploads.take(FileUpload("u", "a.txt", 1, last=True, data=data))
    assert stored(tmp_path) == {}


async def test_file_over_limit_is_refused(uploads: Uploads, tmp_path: Path) -> None:
    await uploads.take(chunk("u", 0, b"x"))
    (part,) = (tmp_path / "parts").iterdir()
    os.truncate(part, MAX_UPLOAD_BYTES - 1)  # as if so much had come
    await uploads.take(chunk("u", 1, b"x"))
    with pytest.raises(PeerError, match="at most 100 MiB") as refused:
        await uploads.take(chunk("u", 2, b"x"))
    assert refused.value.code == "file_too_large"
    assert stored(tmp_path) == {}


async def test_concurrent_uploads_are_bounded_without_disturbance(uploads: Uploads) -> None:
    for number in range(MAX_OPEN):
        await uploads.take(chunk(f"u{number}", 0, b"x"))
    with pytest.raises(PeerError, match="under way") as refused:
        await uploads.take(chunk("one too many", 0, b"x"))
    assert refused.value.code == "too_many_uploads"
    assert await uploads.take(chunk("u0", 1, b"y", last=True)) == "documents/a.txt"
    assert await uploads.take(chunk("one too many", 0, b"x")) is None


async def test_abandoned_upload_frees_its_slot_after_timeout(uploads: Uploads, tmp_path: Path) -> None:
    for number in range(MAX_OPEN):
        await uploads.take(chunk(f"u{number}", 0, b"x"))
    long_ago = time.time() - 3600
    for part in sorted((tmp_path / "parts").iterdir())[:2]:
        os.utime(part, (long_ago, long_ago))
    assert await uploads.take(chunk("next", 0, b"x")) is None
    assert len(list((tmp_path / "parts").iterdir())) == MAX_OPEN - 1
    assert await uploads.take(chunk("next", 1, b"y", last=True)) == "documents/a.txt"


async def test_leftovers_of_earlier_process_are_dropped(uploads: Uploads, tmp_path: Path) -> None:
    await uploads.take(chunk("u", 0, b"half"))
    again = Uploads(tmp_path, tmp_path / "parts")
    again.prepare()
    assert stored(tmp_path) == {}
    with pytest.raises(PeerError, match="Chunk 0 was expected"):
        await again.take(chunk("u", 1, b"half"))


async def test_disk_error_is_reported_in_words(uploads: Uploads, tmp_path: Path) -> None:
    (tmp_path / "parts").rmdir()
    with pytest.raises(StorageError, match="could not be stored"):
        await uploads.take(chunk("u", 0, b"x"))


async def test_overlong_upload_id_is_refused(uploads: Uploads, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=f"at most {MAX_ID_CHARS} characters"):
        await uploads.take(chunk("x" * (MAX_ID_CHARS + 1), 0, b"x"))
    assert stored(tmp_path) == {}


async def test_refused_uploads_leave_no_memory(uploads: Uploads) -> None:
    for number in range(MAX_OPEN):
        await uploads.take(chunk(f"u{number}", 0, b"x"))

    async def refused(number: int) -> None:
        for index in (0, 1):
            with pytest.raises(PeerError):
                await uploads.take(chunk(f"{number:0{MAX_ID_CHARS}}", index, b"x"))

    def kept() -> int:
        """Return the bytes allocated by this test and the code that it tests; other tests share the process."""
        gc.collect()
        made = [tracemalloc.Filter(True, name) for name in (__file__, clients.uploads.__file__)]
        return sum(each.size for each in tracemalloc.take_snapshot().filter_traces(made).statistics("filename"))

    await refused(0)
    tracemalloc.start()
    try:
        before = kept()
        for number in range(100):
            await refused(number)
        grown = kept() - before
    finally:
        tracemalloc.stop()
    assert grown < 100 * MAX_ID_CHARS
