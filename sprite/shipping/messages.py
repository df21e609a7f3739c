"""Rows as sent: split into messages that fit a frame (pure)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from sprite.protocol.archive import PARTS, Row
from sprite.protocol.shipping import ShippedChunk, ShippedRow

#: Size of the pieces of files and of long rows, in bytes.
CHUNK_BYTES: Final = 256 * 1024
#: A row that is longer, as JSON, is sent in chunks.
LONGEST_ROW: Final = CHUNK_BYTES
#: Limit for rows and chunks in a message, in bytes on the wire: base64 makes four of three. A frame takes 1 MiB.
MESSAGE_BYTES: Final = 768 * 1024

#: The archive's names for the rows of a table.
PATHS: Final = {part.table: part.path for part in PARTS if not part.derived}


@dataclass(frozen=True, slots=True)
class Item:
    """A row to send: its entry's number, its length as JSON, and the chunks to send before it."""

    change: int
    row: ShippedRow
    size: int
    chunks: list[bytes] = field(default_factory=list)


def item(change: int, table: str, row_id: int | str, row: Row | Mapping[str, Any] | None) -> Item:
    """Return a row to send; its position is assigned later."""
    shipped = ShippedRow(table, row_id, None if row is None else {name: _shown(value) for name, value in row.items()})
    size = len(msgspec.json.encode(shipped))
    if size <= LONGEST_ROW or shipped.row is None:
        return Item(change, shipped, size)
    chunks = list(pieces(msgspec.json.encode(shipped.row)))
    shipped.row = {"chunks": [digest(chunk) for chunk in chunks]}
    return Item(change, shipped, len(msgspec.json.encode(shipped)), chunks)


def _shown(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def pieces(data: bytes) -> Iterator[bytes]:
    """Yield bytes in chunks."""
    yield from (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))


def digest(data: bytes) -> str:
    """Return the name of a chunk."""
    return hashlib.sha256(data).hexdigest()


def chunk_of(data: bytes) -> ShippedChunk:
    """Return a chunk in wire format."""
    return ShippedChunk(digest(data), base64.b64encode(data).decode())


def size_of(chunk: ShippedChunk) -> int:
    """Return the length of a chunk in a frame."""
    return len(chunk.data) + 100


def in_messages(items: Iterable[Item]) -> Iterator[tuple[list[Item], list[bytes]]]:
    """Yield the content of each message: rows, or chunks of the row that begins the next message."""
    held: list[Item] = []
    size = 0
    for each in items:
        if held and (each.chunks or size + each.size > MESSAGE_BYTES):
            yield held, []
            held, size = [], 0
        for at in range(0, len(each.chunks), 2):
            yield [], each.chunks[at : at + 2]
        held.append(each)
        size += each.size
    if held:
        yield held, []
