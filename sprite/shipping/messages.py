"""Rows as they are shipped: cut into messages that a frame has room for (pure)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from sprite.protocol.archive import PARTS, Row
from sprite.protocol.shipping import ShippedChunk, ShippedRow

#: Pieces of files, and of long rows, in bytes.
CHUNK_BYTES: Final = 256 * 1024
#: A row that is longer, as JSON, goes in chunks.
LONGEST_ROW: Final = CHUNK_BYTES
#: What a message holds of rows and chunks, in bytes as they travel: base64 makes four of three. A frame takes 1 MiB.
MESSAGE_BYTES: Final = 768 * 1024

#: What an archive calls the rows of a table.
PATHS: Final = {part.table: part.path for part in PARTS if not part.derived}


@dataclass(frozen=True, slots=True)
class Item:
    """A row on its way: with the number of its entry, its length as JSON, and the chunks that go before it."""

    change: int
    row: ShippedRow
    size: int
    chunks: list[bytes] = field(default_factory=list)


def item(change: int, table: str, row_id: int | str, row: Row | Mapping[str, Any] | None) -> Item:
    """A row to be shipped; its position is still to come."""
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
    """Bytes in chunks."""
    yield from (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))


def digest(data: bytes) -> str:
    """What a chunk is called."""
    return hashlib.sha256(data).hexdigest()


def chunk_of(data: bytes) -> ShippedChunk:
    """A chunk as it travels."""
    return ShippedChunk(digest(data), base64.b64encode(data).decode())


def size_of(chunk: ShippedChunk) -> int:
    """Its length in a frame."""
    return len(chunk.data) + 100


def in_messages(items: Iterable[Item]) -> Iterator[tuple[list[Item], list[bytes]]]:
    """What goes into one message each: rows, or the chunks of the row that is the next message's first."""
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
