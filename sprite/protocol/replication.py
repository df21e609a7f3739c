"""Replication messages (pure): rows of the log, and the person's files in chunks. Times are Unix seconds.

Rows belong to these tables; `id` identifies a row permanently, even after its deletion:

- the tables of an archive, by their path there (`log/observations.jsonl`): `id` is a number that orders the rows as
  in the archive; `row` has the archive's columns.
- `memory`: the files of the memory folder by their name on disk: `{content: {base64}, mode, modified_ns}`.
- `files`, `folders`: the person's. `id` is the SHA-256 (hex) of the path, so that a forgotten name is stored
  nowhere in clear: `{path, size, mode, modified_ns, chunks: [sha256, ...]}`, `{path, mode, modified_ns}`.
- `manifest`: `schemas` (number of migrations of each database) and `files_left_out`, which is `{over_limit, bytes}`
  for files over the limit and `{unkept, named}` for files and folders without a place in an archive. With `baseline`
  (`{position}`) everything was sent again, and rows of an earlier position are deleted.
- `tombstones`: something was forgotten; `id` is the forget's number among the curations, `row` is `{rows: {table:
  [id, ...]}}`, the changed or deleted rows that were not sent yet. Forgotten text may also be in older versions of
  rows of any table, and in chunks. A replica with such versions overwrites all data that is older than the tombstone
  and no longer current, before it acknowledges.

A row that is too long for a frame has the one column `{"chunks": [sha256, ...]}`: the concatenated chunks are the
row as JSON. `whole_row` assembles it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct, field

from sprite.protocol.shapes import ClientPayload, RowId, ServerPayload

#: Limit for the rows of a message, as JSON: the content of a frame, and the rows' positions.
MOST_ROW_BYTES = 2 * 1024 * 1024
#: Limit for a row assembled from chunks, as JSON. Repeated names of one chunk could make gigabytes.
MOST_LONG_ROW_BYTES = 128 * 1024 * 1024
#: The largest epoch is the time in seconds plus a hundred years.
EPOCHS_AHEAD = 100 * 366 * 86_400


class Lease(Struct):
    """A bridge's ownership of a sprite: the bridge's name and an epoch, which grows with each new owner."""

    owner: str
    epoch: int


class Lacks(Struct):
    """The pieces that the bridge's store needs again.

    `rows` has inclusive ranges of numbers by table, `chunks` names. A part with text ids, such as `memory`, is sent
    again whole, whatever the ranges.
    """

    rows: dict[str, list[tuple[RowId, RowId]]]
    chunks: list[str]


class Ship(ClientPayload):
    """From the bridge: send all rows after position `after`, then each change.

    `log` identifies the store's log, null for an empty store; a sprite with another log starts from the beginning.
    If the store has more of this log than the sprite, the answer is the error `store_ahead`. `packed`: the store
    can read `packed` rows. `again`: damaged or missing pieces, which are sent again. `store` identifies the store.
    If a known store suddenly has another log, it was reset to an earlier day, and the answer is the error
    `store_behind`.
    """

    after: int
    log: str | None = None
    packed: bool = False
    again: Lacks | None = None
    store: str | None = None


class ShipAck(ClientPayload):
    """From the bridge: the store has durably stored everything up to this position."""

    through: int


class ShippedRow(Struct, array_like=True):
    """The current state of a row: its table, key and columns; null columns for a deleted row.

    A value that is not text is `{"base64": ...}`. `position` is the row's own.
    """

    table: str
    id: int | str
    row: dict[str, Any] | None
    position: int = 0


class ShippedChunk(Struct):
    """A chunk of a file or of a long row, named by the SHA-256 (hex) of its bytes."""

    sha256: str
    data: str  # base64


class Shipped(ServerPayload, omit_defaults=False):
    """To the bridge: rows in commit order. `through` is the position once they are all stored.

    `log` identifies the log and the numbering of its positions, joined by a dot; a restored workspace has another
    numbering. Positions grow, with gaps; each is the time when the row was read, in microseconds since 1970.
    `chunks` come before the rows that refer to them. `whole`: with this message, the store has everything; it is
    repeated, without rows, after each scan of the person's files. `packed` replaces `rows`: their JSON in base64,
    compressed as one stream over all messages of the connection (zlib, flushed after each); see `Unpacker`.
    """

    log: str
    through: int
    rows: list[ShippedRow]
    chunks: list[ShippedChunk] = field(default_factory=list)
    whole: bool = False
    packed: str | None = None


_ROWS = msgspec.json.Decoder(list[ShippedRow])


class Packer:
    """Compress the rows of one connection's messages as a single stream.

    Earlier data makes later rows shorter: a turn repeats its journal.
    """

    def __init__(self) -> None:
        self._zip = zlib.compressobj(6)

    def pack(self, shipped: Shipped) -> Shipped:
        """Return the same message with `packed` in place of its rows."""
        if not shipped.rows:
            return shipped
        data = self._zip.compress(msgspec.json.encode(shipped.rows)) + self._zip.flush(zlib.Z_SYNC_FLUSH)
        return msgspec.structs.replace(shipped, rows=[], packed=base64.b64encode(data).decode())


class Unpacker:
    """Unpack the output of a `Packer`, every message of a connection in order."""

    def __init__(self) -> None:
        self._unzip = zlib.decompressobj()

    def unpack(self, shipped: Shipped) -> Shipped:
        """Return the same message with `rows` in place of `packed`. Raises ValueError if invalid or too many."""
        if shipped.packed is None:
            return shipped
        try:
            plain = self._unzip.decompress(base64.b64decode(shipped.packed, validate=True), MOST_ROW_BYTES)
            if self._unzip.unconsumed_tail:
                raise ValueError("the rows of a message are more than a message holds")
            return msgspec.structs.replace(shipped, rows=_ROWS.decode(plain), packed=None)
        except (zlib.error, msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"the rows of a message cannot be read: {error}") from error


def whole_row(row: dict[str, Any], chunk: Callable[[str], bytes], most: int = MOST_LONG_ROW_BYTES) -> dict[str, Any]:
    """Return a row with its columns, assembled from its chunks if it was too long.

    Raises ValueError if it is invalid or has more than `most` bytes as JSON.
    """
    if row.keys() != {"chunks"}:
        return row
    whole = bytearray()
    try:
        for name in msgspec.convert(row["chunks"], list[str]):
            whole += chunk(name)
            if len(whole) > most:
                raise ValueError("a long row is longer than any row")
        return msgspec.json.decode(whole, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"a long row cannot be read: {error}") from error
