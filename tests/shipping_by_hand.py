"""Replicate a workspace directly from its files, for tests of replica stores."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bridge.replicas.sealed_store import SealedStore
from sprite.backup.archive import SCHEMAS, LeftOut, Snapshot, snapshot, walk
from sprite.protocol.archive import PARTS, Folder, Part, to_line
from sprite.protocol.replication import Shipped, ShippedChunk, ShippedRow
from tests.command_line import settings_of
from tests.shipments import append

CHUNK_BYTES = 100_000

Columns = dict[str, Any]


async def ship(store: SealedStore, sprite: str, workspace: Path) -> None:
    """Store the current state of a workspace in one message; rows missing from it are deleted from the store."""
    before = (await store.position(sprite)).through
    gone = {(row.table, row.id) async for row in store.rows(sprite)} if before else set()
    found, chunks = dict[tuple[str, int | str], Columns](), dict[str, bytes]()
    async with snapshot(settings_of(workspace)) as look:
        log = str(look.databases["transcript.db"].execute("SELECT id FROM log_identity").fetchone()[0])
        for table, number, columns in _rows(look):
            plain = msgspec.json.encode(columns)
            found[table, number] = columns if len(plain) <= CHUNK_BYTES else {"chunks": _cut(plain, chunks)}
    for item in walk(workspace, LeftOut().add):
        if isinstance(item, Folder):
            facts = {"path": item.path, "mode": item.mode, "modified_ns": item.modified_ns}
            found["folders", named(item.path)] = facts
            continue
        content, seen = (workspace / item.path).read_bytes(), (workspace / item.path).stat()
        facts = {"path": item.path, "size": len(content), "mode": seen.st_mode & 0o777, "modified_ns": seen.st_mtime_ns}
        found["files", named(item.path)] = {**facts, "chunks": _cut(content, chunks)}
    now: dict[tuple[str, int | str], Columns | None] = {**dict.fromkeys(gone), **found}
    rows = [ShippedRow(*key, columns, before + at) for at, (key, columns) in enumerate(now.items(), start=1)]
    sent = [ShippedChunk(sha256, base64.b64encode(piece).decode()) for sha256, piece in chunks.items()]
    await append(store, sprite, Shipped(log, before + len(rows), rows, sent, whole=True))


def named(path: str) -> str:
    """Return the stand-in for a path that must not appear itself."""
    return hashlib.sha256(path.encode()).hexdigest()


def _cut(data: bytes, chunks: dict[str, bytes]) -> list[str]:
    pieces = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
    names = [hashlib.sha256(piece).hexdigest() for piece in pieces]
    chunks.update(zip(names, pieces, strict=True))
    return names


def _rows(look: Snapshot) -> Iterator[tuple[str, int | str, Columns]]:
    yield "manifest", "schemas", {name: len(schema.migrations) for name, schema in SCHEMAS.items()}
    for part in PARTS:
        yield from _table(look, part)
    for name, file in look.memory_files.items():
        content = {"base64": base64.b64encode(file.content).decode()}
        yield "memory", name, {"content": content, "mode": file.mode, "modified_ns": file.modified_ns}


def _table(look: Snapshot, part: Part) -> Iterator[tuple[str, int | str, Columns]]:
    database = look.databases[part.database]
    kept = [row[1] for row in database.execute(f"PRAGMA table_info({part.table})")]
    for number, row in enumerate(database.execute(f"SELECT {', '.join(kept)} FROM {part.table} ORDER BY {part.order}")):
        line = to_line(dict(zip(kept, row, strict=True)))
        yield part.path, number if part.order == "rowid" else named(repr(row[0])), msgspec.json.decode(line)
