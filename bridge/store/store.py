"""What a store of shipped logs can do, and its records (pure).

At any moment a store holds, of each sprite, an archive that has not been zipped: rows of the tables that an archive has
(`table` is the path there, such as `log/observations.jsonl`, `row` the columns as they stand there), and beside them

- `memory`: the files of the memory folder; id is the name, row `{content: {base64: ...}}`,
- `files`: the person's files: `{path, size, mode, modified_ns, chunks: [sha256]}`,
- `folders`: their folders: `{path, mode, modified_ns}`,
- `manifest`: what is true of the whole, such as `schemas`.

How each is shipped stands in `sprite/protocol/shipping.py`; the store hands out what was shipped.

A column or entry that is a list of SHA-256 names chunks, which are kept as long as any version of a row names them.
Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from bridge.errors import BridgeError
from sprite.protocol.shipping import Shipped


class StoreError(BridgeError):
    """The store cannot do it, in words."""


class WrongKeyError(StoreError):
    """What is stored was sealed with a key that is not here. Nothing is damaged."""


class DamagedError(StoreError):
    """What is stored is not what was stored: the words say which row or chunk of whom. `what` names it alone."""

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
    """What a sprite ships makes no sense. Nothing was stored."""


class MissingChunkError(StoreError):
    """The sprite ships a row without the chunks that it names: it has to ship everything once more."""


class StoreFullError(StoreError):
    """The sprite has used up what it may have here, or the disk has. Nothing was stored."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a sprite's log is stored.

    `log` is the log's identity, None where nothing is stored yet. `at` is when the newest of it came. All that the
    sprite had, the store had last at `whole_at` (None: never yet), which was `through` `whole_through`.
    """

    log: str | None = None
    through: int = 0
    at: float | None = None
    whole_through: int = 0
    whole_at: float | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing came since the store had everything."""
        return self.whole_at is not None and self.whole_through == self.through


@dataclass(frozen=True, slots=True)
class Health:
    """When all that is stored of a sprite was checked last (Unix seconds), and how much was damaged or missing."""

    checked_at: float | None = None
    damaged: int = 0


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row: the table, its key there, its columns as they were shipped."""

    table: str
    id: int | str
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """What is stored of a sprite: rows as they are now, older versions, chunks, and the bytes they take.

    `position` is of the state that is read: see `newest` of a Store.
    """

    sprite: str
    position: Position
    rows: int
    older_rows: int
    chunks: int
    size: int


class Store(Protocol):
    """Shipped logs by sprite. Every method may raise StoreError, or DatabaseError where the disk or server refuses."""

    async def position(self, sprite: str) -> Position:
        """How far the sprite's log is stored; the empty position for one that is not known."""
        ...

    async def append(self, sprite: str, shipped: Shipped, after: int | None = None) -> Position:
        """Stores what was shipped: all of it, durably, or nothing. What is there already is passed over.

        `after` is the position that it goes on from, where known: the store has to have come so far by itself.
        """
        ...

    async def newest(self, sprite: str) -> Position:
        """Of what `rows` reads: while a sprite is followed anew and not all of it has come, that is what was before."""
        ...

    def rows(
        self,
        sprite: str,
        as_of: float | None = None,
        on_damaged: Callable[[str, DamagedError], None] | None = None,
    ) -> AsyncIterator[StoredRow]:
        """Every row, by table, then by id (numbers by their size, texts in no order): now, or as it was then.

        A moment is one at which the store had all that the sprite had: `as_of` gives the last one up to that time,
        and StoreError where there was none. Without it, the newest that came, even where more was on its way. What
        is appended meanwhile is not seen. A forget ends what could be read as of a time before it.

        A damaged row raises DamagedError, or is passed to `on_damaged` with its table and left out.
        """
        ...

    async def count(self, sprite: str, table: str, as_of: float | None = None) -> int:
        """How many rows of a table there are: now, or as it was then; StoreError as of `rows`."""
        ...

    async def chunk(self, sprite: str, sha256: str) -> bytes:
        """The bytes with this SHA-256 (hex). DamagedError where they are not there or are others."""
        ...

    async def sprites(self) -> list[str]:
        """Of whom something is stored, by name."""
        ...

    async def kept(self, sprite: str) -> Kept:
        """What is stored of a sprite."""
        ...

    async def accept(self, sprite: str) -> None:
        """Follows the sprite anew, from its beginning, as after a restore; what was stored stays, as what was then."""
        ...

    async def delete(self, sprite: str) -> None:
        """Overwrites and deletes all that is stored of a sprite."""
        ...
