"""A replica that follows a sprite in this process: its rows, and those of an archive for comparison."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from sprite.backup.archive import Export, snapshot
from sprite.backup.replicator import Shipping
from sprite.config import Settings
from sprite.protocol.archive import MEMORY_FILES
from sprite.protocol.frames import encode
from sprite.protocol.messages import MAX_FRAME_BYTES
from sprite.protocol.replication import Ship, Shipped, Unpacker, whole_row
from sprite.workspace.database import WorkspaceDB, open_workspace
from tests.in_thread import PATIENCE
from tests.memory_stores import Stores, open_stores


@dataclass
class Copy:
    """The contents of a replica: current rows by table and id, chunks, and its position."""

    log: str | None = None
    through: int = 0
    rows: dict[tuple[str, int | str], dict[str, Any]] = field(default_factory=dict)
    chunks: dict[str, bytes] = field(default_factory=dict)
    #: Positions in order of arrival.
    positions: list[int] = field(default_factory=list)
    #: The newest position of each row.
    position_of: dict[tuple[str, int | str], int] = field(default_factory=dict)
    tombstones: list[dict[str, Any]] = field(default_factory=list)
    #: The number of messages, and the bytes of their frames.
    messages: int = 0
    unpacker: Unpacker = field(default_factory=Unpacker)
    size: int = 0

    def take(self, message: Shipped, size: int = 0) -> None:
        """Store a message after full validation."""
        self.size += size
        self.messages += 1
        shipped = self.unpacker.unpack(message)
        assert size <= MAX_FRAME_BYTES
        assert shipped.through >= self.through
        for chunk in shipped.chunks:
            data = base64.b64decode(chunk.data, validate=True)
            assert hashlib.sha256(data).hexdigest() == chunk.sha256
            self.chunks[chunk.sha256] = data
        for row in shipped.rows:
            assert self.through < row.position <= shipped.through
            self.positions.append(row.position)
            self.position_of[row.table, row.id] = row.position
            if row.row is None:
                self.rows.pop((row.table, row.id), None)
                continue
            whole = whole_row(row.row, self.chunks.__getitem__)
            if row.table == "tombstones":
                self.tombstones.append(whole)
            else:
                assert all(name in self.chunks for name in whole.get("chunks", []))
                self.rows[row.table, row.id] = whole
        self.log, self.through = shipped.log, shipped.through

    def table(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a table, in the order of an archive."""
        found = [(key[1], row) for key, row in self.rows.items() if key[0] == name]
        return [row for _, row in sorted(found, key=lambda each: each[0])]

    def files(self) -> dict[str, bytes]:
        """Return the person's files by path."""
        rows = self.table("files")
        return {row["path"]: b"".join(self.chunks[name] for name in row["chunks"]) for row in rows}


@dataclass
class Stage:
    """The stores and the replicator of a workspace without a sprite process."""

    settings: Settings
    stores: Stores
    workspace: WorkspaceDB
    shipping: Shipping

    async def follow(self, copy: Copy, until: Callable[..., bool] | None = None, **asked: Any) -> None:
        """Receive and acknowledge messages until one ends it: by default, the one that completes replication."""
        queue: asyncio.Queue[Shipped] = asyncio.Queue()
        peer = object()
        ship = Ship(copy.through, copy.log, **asked)
        copy.unpacker = Unpacker()
        shipping = asyncio.create_task(self.shipping.ship(peer, ship, queue.put_nowait))
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    coming = asyncio.create_task(queue.get())
                    await asyncio.wait({coming, shipping}, return_when=asyncio.FIRST_COMPLETED)
                    if not coming.done():
                        coming.cancel()
                        await shipping
                    message = coming.result()
                    copy.take(message, len(encode(message)))
                    if until is not None and until(copy, message):
                        return
                    await self.shipping.acknowledge(peer, message.through)
                    if until is None and message.whole:
                        return
        finally:
            shipping.cancel()
            with suppress(asyncio.CancelledError):
                await shipping

    async def expected(self) -> dict[str, list[dict[str, Any]]]:
        """Return the tables of an archive of it at this moment."""
        path = self.settings.workspace.parent / "archive.zip"
        async with snapshot(self.settings) as look:
            export = Export(look, self.settings.workspace)
            with path.open("wb") as stream:
                for _ in export.write(stream):
                    pass
        return archived(path)


def archived(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of an archive's tables."""
    with zipfile.ZipFile(path) as archive:
        return {
            name: [msgspec.json.decode(line) for line in archive.read(name).splitlines()]
            for name in archive.namelist()
            if name.endswith(".jsonl") and not name.startswith("files/")
        }


def same(copy: Copy, expected: dict[str, list[dict[str, Any]]], settings: Settings) -> None:
    """Assert that a replica has an archive's contents, and memory's files."""
    for name, rows in expected.items():
        found = copy.table(name)
        if name == "log/disk_entries.jsonl":
            assert sorted(found, key=repr) == sorted(rows, key=repr), name
        else:
            assert found == rows, name
    assert {row[0] for row in copy.rows} <= {*expected, "memory", "files", "folders", "manifest"}
    on_disk = {
        name: (settings.memory / name).read_bytes() for name in MEMORY_FILES if (settings.memory / name).exists()
    }
    kept = {key[1]: base64.b64decode(row["content"]["base64"]) for key, row in copy.rows.items() if key[0] == "memory"}
    assert kept == on_disk


@asynccontextmanager
async def shipping_stage(folder: Path, **changed: Any) -> AsyncIterator[Stage]:
    """Open (or make) a workspace below a folder."""
    settings = Settings(folder / "workspace", **changed)
    for path in (settings.memory, settings.run):
        path.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings.memory))
        await stores.projection.settle()
        workspace = await stack.enter_async_context(open_workspace(settings.workspace_db))
        shipping = Shipping(settings, stores.transcript, workspace)
        yield Stage(settings, stores, workspace, shipping)
