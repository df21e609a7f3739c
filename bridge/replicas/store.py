"""Records of a store of replicas, its errors, and the validation of shipped batches: the sprite is untrusted (pure).

For each sprite a store holds the content of an archive at any moment: rows of the archive's tables (`table` is the
path there, such as `log/observations.jsonl`, `row` its columns), and in addition

- `memory`: the files of the memory folder; id is the name, row `{content: {base64: ...}}`,
- `files`: the person's files: `{path, size, mode, modified_ns, chunks: [sha256]}`,
- `folders`: their folders: `{path, mode, modified_ns}`,
- `manifest`: facts about the whole, such as `schemas`.

`sprite/protocol/replication.py` defines how each is shipped; the store returns the same rows. A column or entry that is
a list of SHA-256 names chunks, which are kept while any version of a row names them. Times are Unix seconds.
"""

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from bridge.errors import BridgeError
from sprite.protocol.replication import Shipped, ShippedChunk, ShippedRow, whole_row
from sprite.protocol.shapes import LARGEST_ID


class StoreError(BridgeError):
    """The store of replicas cannot do what was asked; the message says why."""


class WrongKeyError(StoreError):
    """Data is encrypted with a key that is missing. No data is damaged."""


class DamagedError(StoreError):
    """Data is corrupt: the message names the sprite and the row or chunk. `what` is the piece alone."""

    def __init__(self, words: str, what: str = "") -> None:
        super().__init__(words)
        self.what = what


class StoreAheadError(StoreError):
    """The shipped rows do not continue the replica: an old disk was restored, or the log is another one.

    Nothing was stored. Replication continues after an operator accepts the sprite as it is now (`accept`). The
    replica stays as an older state.
    """


class StoreBehindError(StoreError):
    """The store has acknowledged data of this log that it does not have now: the store was restored from a backup."""


class BadShipmentError(StoreError):
    """A sprite shipped invalid data. None of it was stored."""


class MissingChunkError(StoreError):
    """The sprite ships a row without the chunks that it names: it has to ship everything again."""


class StoreFullError(StoreError):
    """The sprite has used up its quota, or the disk is full. No data was stored."""


@dataclass(frozen=True, slots=True)
class Position:
    """Position to which a sprite's log is replicated.

    `log` is the log's identity, None without a replica. `at` is the arrival of the newest row. The replica was last
    complete at `whole_at` (None: never), at the position `whole_through`.
    """

    log: str | None = None
    through: int = 0
    at: float | None = None
    whole_through: int = 0
    whole_at: float | None = None

    @property
    def is_whole(self) -> bool:
        """Return whether the replica is complete."""
        return self.whole_at is not None and self.whole_through == self.through


@dataclass(frozen=True, slots=True)
class Health:
    """Time of the last check of a replica (Unix seconds), and the number of damaged or missing pieces."""

    checked_at: float | None = None
    damaged: int = 0


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row: its table, its key there, and its columns as shipped."""

    table: str
    id: int | str
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """Size of a replica: current rows, older versions, chunks, and their bytes.

    `position` is that of the readable state: see `SpriteLog.newest`.
    """

    sprite: str
    position: Position
    rows: int
    older_rows: int
    chunks: int
    size: int


#: Data was forgotten: earlier versions must be deleted.
_TOMBSTONES = "tombstones"
#: Everything was shipped again: rows of an earlier position than `{position}` are gone.
_BASELINE = ("manifest", "baseline")

_TABLE = re.compile(r"[a-z_]{1,40}(/[a-z_]{1,40}\.jsonl)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: A forget names the rows that it changed by their numbers.
_MOST_TOMBSTONE_BYTES = 16 * 1024 * 1024
#: Limit for all tombstones of one message.
_MOST_NAMED_BYTES = 4 * _MOST_TOMBSTONE_BYTES
#: Linux opens no longer path.
_LONGEST_ID = 4096
_LOG = re.compile(r"[\x21-\x7e]{1,200}")
#: JavaScript cannot represent larger positions; SQLite's keys may be larger.
_LARGEST_POSITION = 2**53 - 1

#: Ids of rows by table, as tombstones name them.
Named = list[tuple[str, list[int | str]]]


@dataclass(frozen=True, slots=True)
class Row:
    """A row to be stored; `content` is `[id, columns]` as JSON, columns null for a deleted row."""

    table: str
    id: int | str
    position: int
    content: bytes
    is_gone: bool
    chunks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shipment:
    """A validated batch: rows by their positions, chunks by their SHA-256 (hex).

    Versions older than `forgotten` were or will be overwritten in the sprite; `tombstones` name rows that the store
    may not have received. Rows with a position before `baseline` are gone. Both are 0 if unset.
    """

    log: str
    through: int
    rows: tuple[Row, ...]
    chunks: dict[str, bytes]
    forgotten: int
    tombstones: tuple[dict[str, Any], ...]
    baseline: int
    is_whole: bool

    def doomed(self, chunk: Callable[[str], bytes]) -> Named:
        """Return the ids of the rows that the tombstones name, by table.

        `chunk` returns the content of chunks that came in earlier batches. Raise BadShipmentError if the ids
        are invalid or too many.
        """
        size = 0

        def piece(sha256: str) -> bytes:
            nonlocal size
            content = self.chunks.get(sha256)
            content = chunk(sha256) if content is None else content
            size += len(content)
            if size > _MOST_NAMED_BYTES:
                raise BadShipmentError("The sprite shipped too many ids of forgotten rows.")
            return content

        return [each for tombstone in self.tombstones for each in _doomed(tombstone, piece).items()]


def checked(shipped: Shipped) -> Shipment:
    """Validate a batch. Raise BadShipmentError if any part is invalid; then store none of it."""
    if _LOG.fullmatch(shipped.log) is None:
        raise BadShipmentError("The sprite shipped data without the name of its log.")
    if not 0 <= shipped.through <= _LARGEST_POSITION:
        raise BadShipmentError("The sprite shipped data with an invalid position.")
    chunks = dict(map(_chunk, shipped.chunks))
    rows = [_row(row, shipped.through) for row in shipped.rows]
    forgotten = [row.position for row in rows if row.table == _TOMBSTONES and not row.is_gone]
    baselines = [_baseline(row.row) for row in shipped.rows if (row.table, row.id) == _BASELINE]
    return Shipment(
        shipped.log,
        shipped.through,
        tuple(row for row in rows if row.table != _TOMBSTONES and (row.table, row.id) != _BASELINE),
        chunks,
        max(forgotten, default=0),
        tuple(row.row for row in shipped.rows if row.table == _TOMBSTONES and row.row is not None),
        max(baselines, default=0),
        shipped.whole,
    )


def _baseline(row: dict[str, Any] | None) -> int:
    position = 0 if row is None else row.get("position")
    if not isinstance(position, int) or not 0 <= position <= _LARGEST_POSITION:
        raise BadShipmentError("The sprite shipped an invalid position of its baseline.")
    return position


def _chunk(chunk: ShippedChunk) -> tuple[str, bytes]:
    try:
        content = base64.b64decode(chunk.data, validate=True)
    except ValueError as error:
        raise BadShipmentError("The sprite shipped a chunk that is not valid base64.") from error
    if hashlib.sha256(content).hexdigest() != chunk.sha256:
        raise BadShipmentError("The sprite shipped a chunk that does not match its SHA-256.")
    return chunk.sha256, content


def _row(row: ShippedRow, through: int) -> Row:
    _check_key(row.table, row.id)
    position = row.position or through
    if not 0 < position <= through:
        raise BadShipmentError("The sprite shipped a row with a position outside its message.")
    try:
        content = msgspec.json.encode([row.id, row.row])
    except (ValueError, OverflowError, RecursionError) as error:
        raise BadShipmentError("The sprite shipped a row that cannot be encoded.") from error
    named = () if row.row is None else tuple(named_chunks(row.row))
    return Row(row.table, row.id, position, content, row.row is None, named)


def named_chunks(row: dict[str, Any]) -> dict[str, None]:
    """Return the chunks that a row names, each once."""
    lists = (value for value in row.values() if isinstance(value, list))
    return {one: None for values in lists for one in values if isinstance(one, str) and _SHA256.fullmatch(one)}


def _doomed(tombstone: dict[str, Any], chunk: Callable[[str], bytes]) -> dict[str, list[int | str]]:
    try:
        whole = whole_row(tombstone, chunk, _MOST_TOMBSTONE_BYTES)
        named = msgspec.convert(whole.get("rows", {}), dict[str, list[int | str]])
    except ValueError as error:
        raise BadShipmentError("The sprite shipped a forget without the list of forgotten rows.") from error
    for table, ids in named.items():
        for id_ in ids:
            _check_key(table, id_)
    return named


def _check_key(table: str, id_: int | str) -> None:
    if _TABLE.fullmatch(table) is None:
        raise BadShipmentError("The sprite shipped a table with an invalid name.")
    fits = len(id_) <= _LONGEST_ID if isinstance(id_, str) else abs(id_) <= LARGEST_ID
    if not fits:
        raise BadShipmentError("The sprite shipped a row with a key that is too long.")
