"""Agents may name files anyhow: unsupported names are left out of the archive and reported, all others come back."""

from __future__ import annotations

import os
import unicodedata
import zipfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bridge.config import Settings
from bridge.replicas import archive
from bridge.replicas.archive import LeftOut, archive_of
from bridge.replicas.sealed_store import SealedStore, open_store
from sprite.backup.replica_files import shipping_report
from sprite.protocol.archive import LATEST_NS, LONGEST_KEPT_PATH, MOST_DEEP, why_not_kept
from sprite.protocol.replication import Shipped, ShippedRow, Unpacker
from tests.shipments import append
from tests.shipping_by_hand import named, ship
from tests.shipping_stage import Copy, Stage, shipping_stage
from tests.stores.test_archive import exported, imported, live_in, tree

#: Odd names that are valid text: a disk accepts them as they are.
TAKEN = [
    "documents/with\nnewline\r.txt",
    "documents/\x01\x1b[31mred\x7f.txt",
    "documents/\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe",
    "documents/..  hidden..",
    "documents/...",
    "documents/a\\..\\b",
    "documents/-rf",
    "documents/CON:*?|<>.txt",
    "documents/U\uf7ff",
    "documents/Same",
    "documents/same",
    f"documents/{unicodedata.normalize('NFC', 'é')}",
    f"documents/{unicodedata.normalize('NFD', 'é')}",
    f"documents/{'n' * 255}",
    f"documents/{'ü' * 127}",
    ".os.txt",
    "deep/" * MOST_DEEP + "file",
]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SealedStore]:
    async with open_store(Settings(tmp_path / "data"), None) as store:
        yield store


async def written(store: SealedStore, target: Path) -> LeftOut:
    """Write the stored rows as an archive; return the omitted entries."""
    left_out = list[LeftOut]()
    pieces = [piece async for piece in archive_of(store, "ada", on_left_out=left_out.append)]
    target.write_bytes(b"".join(pieces))
    return left_out[0]


async def followed(stage: Stage, store: SealedStore) -> None:
    """Let the replica follow a workspace until it is complete."""
    unpacker, shipped = Unpacker(), list[Shipped]()

    def hear(_copy: Copy, message: Shipped) -> bool:
        shipped.append(unpacker.unpack(message))
        return message.whole

    await stage.follow(Copy(), hear)
    for message in shipped:
        await append(store, "ada", message)


def put(workspace: Path, path: bytes, content: bytes = b"odd") -> None:
    """Make a file at a path that may be longer than the system can open."""
    *folders, name = path.split(b"/")
    at = os.open(workspace, os.O_RDONLY)
    for folder in folders:
        with suppress(FileExistsError):
            os.mkdir(folder, dir_fd=at)
        below = os.open(folder, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    file = os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=at)
    os.write(file, content)
    os.close(file)
    os.close(at)


async def test_odd_names_are_restored_and_unsupported_reported(
    tmp_path: Path, store: SealedStore, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    await live_in(workspace)
    for path in TAKEN:
        put(workspace, path.encode(), path.encode())
    before = tree(workspace)
    long = b"/".join([b"l" * 250] * 15)
    # On some disks this is `.os`.
    put(workspace, b".OS/run/token")
    put(workspace, b"documents/\xff\xfe.txt")
    put(workspace, b"documents/\xfffolder/plain.txt")
    put(workspace, b"artifacts/" + long + b"/file")
    put(workspace, b"deeper/" * (MOST_DEEP + 1) + b"file")
    async with shipping_stage(tmp_path) as stage:
        await followed(stage, store)
        report = await shipping_report(stage.stores.transcript, stage.workspace)
        assert "missing in the replica and in archives: 5 paths, because the name is unusable" in " ".join(
            report.words()
        )
        # This note contains no names, because a name may be text to forget.
        for row in (await stage.workspace.ship_state.rows("manifest")).values():
            assert "folder" not in row
    left_out = await written(store, tmp_path / "made.zip")
    assert left_out.unkept == 5
    words = left_out.words()
    assert words.startswith("Left out, because they are unreadable or have an unusable name: ")
    assert words.isprintable()
    for reason in (
        r"documents/\xff\xfe.txt: its name is no text",
        r"documents/\xfffolder: its name is no text",
        "l: its name is too long",
        "deeper: too deep",
        ".OS: its name leads elsewhere",
    ):
        assert reason in words
    # The sprite's own archive has and lacks the same entries.
    own = await exported(workspace, tmp_path / "own.zip")
    assert "left out: documents/\ufffd\ufffd.txt: its name is no text" in capsys.readouterr().err
    for name, made in (("of-store", tmp_path / "made.zip"), ("own", own)):
        await imported(made, tmp_path / name)
        back = tree(tmp_path / name)
        assert {path: back.get(path) for path in before} == before
        for path in TAKEN:
            assert (tmp_path / name / path).read_bytes() == path.encode()
    assert (await exported(tmp_path / "of-store", tmp_path / "again.zip")).read_bytes() == own.read_bytes()


async def test_time_outside_zip_range_is_clamped(tmp_path: Path, store: SealedStore) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    await live_in(workspace)
    for name in ("file", "folder/file"):
        put(workspace, f"documents/{name}".encode())
    for name in ("file", "folder"):
        # The year 2300.
        os.utime(workspace / "documents" / name, (1e10, 1e10))
    async with shipping_stage(tmp_path) as stage:
        await followed(stage, store)
    assert not (await written(store, tmp_path / "made.zip")).words()
    for name, made in (("of-store", tmp_path / "made.zip"), ("own", await exported(workspace, tmp_path / "own.zip"))):
        await imported(made, tmp_path / name)
        assert (tmp_path / name / "documents/file").read_bytes() == b"odd"
        for path in ("file", "folder"):
            assert (tmp_path / name / "documents" / path).stat().st_mtime_ns == LATEST_NS


async def test_file_replaced_by_folder_is_removed_first(tmp_path: Path) -> None:
    async with shipping_stage(tmp_path) as stage:
        put(stage.settings.workspace, b"documents/plan")
        copy = Copy()
        await stage.follow(copy)
        (stage.settings.workspace / "documents/plan").unlink()
        put(stage.settings.workspace, b"documents/plan/one.txt")
        said: list[tuple[str, bool]] = []

        def hear(unpacked: Copy, message: Shipped) -> bool:
            del unpacked
            rows = unpacker.unpack(message).rows
            said.extend((row.table, row.row is None) for row in rows if row.id == named("documents/plan"))
            return message.whole

        unpacker = Unpacker()
        await stage.follow(copy, hear)
        assert said == [("files", True), ("folders", False)]


async def lie(store: SealedStore, *rows: tuple[str, str, dict[str, Any]]) -> None:
    """Let a custom sprite send replica rows `(table, path, more)`."""
    for table, path, more in rows:
        position = await store.position("ada")
        facts = {"path": path, "mode": 0o600, "modified_ns": 1, **more}
        facts |= {"size": 0, "chunks": []} if table == "files" else {}
        row = ShippedRow(table, named(f"{table} {path}"), facts, position.through + 1)
        await append(store, "ada", Shipped(position.log or "", position.through + 1, [row], whole=True))


LEADING = [
    *("../outside", "/etc/outside", "documents/../../outside", "documents//outside", "documents/", ""),
    *(
        ".os/run/token",
        ".os",
        "documents/.",
        "documents/zero\0outside",
        "x" * 256,
        "documents/" * 1000 + "x",
        "x" * 70_000,
    ),
]


@pytest.fixture
async def lived_in(tmp_path: Path, store: SealedStore) -> Path:
    workspace = tmp_path / "deep/lived-in"
    workspace.mkdir(parents=True)
    await live_in(workspace)
    (workspace / "documents/plan").write_text("a plan")
    await ship(store, "ada", workspace)
    return workspace


@pytest.mark.parametrize("table", ["files", "folders"])
async def test_escaping_name_is_only_loss(tmp_path: Path, store: SealedStore, lived_in: Path, table: str) -> None:
    for path in LEADING:
        assert why_not_kept(path) is not None, path
        await lie(store, (table, path, {}))
    left_out = await written(store, tmp_path / "made.zip")
    assert left_out.unkept == len(LEADING)
    words = left_out.words()
    assert words.isprintable()
    assert len(words) < 800
    assert words.endswith(f"; {len(LEADING) - 5} more.")
    with zipfile.ZipFile(tmp_path / "made.zip") as made:
        assert not [name for name in made.namelist() if "outside" in name or ".os" in name]
    around = {path.name for path in tmp_path.iterdir()}
    await imported(tmp_path / "made.zip", tmp_path / "deep/new")
    assert {path.name for path in tmp_path.iterdir()} == around
    assert tree(tmp_path / "deep/new") == tree(lived_in)
    assert not (tmp_path / "deep/new/.os/run/token").exists()


async def test_name_of_file_and_folder_keeps_folder_contents(
    tmp_path: Path, store: SealedStore, lived_in: Path
) -> None:
    del lived_in
    await lie(store, ("folders", "documents/plan", {}))
    await lie(store, *(("files", f"documents/other{more}", {}) for more in ("", "/in", ".txt")))
    left_out = await written(store, tmp_path / "made.zip")
    assert left_out.names() == (
        "documents/other: a folder has the same name; documents/plan: a folder has the same name"
    )
    await imported(tmp_path / "made.zip", tmp_path / "new")
    assert (tmp_path / "new/documents/plan").is_dir()
    assert (tmp_path / "new/documents/other/in").is_file()
    assert (tmp_path / "new/documents/other.txt").is_file()


async def test_impossible_permissions_and_times_are_normalized(
    tmp_path: Path, store: SealedStore, lived_in: Path
) -> None:
    del lived_in
    odd = {"mode": 0o104777, "modified_ns": -(2**90)}
    await lie(store, ("files", "documents/odd", odd), ("folders", "artifacts/odd", odd))
    assert not (await written(store, tmp_path / "made.zip")).words()
    await imported(tmp_path / "made.zip", tmp_path / "new")
    for path in ("documents/odd", "artifacts/odd"):
        assert (tmp_path / "new" / path).stat().st_mode & 0o7777 == 0o777


async def test_names_beyond_archive_limit_are_only_loss(
    tmp_path: Path, store: SealedStore, lived_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del lived_in
    await lie(store, *(("files", f"artifacts/{number}", {}) for number in range(30)))
    for limit, value in (("MOST_FILES", 20), ("MOST_HELD_BYTES", 2000)):
        with monkeypatch.context() as patch:
            patch.setattr(archive, limit, value)
            left_out = await written(store, tmp_path / f"{limit}.zip")
        assert 10 <= left_out.unkept < 40
        assert "there are too many" in left_out.words()
        await imported(tmp_path / f"{limit}.zip", tmp_path / limit)


def test_longest_stored_name_fits_below_import_folders() -> None:
    path = "/".join(["x" * 249] * (LONGEST_KEPT_PATH // 250))
    assert len(path) > LONGEST_KEPT_PATH - 250
    assert why_not_kept(path) is None
    assert why_not_kept(f"{path}/{'x' * 250}") == "its name is too long"
