"""The interface of a store of replicas, and its records (pure).

For each sprite a store holds the content of an archive at any moment: rows of the archive's tables (`table` is the
path there, such as `log/observations.jsonl`, `row` its columns), and in addition

- `memory`: the files of the memory folder; id is the name, row `{content: {base64: ...}}`,
- `files`: the person's files: `{path, size, mode, modified_ns, chunks: [sha256]}`,
- `folders`: their folders: `{path, mode, modified_ns}`,
- `manifest`: facts about the whole, such as `schemas`.

`sprite/protocol/replication.py` defines how each is shipped; the store returns the same rows.

A column or entry that is a list of SHA-256 names chunks, which are kept while any version of a row names them. Times
are Unix seconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from bridge.errors import BridgeError
from sprite.protocol.replication import Shipped


class StoreError(BridgeError):
    """The store cannot do it; the message says why."""


class WrongKeyError(StoreError):
    """Data is encrypted with a key that is missing. No data is damaged."""


class DamagedError(StoreError):
    """Data is corrupt: the message names the sprite and the row or chunk. `what` is the piece alone."""

    def __init__(self, words: str, what: str = "") -> None:
        super().__init__(words)
        self.what = what


class StoreAheadError(StoreError):
    """What a sprite ships does not continue what the store has of it: an old disk came back, or another log.

    Nothing was stored. It goes on once an operator says that the sprite as it is now is the one to follow
    (`accept`): what the store has stays, as the state of before.
    """


class StoreBehindError(StoreError):
    """The store has acknowledged the log that the sprite ships, and has another one now: it was put back."""


class BadShipmentError(StoreError):
    """A sprite shipped invalid data. None of it was stored."""


class MissingChunkError(StoreError):
    """The sprite ships a row without the chunks that it names: it has to ship everything once more."""


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

    `position` is that of the readable state: see `newest` of a Store.
    """

    sprite: str
    position: Position
    rows: int
    older_rows: int
    chunks: int
    size: int


class Store(Protocol):
    """Replicas by sprite. Every method may raise StoreError, or DatabaseError if the disk or server fails."""

    async def position(self, sprite: str) -> Position:
        """Return the position of the sprite's replica; an empty one for an unknown sprite."""

    async def append(self, sprite: str, shipped: Shipped, after: int | None = None) -> Position:
        """Store a batch durably and atomically, skipping rows that are already stored.

        `after` is the position that it continues from, if known; StoreError if the store is not that far.
        """

    async def newest(self, sprite: str) -> Position:
        """Return the position of the state that `rows` reads: the earlier one while a new generation is incomplete."""

    def rows(
        self,
        sprite: str,
        as_of: float | None = None,
        on_damaged: Callable[[str, DamagedError], None] | None = None,
    ) -> AsyncIterator[StoredRow]:
        """Yield every row, by table, then by id (numbers in order, texts unordered): now, or at a moment.

        At a moment the replica was complete: `as_of` selects the last one up to that time, with StoreError if there
        is none. Without it, the newest state is read, even if more was on its way. Later writes are not seen. A
        forget makes all earlier moments unreadable.

        A damaged row raises DamagedError, or is passed to `on_damaged` with its table and left out.
        """

    async def count(self, sprite: str, table: str, as_of: float | None = None) -> int:
        """Return the number of rows of a table, now or at a moment. Raise StoreError as `rows` does."""

    async def chunk(self, sprite: str, sha256: str) -> bytes:
        """Return the bytes with this SHA-256 (hex). Raise DamagedError if they are missing or corrupt."""

    async def sprites(self) -> list[str]:
        """Return the names of all sprites with a replica."""

    async def kept(self, sprite: str) -> Kept:
        """Return the size of a sprite's replica."""

    async def accept(self, sprite: str) -> None:
        """Replicate the sprite from the beginning, as after a restore; the earlier replica stays as an older state."""

    async def delete(self, sprite: str) -> None:
        """Overwrite and delete everything that is stored of a sprite."""
