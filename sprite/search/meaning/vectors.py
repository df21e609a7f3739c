"""vectors.db: two vectors per turn as int8 with a scale, and an index of them in memory. Derived and deletable."""

from __future__ import annotations

import importlib
import math
import re
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sprite.common import sqlite
from sprite.common.sqlite import LARGEST_ROW_ID, Schema
from sprite.errors import DatabaseUnusableError
from sprite.log.turn_index import Outline, TurnLook
from sprite.search.ranking import NAMED_SPEAKER, STANDS_ALONE
from sprite.storage.connection import Database, Tables, open_database
from sprite.storage.full_text import Filters

#: Characters of each side that are embedded. A whole page's vector means less than that of its beginning.
PIECE_CHARS = 700
#: A shorter side ("Noted.") has no vector: the model takes it for an answer to anything.
LEAST_BYTES = 16
#: Part of the model's id: other pieces need other vectors.
PIECE_RULE = f"first {PIECE_CHARS} characters of each side of {LEAST_BYTES} bytes"
#: Where a sentence ends.
_ENDS = re.compile(r"[.!?](?=\s|$)|[\u3002\uff01\uff1f]|\n")
#: With fewer turns, mean and deviation say little.
LEAST_TURNS = 30
#: Weight of a turn's distance from the mean, in standard deviations; a long turn has more words beside the best.
WEIGHT, WEIGHT_OF_LENGTH = 0.05, 0.15
#: Rows multiplied at once, so that their copies as float32 stay in the processor's cache.
_ROWS = 2048
_SIDES = 2
_SCALE_BYTES = 4
#: Turns for which there is room at first, and turns read from the file at once.
_LEAST_ROOM, _CHUNK = 1024, 20_000

SCHEMA = Schema(
    name="vectors.db",
    application_id=0x53505631,  # "SPV1"
    migrations=[
        """
        CREATE TABLE model (id TEXT NOT NULL);
        -- A side's vector: its scale (float32), then its int8 numbers. Empty without words on that side.
        CREATE TABLE vectors (turn INTEGER PRIMARY KEY, at REAL NOT NULL, person BLOB NOT NULL, reply BLOB NOT NULL);
        """
    ],
)


def piece(text: str) -> str:
    """Return the part of a text that is embedded: its beginning, up to the end of a sentence."""
    text = text.strip()
    if len(text) <= PIECE_CHARS:
        return text
    ends = [match.end() for match in _ENDS.finditer(text, PIECE_CHARS // 2 - 1, PIECE_CHARS)]
    end = ends[-1] if ends else text.rfind(" ", PIECE_CHARS // 2, PIECE_CHARS)
    return text[: end if end > 0 else PIECE_CHARS].strip()


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector, scaled to length 1, as a scale and int8 numbers. ValueError if it is zero or not finite."""
    np = _numpy()
    values = np.asarray(vector, dtype=np.float32)
    most = float(np.abs(values).max(initial=0.0))
    if not 0 < most < math.inf:
        raise ValueError("The vector is zero or not finite.")
    codes = np.rint(values * (127 / most)).astype(np.int8)
    scale = 1 / float(np.linalg.norm(codes.astype(np.float32)))
    return bytes(np.float32(scale).tobytes() + codes.tobytes())


@dataclass(frozen=True, slots=True)
class Near:
    """The similarity in meaning of all turns to a question; `z` counts standard deviations above their mean."""

    turns: Any
    z: Any
    places: Mapping[int, int]

    def pool(self, look: TurnLook, filters: Filters, number: int) -> list[int]:
        """Return up to `number` of the nearest turns that pass the filters."""
        if not self.places:
            return []
        np, z = _numpy(), self.z
        if filters.sql("at", "session_id", project=lambda *_: "0")[0] != "1":
            z = np.where(np.isin(self.turns, look.newest(filters, LARGEST_ROW_ID)), z, 0)
        nearest = np.argpartition(-z, min(number, len(z) - 1))[:number]
        return [int(self.turns[place]) for place in nearest if z[place] > 0]

    def term(self, outline: Outline, *, named: bool) -> float:
        """Return how much a turn's similarity in meaning to the question adds to its search score."""
        place = self.places.get(outline.id, LARGEST_ROW_ID)
        # A turn that was forgotten meanwhile has lost its place to another one.
        if place >= len(self.turns) or self.turns[place] != outline.id:
            return 0.0
        length = 1 - math.exp(-(outline.person + outline.reply) / STANDS_ALONE)
        factor = (WEIGHT + WEIGHT_OF_LENGTH * length) * (NAMED_SPEAKER if named else 1.0)
        return factor * max(0.0, float(self.z[place]))


NOTHING_NEAR = Near((), (), {})


class Index:
    """The vectors in memory: row 2n is the person's side of a turn, row 2n + 1 the reply. Used by one thread."""

    def __init__(self, room: int = 0) -> None:
        """`room` is the number of turns that are known to come."""
        self._room = max(room, _LEAST_ROOM)
        self.places: dict[int, int] = {}
        self._turns: Any = None
        self._codes: Any = None
        self._scales: Any = None

    def put(self, turns: Sequence[int], sides: Sequence[bytes]) -> None:
        """Add turns with two sides each, or replace them. Raises ValueError unless all have the same dimensions."""
        np = _numpy()
        size = max(map(len, sides))
        if size == 0:
            # Nothing was said in these turns; an index without dimensions cannot hold them.
            return
        # A scale of 0 marks a side without words.
        rows = np.frombuffer(b"".join(side or bytes(size) for side in sides), dtype=np.uint8)
        rows = rows.reshape(len(turns) * _SIDES, size)
        if self._codes is None:
            self._turns = np.zeros(0, dtype=np.int64)
            self._codes = np.zeros((0, size - _SCALE_BYTES), dtype=np.int8)
            self._scales = np.zeros(0, dtype=np.float32)
        if size - _SCALE_BYTES != self._codes.shape[1]:
            raise ValueError(f"A vector has {size - _SCALE_BYTES} dimensions instead of {self._codes.shape[1]}.")
        self.drop(turns)
        first, end = len(self.places), len(self.places) + len(turns)
        self._reserve(end)
        self._turns[first:end] = turns
        self._codes[first * _SIDES : end * _SIDES] = rows[:, _SCALE_BYTES:].view(np.int8)
        self._scales[first * _SIDES : end * _SIDES] = rows[:, :_SCALE_BYTES].copy().view(np.float32)[:, 0]
        self.places.update(zip(turns, range(first, end), strict=True))

    def _reserve(self, turns: int) -> None:
        if turns > len(self._turns):
            more = max(turns * 9 // 8, self._room) - len(self._turns)
            for name, rows in (("_turns", 1), ("_codes", _SIDES), ("_scales", _SIDES)):
                old = getattr(self, name)
                room = _numpy().zeros((more * rows, *old.shape[1:]), dtype=old.dtype)
                setattr(self, name, _numpy().concatenate([old, room]))

    def drop(self, turns: Iterable[int]) -> None:
        """Remove turns; the last one takes the place of each."""
        for turn in turns:
            place = self.places.pop(turn, None)
            if place is None:
                continue
            last = len(self.places)
            for each, rows in ((self._turns, 1), (self._codes, _SIDES), (self._scales, _SIDES)):
                each[place * rows : (place + 1) * rows] = each[last * rows : (last + 1) * rows]
                each[last * rows : (last + 1) * rows] = 0
            if place != last:
                self.places[int(self._turns[place])] = place

    def near(self, vector: Sequence[float]) -> Near:
        """Return the similarity of all turns to a question's vector: 16 ms for 100,000 turns of 384 dimensions."""
        np, number = _numpy(), len(self.places)
        if number < LEAST_TURNS:
            return NOTHING_NEAR
        question = np.asarray(vector, dtype=np.float32)
        if len(question) != self._codes.shape[1]:
            raise ValueError(f"A question has {len(question)} dimensions instead of {self._codes.shape[1]}.")
        rows = number * _SIDES
        cosines = np.empty(rows, dtype=np.float32)
        for start in range(0, rows, _ROWS):
            codes = self._codes[start : min(start + _ROWS, rows)].astype(np.float32)
            # `@` would start a thread on each core, and these wait for one another: seconds on a busy machine.
            cosines[start : start + _ROWS] = np.vecdot(codes, question)
        cosines *= self._scales[:rows]
        cosines[self._scales[:rows] == 0] = -np.inf
        best = np.maximum(cosines[::_SIDES], cosines[1::_SIDES])
        known = best[np.isfinite(best)]
        deviation = float(known.std()) if len(known) >= LEAST_TURNS else 0.0
        if not deviation > 0:
            return NOTHING_NEAR
        z = np.where(np.isfinite(best), (best - known.mean()) / deviation, 0)
        return Near(self._turns[:number].copy(), z, self.places)


def _numpy() -> Any:
    # It belongs to the extra `meaning`.
    return importlib.import_module("numpy")


class VectorsDB(Tables):
    """Read and write vectors.db, and keep its index in memory, which only the reader's thread uses."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._index = Index()

    @property
    def count(self) -> int:
        """Return the number of turns with vectors in memory."""
        return len(self._index.places)

    async def load(self, model: str) -> dict[int, float]:
        """Read all vectors into memory; return their turns with their times. Delete those of another model."""
        if await self._db.fetch_value("SELECT id FROM model") != model:
            await self.delete()
            await self._db.execute("DELETE FROM model")
            await self._db.execute("INSERT INTO model VALUES (?)", (model,))

        def read(connection: sqlite3.Connection) -> dict[int, float]:
            self._index = Index(connection.execute("SELECT count(*) FROM vectors").fetchone()[0])
            times: dict[int, float] = {}
            rows = connection.execute("SELECT turn, at, person, reply FROM vectors")
            while chunk := rows.fetchmany(_CHUNK):
                self._index.put([row[0] for row in chunk], [side for row in chunk for side in row[2:]])
                times.update((row[0], row[1]) for row in chunk)
            return times

        return await self._db.read(read)

    async def turns(self) -> set[int]:
        """Return the ids of the turns with vectors."""
        return set(await self._db.fetch_column("SELECT turn FROM vectors"))

    async def add(self, turn: int, at: float, sides: Sequence[bytes]) -> None:
        """Store the vectors of a turn. Raises ValueError as `Index.put`."""
        await self._db.read(lambda _: self._index.put([turn], sides))
        await self._db.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", (turn, at, *sides))

    async def delete(self, turns: Collection[int] | None = None) -> None:
        """Remove the vectors of these turns, or all, from memory and disk."""

        def remove(tx: sqlite3.Connection) -> None:
            if turns is None:
                tx.execute("DELETE FROM vectors")
            else:
                tx.executemany("DELETE FROM vectors WHERE turn = ?", ((turn,) for turn in turns))

        await self._db.transact(remove)
        # Deleted rows are overwritten in the file (secure_delete), and remain in the journal until this.
        await self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await self._db.read(lambda _: self._index.drop(list(self._index.places) if turns is None else turns))

    async def near(self, vector: Sequence[float]) -> Near:
        """Return the similarity of all turns to a question's vector."""
        return await self._db.read(lambda _: self._index.near(vector))


@asynccontextmanager
async def open_vectors(path: Path) -> AsyncIterator[VectorsDB]:
    """Open or create vectors.db; replace a damaged file by a new one, since its vectors can be computed again."""
    opened = partial(open_database, path, SCHEMA)
    try:
        async with opened() as database:
            await database.fetch_value("SELECT count(*) FROM model")
    except DatabaseUnusableError:
        sqlite.delete(path)
    async with opened() as database:
        await database.execute("PRAGMA secure_delete=ON")
        yield VectorsDB(database)
