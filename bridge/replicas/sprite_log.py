"""One sprite's replicated log in the tables of a store, inside one transaction: versions of rows, chunks, moments.

A version is valid from its position (`since`) until that of the next one (`replaced_by`). A *moment* is a position at
which the replica was complete, and its time. A census counts the rows and sums the keyed hashes of their places, so a
check notices a missing row. docs/replicas.md says what a reader of the tables learns without the key.
"""

import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bridge.db.database import Transaction
from bridge.replicas import store
from bridge.replicas.keys import BrokenSealError, Keyring
from sprite.protocol.archive import PARTS
from sprite.protocol.replication import Lacks
from sprite.protocol.shapes import LARGEST_ID

_SECRET_BYTES = 32
#: The ciphertext of the secret is bound to it, as those of rows and chunks are to theirs.
_SECRET_PLACE = b'["secret"]'
#: Disk overhead of a row or chunk beside its ciphertext: names and indexes.
PIECE_BYTES = 300
_PAGE_ROWS = 200
#: The census has this many buckets, by the first byte of a row's name; a check reads one at a time.
_BUCKETS = 16
_BUCKET_NAMES = 256 // _BUCKETS
_DIGEST_BYTES = 16
_DIGESTS = 256**_DIGEST_BYTES
#: Limits for one request to ship pieces again; later checks find the rest.
_MOST_LACKED, _MOST_GAPS = 4000, 1000
_FILES = "files"
#: Parts that are no tables.
_OTHER_PARTS = {_FILES, "folders", "memory", "memory/written.jsonl", "manifest"}
_UNNAMED = (
    "NOT EXISTS (SELECT 1 FROM stored_references AS r WHERE r.sprite = stored_chunks.sprite "
    "AND r.chunk = stored_chunks.name)"
)
ROWS, CHUNKS = "stored_rows", "stored_chunks"
#: The key columns of the tables of sealed pieces, after the sprite.
KEYS = {ROWS: ("generation", "part", "name", "position"), CHUNKS: ("name",)}
_SPOT = ", ".join(KEYS[ROWS])
#: Versions that a forget of the generation and position deletes.
_FORGOTTEN = "(generation < ? OR (position < ? AND (replaced_by IS NOT NULL OR is_gone = 1)))"


@dataclass(frozen=True, slots=True)
class View:
    """A state of a replica to read: a generation at a position."""

    generation: int
    through: int


#: Start of a page of rows: after this table, number and name.
Cursor = tuple[str, int, bytes]
START: Cursor = ("", -(2**63), b"")


@dataclass(slots=True)
class Page:
    """A page of rows, the tables and errors of damaged ones, and the start of the next page (None at the end)."""

    rows: list[store.StoredRow] = field(default_factory=list)
    damaged: list[tuple[str, store.DamagedError]] = field(default_factory=list)
    after: Cursor | None = None


class SpriteLog:
    """Read and write one sprite's replica tables; create one for each transaction."""

    def __init__(self, tx: Transaction, sprite: str, keyring: Keyring) -> None:
        self._tx = tx
        self._sprite = sprite
        self._keyring = keyring
        self._secret: bytes | None = None
        self._grown = 0
        #: Changes by generation, part and bucket: number of rows added or removed, and the sum of their hashes.
        self._counted: dict[tuple[int, str, int], tuple[int, int]] = {}

    # --- how far it is ---

    @property
    def generation(self) -> int:
        """Return the number of the newest generation: of the last full replication; 0 without a replica."""
        row = self._one("SELECT max(generation) AS newest FROM stored_positions WHERE sprite = ?")
        return int(row["newest"] or 0)

    def position(self) -> store.Position:
        """Return the position of the newest generation."""
        row = self._one("SELECT * FROM stored_positions WHERE sprite = ? ORDER BY generation DESC LIMIT 1")
        return _position(row)

    def newest(self) -> store.Position:
        """Return the position of the generation that is read: the one before, while a newer one is incomplete."""
        return _position(self._read())

    def begin(self) -> int:
        """Begin a new generation, for a replication from the beginning; earlier generations stay stored."""
        self._names()
        generation = self.generation + 1
        self._tx.execute(
            "INSERT INTO stored_positions(sprite, generation, log, through, at, whole_through, whole_at) "
            "VALUES (?, ?, NULL, 0, db_now(), 0, NULL)",
            (self._sprite, generation),
        )
        return generation

    def move(self, generation: int, log: str, through: int, *, is_whole: bool, has_changed: bool) -> None:
        """Record that the replica has the log up to `through`.

        `is_whole`: the sprite has nothing more to ship. `has_changed`: a row was added or removed since the last move.
        """
        self._tx.execute(
            "UPDATE stored_positions SET log = ?, through = ?, at = db_now(), "
            "changed_through = coalesce(?, changed_through) WHERE sprite = ? AND generation = ?",
            (log, through, through if has_changed else None, self._sprite, generation),
        )
        if not is_whole:
            return
        self._tx.execute(
            "UPDATE stored_positions SET whole_through = through, whole_at = db_now() "
            "WHERE sprite = ? AND generation = ?",
            (self._sprite, generation),
        )
        # Without changes the state of the last moment is still current, so an idle sprite costs no new row.
        self._tx.execute(
            "INSERT INTO stored_moments(sprite, generation, through, at) "
            "SELECT sprite, generation, through, db_now() FROM stored_positions AS p "
            "WHERE sprite = ? AND generation = ? AND NOT EXISTS (SELECT 1 FROM stored_moments AS m "
            "WHERE m.sprite = p.sprite AND m.generation = p.generation AND m.through >= p.changed_through)",
            (self._sprite, generation),
        )

    def view(self, as_of: float | None) -> View:
        """Return the newest state, or that of a time. Raise StoreError if there is none."""
        if as_of is None:
            found = self._read()
        else:
            found = self._one(
                "SELECT generation, through FROM stored_moments WHERE sprite = ? AND at <= ? "
                "ORDER BY generation DESC, through DESC LIMIT 1",
                as_of,
            )
        if found is None:
            then = "" if as_of is None else " of that time, or of before"
            raise store.StoreError(f"Nothing{then} is stored of {self._sprite}.")
        return View(found["generation"], found["through"])

    def _read(self) -> Any:
        """Return the positions of the newest complete generation, or of the newest one if none is complete."""
        return self._one(
            "SELECT * FROM stored_positions WHERE sprite = ? AND log IS NOT NULL "
            "ORDER BY CASE WHEN whole_at IS NULL THEN 1 ELSE 0 END, generation DESC LIMIT 1"
        )

    # --- writing ---

    def add_chunk(self, sha256: str, content: bytes) -> None:
        """Store a chunk, unless it is already stored."""
        name = self.chunk_name(sha256)
        found = self._one("SELECT is_damaged FROM stored_chunks WHERE sprite = ? AND name = ?", name)
        if found is not None and not found["is_damaged"]:
            return
        key = self._keyring.current()
        sealed = key.seal(self._sprite, chunk_place(name), content)
        self._tx.execute(
            "INSERT INTO stored_chunks(sprite, name, unused_since, key_id, sealed) VALUES (?, ?, db_now(), ?, ?) "
            "ON CONFLICT (sprite, name) DO UPDATE SET "
            "is_damaged = 0, key_id = excluded.key_id, sealed = excluded.sealed",
            (self._sprite, name, key.id, sealed),
        )
        if found is None:
            self._grown += len(sealed) + PIECE_BYTES

    def add_row(self, generation: int, row: store.Row) -> None:
        """Store a version of a row as the newest. Raise MissingChunkError if it names a chunk that is missing."""
        name = self.row_name(row.table, row.id)
        key = self._keyring.current()
        place = row_place(generation, row.table, name, row.position)
        sealed = key.seal(self._sprite, place, row.content)
        spot = (self._sprite, generation, row.table, name)
        replaced = self._tx.execute(
            "UPDATE stored_rows SET replaced_by = ? WHERE sprite = ? AND generation = ? AND part = ? AND name = ? "
            "AND replaced_by IS NULL AND position < ?",
            (row.position, *spot, row.position),
        )
        since = self._drop_spoiled(spot, row.position) if replaced.rowcount else row.position
        number = row.id if isinstance(row.id, int) else 0
        added = self._tx.execute(
            "INSERT INTO stored_rows(sprite, generation, part, name, position, since, replaced_by, number, is_gone, "
            "key_id, sealed) VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, ?) "
            "ON CONFLICT (sprite, generation, part, name, position) DO NOTHING",
            (*spot, row.position, since, number, int(row.is_gone), key.id, sealed),
        )
        if not added.rowcount:
            return
        self._grown += len(sealed) + PIECE_BYTES
        self._count(generation, row.table, name, row.position, 1)
        for sha256 in row.chunks:
            self._refer((generation, row.table, name, row.position), sha256)

    def _drop_spoiled(self, spot: tuple[str, int, str, bytes], position: int) -> int:
        """Delete forgotten content of a row, and a damaged version that the one at `position` replaces.

        Return the position from which the newest version is valid in their place.
        """
        spoiled = "generation = ? AND part = ? AND name = ? AND (is_doomed = 1 OR (is_damaged = 1 AND replaced_by = ?))"
        sql = f"SELECT min(since) AS since, max(is_doomed) AS is_doomed FROM stored_rows WHERE sprite = ? AND {spoiled}"  # noqa: S608 - our own words
        found = self._tx.execute(sql, (*spot, position)).fetchone()
        if found["since"] is None:
            return position
        self._delete_rows(spoiled, *spot[1:], position)
        if found["is_doomed"]:
            self._wipe()
        return int(found["since"])

    def _refer(self, place: tuple[int, str, bytes, int], sha256: str) -> None:
        chunk = self.chunk_name(sha256)
        found = self._tx.execute(
            "UPDATE stored_chunks SET unused_since = NULL WHERE sprite = ? AND name = ?", (self._sprite, chunk)
        )
        if not found.rowcount:
            raise store.MissingChunkError
        self._tx.execute(
            "INSERT INTO stored_references(sprite, chunk, generation, part, name, position) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (sprite, chunk, generation, part, name, position) DO NOTHING",
            (self._sprite, chunk, *place),
        )

    def rebase(self, generation: int, baseline: int, through: int) -> bool:
        """End all rows with a position before the baseline at `through`; return whether there were any."""
        gone = self._tx.execute(
            "UPDATE stored_rows SET replaced_by = ? WHERE sprite = ? AND generation = ? AND replaced_by IS NULL "
            "AND position < ?",
            (through, self._sprite, generation, baseline),
        )
        self._delete_rows("generation = ? AND replaced_by IS NOT NULL AND is_doomed = 1", generation)
        return gone.rowcount > 0

    def begin_forget(self, generation: int, through: int) -> None:
        """Make earlier states unreadable from now on, and mark the replica as incomplete.

        Older versions may contain forgotten data. The rest of a forget runs in steps that may be interrupted and
        repeated: `forget_some` until it finds no more, `doom`, and `forget`.
        """
        self._drop_generations(generation)
        self._tx.execute("DELETE FROM stored_moments WHERE sprite = ? AND through < ?", (self._sprite, through))
        self._tx.execute(
            "UPDATE stored_positions SET whole_through = 0, whole_at = NULL WHERE sprite = ?", (self._sprite,)
        )
        self._wipe()

    def forget_some(self, generation: int, through: int, most: int) -> bool:
        """Delete at most `most` expired versions of rows; return whether there may be more."""
        sql = f"SELECT {_SPOT}, length(sealed) AS size FROM stored_rows WHERE sprite = ? AND {_FORGOTTEN} LIMIT ?"  # noqa: S608
        found = self._tx.execute(sql, (self._sprite, generation, through, most)).fetchall()
        spots = [(self._sprite, *spot_of(row)) for row in found]
        for table in ("stored_references", "stored_rows"):
            where = "sprite = ? AND generation = ? AND part = ? AND name = ? AND position = ?"
            self._tx.executemany(f"DELETE FROM {table} WHERE {where}", spots)  # noqa: S608
        self._count_gone(found)
        return len(found) == most

    def doom(self, generation: int, through: int, table: str, ids: Iterable[int | str]) -> None:
        """Mark rows that a forget names and that may still have forgotten content. Their next version deletes them."""
        self._tx.executemany(
            "UPDATE stored_rows SET is_doomed = 1 WHERE sprite = ? AND generation = ? AND part = ? AND name = ? "
            "AND position < ?",
            [(self._sprite, generation, table, self.row_name(table, id_), through) for id_ in ids],
        )

    def forget(self, generation: int, through: int) -> None:
        """End a forget in the transaction of its message: delete the versions that its rows replaced."""
        self.begin_forget(generation, through)
        self._delete_rows(_FORGOTTEN, generation, through)
        self._delete_chunks(_UNNAMED)

    def _wipe(self) -> None:
        self._tx.execute("UPDATE stored_sprites SET wipe_due = wipe_due + 1 WHERE sprite = ?", (self._sprite,))

    def _drop_generations(self, before: int) -> None:
        for table in ("stored_moments", "stored_positions"):
            sql = f"DELETE FROM {table} WHERE sprite = ? AND generation < ?"  # noqa: S608 - our own words
            self._tx.execute(sql, (self._sprite, before))

    def _delete_rows(self, condition: str, *parameters: Any) -> None:
        """Delete versions of rows and their references."""
        rows = f"FROM stored_rows WHERE sprite = ? AND {condition}"
        sql = f"DELETE FROM stored_references WHERE sprite = ? AND ({_SPOT}) IN (SELECT {_SPOT} {rows})"  # noqa: S608
        self._tx.execute(sql, (self._sprite, self._sprite, *parameters))
        sql = f"DELETE {rows} RETURNING {_SPOT}, length(sealed) AS size"
        self._count_gone(self._tx.execute(sql, (self._sprite, *parameters)).fetchall())

    def _count_gone(self, rows: list[Any]) -> None:
        for row in rows:
            self._count(*spot_of(row), -1)
        self._grown -= sum(row["size"] + PIECE_BYTES for row in rows)

    def _delete_chunks(self, condition: str, *parameters: Any) -> None:
        sql = f"DELETE FROM stored_chunks WHERE sprite = ? AND {condition} RETURNING length(sealed) AS size"  # noqa: S608
        gone = self._tx.execute(sql, (self._sprite, *parameters)).fetchall()
        self._grown -= sum(row["size"] + PIECE_BYTES for row in gone)

    # --- the census ---

    def _count(self, generation: int, part: str, name: bytes, position: int, sign: int) -> None:
        """Count in the census that a version of a row was added (1) or removed (-1)."""
        key = generation, part, name[0] // _BUCKET_NAMES
        rows, digest = self._counted.get(key, (0, 0))
        self._counted[key] = rows + sign, digest + sign * self._hash(generation, part, name, position)

    def _hash(self, generation: int, part: str, name: bytes, position: int) -> int:
        return int.from_bytes(self._name(b"census", row_place(generation, part, name, position))[:_DIGEST_BYTES])

    def finish(self) -> None:
        """Write the changed counts and sizes. Every transaction that writes ends with this."""
        for (generation, part, bucket), (came, hashes) in self._counted.items():
            spot = self._sprite, generation, part, bucket
            where = "sprite = ? AND generation = ? AND part = ? AND bucket = ?"
            before = self._tx.execute(f"SELECT rows, digest FROM stored_census WHERE {where}", spot).fetchone()  # noqa: S608
            rows, digest = (0, b"") if before is None else (before["rows"], bytes(before["digest"]))
            rows, total = rows + came, (int.from_bytes(digest) + hashes) % _DIGESTS
            self._tx.execute(f"DELETE FROM stored_census WHERE {where}", spot)  # noqa: S608
            if rows or total:
                self._tx.execute(
                    "INSERT INTO stored_census(sprite, generation, part, bucket, rows, digest) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (*spot, rows, total.to_bytes(_DIGEST_BYTES)),
                )
        if self._counted or self._grown:
            self._tx.execute(
                "UPDATE stored_sprites SET rows = rows + ?, size = size + ? WHERE sprite = ?",
                (sum(rows for rows, _ in self._counted.values()), self._grown, self._sprite),
            )
        self._counted, self._grown = {}, 0

    def recount(self) -> None:
        """Count the existing rows again, and let the next check begin at once. Rows still missing now are given up."""
        self._tx.execute("DELETE FROM stored_census WHERE sprite = ?", (self._sprite,))
        self._tx.execute("UPDATE stored_sprites SET rows = 0, check_began_at = NULL WHERE sprite = ?", (self._sprite,))
        self._counted = {}
        sql = f"SELECT {_SPOT} FROM stored_rows WHERE sprite = ?"  # noqa: S608
        for row in self._tx.execute(sql, (self._sprite,)).fetchall():
            self._count(*spot_of(row), 1)

    def census(self) -> list[tuple[int, str, int]]:
        """Return the arguments of `missing`: every generation, part and bucket that was counted or has rows."""
        found = self._tx.execute(
            "SELECT generation, part FROM stored_census WHERE sprite = ? UNION "
            "SELECT generation, part FROM stored_rows WHERE sprite = ? ORDER BY generation, part",
            (self._sprite, self._sprite),
        )
        return [(row["generation"], row["part"], bucket) for row in found for bucket in range(_BUCKETS)]

    def missing(self, generation: int, part: str, bucket: int) -> int | None:
        """Return how many more rows the census has than exist, or None if both match."""
        first, last = bytes([bucket * _BUCKET_NAMES]), bytes([(bucket + 1) * _BUCKET_NAMES - 1]) + b"\xff" * 32
        spot = self._sprite, generation, part
        counted = self._tx.execute(
            "SELECT rows, digest FROM stored_census WHERE sprite = ? AND generation = ? AND part = ? AND bucket = ?",
            (*spot, bucket),
        ).fetchone()
        found = self._tx.execute(
            "SELECT name, position FROM stored_rows WHERE sprite = ? AND generation = ? AND part = ? AND name >= ? "
            "AND name <= ?",
            (*spot, first, last),
        ).fetchall()
        digest = sum(self._hash(generation, part, bytes(row["name"]), row["position"]) for row in found) % _DIGESTS
        rows = 0 if counted is None else counted["rows"]
        if (rows, digest) == (len(found), 0 if counted is None else int.from_bytes(bytes(counted["digest"]))):
            return None
        return int(rows - len(found))

    def is_counted_whole(self) -> bool:
        """Return whether the census counts as many rows as the sprite's total, so that it is complete."""
        sql = "SELECT coalesce(sum(rows), 0) AS rows FROM stored_census WHERE sprite = ?"
        counted, row = self._one(sql)["rows"], self._one("SELECT rows FROM stored_sprites WHERE sprite = ?")
        return bool(counted == (0 if row is None else row["rows"]))

    # --- checks of all pieces ---

    def pieces(self, table: str, after: tuple[Any, ...], most: int) -> list[Any]:
        """Return the next sealed pieces of a table after a key; of an empty key, the first ones."""
        key = ", ".join(KEYS[table])
        beyond = f"AND ({key}) > ({', '.join('?' * len(after))})" if after else ""
        sql = f"SELECT * FROM {table} WHERE sprite = ? {beyond} ORDER BY {key} LIMIT ?"  # noqa: S608
        return self._tx.execute(sql, (self._sprite, *after, most)).fetchall()

    def ask_again(self, pause: float) -> bool:
        """Record that the sprite is asked for damaged pieces.

        Return False if none are damaged, or it was asked in the last `pause` seconds.
        """
        return self.health().damaged > 0 and self.claim("asked_again_at", pause)

    def claim(self, column: str, pause: float) -> bool:
        """Set a time to now if it is at least `pause` seconds old; return whether it was."""
        sql = (
            f"UPDATE stored_sprites SET {column} = db_now() WHERE sprite = ? "  # noqa: S608 - our own words
            f"AND ({column} IS NULL OR {column} < db_now() - ?)"
        )
        return self._tx.execute(sql, (self._sprite, pause)).rowcount == 1

    def end_check(self, damaged: Mapping[str, Iterable[tuple[Any, ...]]], wrong: int) -> None:
        """Store the result of a check: keys of damaged pieces by table, and the number of damaged or missing pieces."""
        for table, keys in damaged.items():
            self._tx.execute(f"UPDATE {table} SET is_damaged = 0 WHERE sprite = ? AND is_damaged = 1", (self._sprite,))  # noqa: S608
            where = " AND ".join(f"{column} = ?" for column in ("sprite", *KEYS[table]))
            spots = [(self._sprite, *key) for key in keys]
            self._tx.executemany(f"UPDATE {table} SET is_damaged = 1 WHERE {where}", spots)  # noqa: S608
        # A row is as damaged as its chunks.
        self._tx.execute(
            "UPDATE stored_rows SET is_damaged = 1 WHERE sprite = ? AND (generation, part, name, position) IN "
            "(SELECT r.generation, r.part, r.name, r.position FROM stored_references AS r "
            "LEFT JOIN stored_chunks AS c ON c.sprite = r.sprite AND c.name = r.chunk "
            "WHERE r.sprite = ? AND (c.name IS NULL OR c.is_damaged = 1))",
            (self._sprite, self._sprite),
        )
        self._tx.execute(
            "UPDATE stored_sprites SET checked_at = db_now(), damaged = ? WHERE sprite = ?", (wrong, self._sprite)
        )

    def health(self) -> store.Health:
        """Return the result of the last check."""
        row = self._one("SELECT checked_at, damaged FROM stored_sprites WHERE sprite = ?")
        return store.Health() if row is None else store.Health(row["checked_at"], row["damaged"])

    def wanted(self) -> Lacks:
        """Return the current rows and the chunks that the sprite has to ship again."""
        generation, chunks = self.generation, dict[str, None]()
        damaged = dict[str, list[tuple[int, int]]]()
        found = self._tx.execute(
            "SELECT * FROM stored_rows WHERE sprite = ? AND generation = ? AND is_damaged = 1 AND replaced_by IS NULL "
            "ORDER BY part, number, name LIMIT ?",
            (self._sprite, generation, _MOST_LACKED),
        )
        for row in found.fetchall():
            try:
                chunks.update(dict.fromkeys(filter(self._is_lost, store.named_chunks(self.row(row).row))))
            except store.DamagedError:
                pass
            else:
                if row["part"] == _FILES:
                    # Its row follows its chunks.
                    continue
            damaged.setdefault(row["part"], []).append((row["number"], row["number"]))
        gaps = {part: self._gaps(generation, part) for part in self._incomplete(generation)}
        return Lacks(damaged | gaps, list(chunks)[:_MOST_LACKED])

    def _incomplete(self, generation: int) -> set[str]:
        """Return the parts that lack rows, according to the census."""
        if not self.is_counted_whole():
            return {part.path for part in PARTS} | _OTHER_PARTS
        return {part for at, part, bucket in self.census() if at == generation and self.missing(at, part, bucket)}

    def _gaps(self, generation: int, part: str) -> list[tuple[int, int]]:
        """Return the ranges of numbers without an intact current row; the last one takes the rest if there are many."""
        numbers = self._tx.execute(
            "SELECT DISTINCT number FROM stored_rows WHERE sprite = ? AND generation = ? AND part = ? "
            "AND replaced_by IS NULL AND is_damaged = 0 AND number > 0 ORDER BY number",
            (self._sprite, generation, part),
        )
        gaps, after = list[tuple[int, int]](), 0
        for row in numbers.fetchall():
            if row["number"] > after + 1:
                gaps.append((after + 1, row["number"] - 1))
            after = row["number"]
        last = gaps[_MOST_GAPS][0] if len(gaps) > _MOST_GAPS else after + 1
        return [*gaps[:_MOST_GAPS], (last, LARGEST_ID)]

    def _is_lost(self, sha256: str) -> bool:
        found = self._one("SELECT is_damaged FROM stored_chunks WHERE sprite = ? AND name = ?", self.chunk_name(sha256))
        return found is None or bool(found["is_damaged"])

    # --- what has had its time ---

    def drop_expired(self, versions_seconds: float, chunks_seconds: float) -> None:
        """Delete versions that no moment of the last `versions_seconds` shows, chunks unused for `chunks_seconds`."""
        expired = self._one(
            "SELECT generation, through FROM stored_moments WHERE sprite = ? AND at <= db_now() - ? "
            "ORDER BY generation DESC, through DESC LIMIT 1",
            versions_seconds,
        )
        if expired is not None:
            # An old generation expires once the next one has been complete for that long.
            generation, through = expired["generation"], expired["through"]
            self._delete_rows("generation < ?", generation)
            self._drop_generations(generation)
            old = "(replaced_by <= ? OR (is_gone = 1 AND replaced_by IS NULL AND position <= ?))"
            self._delete_rows(f"generation = ? AND {old}", generation, through, through)
            self._tx.execute(
                "DELETE FROM stored_moments WHERE sprite = ? AND generation = ? AND through < ?",
                (self._sprite, generation, through),
            )
        unnamed = f"WHERE sprite = ? AND unused_since IS NULL AND {_UNNAMED}"
        self._tx.execute(f"UPDATE stored_chunks SET unused_since = db_now() {unnamed}", (self._sprite,))  # noqa: S608
        self._delete_chunks(f"unused_since <= db_now() - ? AND {_UNNAMED}", chunks_seconds)

    def delete(self) -> None:
        """Delete everything that is stored of the sprite."""
        for table in ("references", "rows", "chunks", "moments", "positions", "census", "sprites"):
            self._tx.execute(f"DELETE FROM stored_{table} WHERE sprite = ?", (self._sprite,))  # noqa: S608
        self._counted, self._grown = {}, 0

    # --- reading ---

    def page(self, view: View, after: Cursor) -> Page:
        """Return the next rows of a state. Raise WrongKeyError."""
        part, number, name = after
        found = self._tx.execute(
            "SELECT generation, part, name, position, number, is_gone, key_id, sealed FROM stored_rows "
            "WHERE sprite = ? AND generation = ? AND since <= ? AND (replaced_by IS NULL OR replaced_by > ?) "
            "AND (part, number, name) > (?, ?, ?) ORDER BY part, number, name LIMIT ?",
            (self._sprite, view.generation, view.through, view.through, part, number, name, _PAGE_ROWS),
        ).fetchall()
        page = Page()
        for each in found:
            try:
                # Decrypt deleted rows, too, to verify the unencrypted mark of their deletion.
                row = self.row(each)
            except store.DamagedError as error:
                page.damaged.append((each["part"], error))
                continue
            if not each["is_gone"]:
                page.rows.append(row)
        if len(found) == _PAGE_ROWS:
            end = found[-1]
            page.after = end["part"], end["number"], bytes(end["name"])
        return page

    def count(self, view: View, table: str) -> int:
        """Return the number of rows of a table in a state."""
        found = self._one(
            "SELECT count(*) AS rows FROM stored_rows WHERE sprite = ? AND generation = ? AND part = ? "
            "AND is_gone = 0 AND since <= ? AND (replaced_by IS NULL OR replaced_by > ?)",
            view.generation,
            table,
            view.through,
            view.through,
        )
        return int(found["rows"])

    def row(self, found: Any) -> store.StoredRow:
        """Decrypt a row of `stored_rows`; a deleted one has no columns. Raise DamagedError."""
        part, name, position = found["part"], bytes(found["name"]), found["position"]
        # Rows of a table have a number; files do not.
        what = f"row {found['number'] or position} of {part}"
        content = self.unsealed(found, row_place(found["generation"], part, name, position), what)
        id_, columns = msgspec.json.decode(content)
        if self.row_name(part, id_) != name or (columns is None) != bool(found["is_gone"]):
            raise self.damaged(what)
        return store.StoredRow(part, id_, columns or {})

    def chunk(self, sha256: str) -> bytes:
        """Return the chunk with this SHA-256. Raise DamagedError."""
        name = self.chunk_name(sha256)
        found = self._one("SELECT name, key_id, sealed FROM stored_chunks WHERE sprite = ? AND name = ?", name)
        if found is None:
            raise self.lacks(sha256)
        return self.unsealed(found, chunk_place(name), f"chunk {name.hex()[:16]}")

    def has_chunk(self, sha256: str) -> bool:
        """Return whether a chunk is stored, damaged or not."""
        name = self.chunk_name(sha256)
        return self._one("SELECT 1 AS found FROM stored_chunks WHERE sprite = ? AND name = ?", name) is not None

    def lacks(self, sha256: str) -> store.DamagedError:
        """Return the error that reports a missing chunk."""
        return store.DamagedError(f"The store of {self._sprite} lacks a chunk that a row names (sha256 {sha256}).")

    def unsealed(self, found: Any, place: bytes, what: str) -> bytes:
        """Decrypt a row of any of the tables. Raise WrongKeyError or DamagedError."""
        try:
            return self._keyring.of(found["key_id"]).unseal(self._sprite, place, bytes(found["sealed"]))
        except BrokenSealError as error:
            raise self.damaged(what) from error

    def damaged(self, what: str) -> store.DamagedError:
        """Return the error that reports a damaged piece; `what` names the piece."""
        return store.DamagedError(f"The store of {self._sprite} is damaged: {what} is not what was stored.", what)

    def kept(self) -> store.Kept:
        """Return how much of the sprite is stored."""
        read = self._read()
        counted = self._tx.execute(
            "SELECT count(*) FILTER (WHERE replaced_by IS NULL AND is_gone = 0 AND generation = ?) AS now, "
            "count(*) AS versions FROM stored_rows WHERE sprite = ?",
            (0 if read is None else read["generation"], self._sprite),
        ).fetchone()
        chunks = self._one("SELECT count(*) AS chunks FROM stored_chunks WHERE sprite = ?")["chunks"]
        now, versions = counted["now"], counted["versions"]
        return store.Kept(self._sprite, _position(read), now, versions - now, chunks, self.size())

    def size(self) -> int:
        """Return the disk use of rows and chunks in bytes, including those of this transaction."""
        row = self._one("SELECT size FROM stored_sprites WHERE sprite = ?")
        return self._grown + (0 if row is None else int(row["size"]))

    def wipes_due(self) -> int:
        """Return the number of forgets whose deleted data may still be on the disk."""
        row = self._one("SELECT wipe_due FROM stored_sprites WHERE sprite = ?")
        return 0 if row is None else int(row["wipe_due"])

    def wiped(self, due: int) -> bool:
        """Mark the wipe as done if no forget came since `due` was read; return whether no wipe is due."""
        sql = "UPDATE stored_sprites SET wipe_due = 0 WHERE sprite = ? AND wipe_due = ?"
        return self._tx.execute(sql, (self._sprite, due)).rowcount == 1 or not self.wipes_due()

    # --- names ---

    def row_name(self, table: str, id_: int | str) -> bytes:
        """Return the name of a row: a hash, because its id can be a path, which is content."""
        return self._name(b"row", msgspec.json.encode([table, id_]))

    def identity(self) -> str:
        """Return an identifier of this sprite's store, constant while it holds any data."""
        return self._name(b"store", b"")[:16].hex()

    def chunk_name(self, sha256: str) -> bytes:
        """Return the name of a chunk: a keyed hash, because anyone with a file could search for its SHA-256."""
        return self._name(b"chunk", sha256.encode())

    def _name(self, kind: bytes, what: bytes) -> bytes:
        return hmac.digest(self._names(), kind + b"\0" + what, "sha256")

    def _names(self) -> bytes:
        """Return the sprite's secret for names, created if missing."""
        if self._secret is None:
            found = self._one("SELECT key_id, sealed FROM stored_sprites WHERE sprite = ?")
            if found is not None:
                self._secret = self.unsealed(found, _SECRET_PLACE, "its secret")
                return self._secret
            self._secret, key = secrets.token_bytes(_SECRET_BYTES), self._keyring.current()
            self._tx.execute(
                "INSERT INTO stored_sprites(sprite, size, wipe_due, key_id, sealed) VALUES (?, 0, 0, ?, ?)",
                (self._sprite, key.id, key.seal(self._sprite, _SECRET_PLACE, self._secret)),
            )
        return self._secret

    def _one(self, sql: str, *parameters: Any) -> Any:
        return self._tx.execute(sql, (self._sprite, *parameters)).fetchone()


def spot_of(row: Any) -> tuple[int, str, bytes, int]:
    """Return the key of a version of a row: generation, part, name and position."""
    return row["generation"], row["part"], bytes(row["name"]), row["position"]


def row_place(generation: int, part: str, name: bytes, position: int) -> bytes:
    """Return the bytes that identify a version of a row; its encryption is bound to them."""
    return msgspec.json.encode(["row", generation, part, name.hex(), position])


def chunk_place(name: bytes) -> bytes:
    """Return the bytes that identify a chunk; its encryption is bound to them."""
    return msgspec.json.encode(["chunk", name.hex()])


def _position(row: Any) -> store.Position:
    if row is None:
        return store.Position()
    return store.Position(row["log"], row["through"], row["at"], row["whole_through"], row["whole_at"])
