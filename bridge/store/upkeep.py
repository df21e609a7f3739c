"""What an operator does with a store: seals it anew with another key, and looks whether all of it is there."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from bridge.store.sealed_store import SealedStore
from bridge.store.sprite_log import SECRET_PLACE, SpriteLog, chunk_place, row_place
from bridge.store.store import DamagedError

if TYPE_CHECKING:
    from bridge.database import Transaction
    from bridge.store.keys import Keyring

#: So many pieces in one transaction: what else is to be stored waits no longer than this takes.
_PIECES_AT_ONCE = 50
_MOST_WORDS = 100

#: The tables that hold sealed pieces, what finds a piece, and the place that it is sealed for.
_TABLES: dict[str, tuple[tuple[str, ...], Callable[[Any], bytes]]] = {
    "stored_sprites": (("sprite",), lambda _: SECRET_PLACE),
    "stored_rows": (
        ("sprite", "generation", "part", "name", "position"),
        lambda row: row_place(row["generation"], row["part"], bytes(row["name"]), row["position"]),
    ),
    "stored_chunks": (("sprite", "name"), lambda row: chunk_place(bytes(row["name"]))),
}


async def sealed_anew(store: SealedStore, sprite: str) -> AsyncGenerator[int, None]:
    """Seals what other keys have sealed with the key in use; how many pieces were, after each step.

    Whatever ends it, each piece is sealed with one key or the other, and the next call goes on.
    """
    done = 0
    for table in _TABLES:
        while step := await store.shelf.write(sprite, lambda tx, table=table: _step(tx, sprite, store.keyring, table)):  # type: ignore[misc]
            done += step
            yield done
    if done:
        await store.shelf.wipe(sprite)


def _step(tx: Transaction, sprite: str, keyring: Keyring, table: str) -> int:
    """One transaction of it, which also sees what a bridge beside has just sealed with the key of before."""
    columns, place = _TABLES[table]
    key, log = keyring.current(), SpriteLog(tx, sprite, keyring)
    found = tx.execute(
        f"SELECT {', '.join(columns)}, key_id, sealed FROM {table} WHERE sprite = ? AND key_id <> ? LIMIT ?",  # noqa: S608
        (sprite, key.id, _PIECES_AT_ONCE),
    ).fetchall()
    where = " AND ".join(f"{column} = ?" for column in columns)
    for row in found:
        sealed = key.seal(sprite, place(row), log.unsealed(row, place(row), f"a piece in {table}"))
        tx.execute(
            f"UPDATE {table} SET key_id = ?, sealed = ? WHERE {where}",  # noqa: S608
            (key.id, sealed, *(row[column] for column in columns)),
        )
    return len(found)


async def pieces_of_other_keys(store: SealedStore, sprite: str) -> int:
    """How many pieces the key in use has not sealed."""
    key_id = store.keyring.current().id

    def count(tx: Transaction) -> int:
        sql = "SELECT count(*) AS pieces FROM {} WHERE sprite = ? AND key_id <> ?"
        return sum(tx.execute(sql.format(table), (sprite, key_id)).fetchone()["pieces"] for table in _TABLES)

    return await store.shelf.read(sprite, count)


@dataclass(slots=True)
class Findings:
    """What a check looked at, and what is wrong, in words (the first of it)."""

    rows: int = 0
    chunks: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, words: str) -> None:
        """Notes what is wrong."""
        if len(self.wrong) < _MOST_WORDS:
            self.wrong.append(words)


async def verified(store: SealedStore, sprite: str) -> Findings:
    """Unseals every version of every row, and every chunk; looks whether each is what its name says, and is there.

    WrongKeyError where a key is missing: then nothing can be said.
    """
    findings = Findings()
    for table, look in (("stored_rows", _look_at_row), ("stored_chunks", _look_at_chunk)):
        after: tuple[Any, ...] | None = None
        while True:
            work = partial(_looked, sprite, store.keyring, table, look, after, findings)
            after = await store.shelf.read(sprite, work)
            if after is None:
                break
    for name in await store.shelf.read(sprite, partial(_missing, sprite)):
        findings.add(f"The store of {sprite} lacks a chunk that a row names: {name}.")
    return findings


def _looked(
    sprite: str,
    keyring: Keyring,
    table: str,
    look: Callable[[SpriteLog, Any, Findings], None],
    after: tuple[Any, ...] | None,
    findings: Findings,
    tx: Transaction,
) -> tuple[Any, ...] | None:
    """Looks at the next pieces; where the ones behind them begin, or None."""
    columns, _ = _TABLES[table]
    key = ", ".join(columns)
    beyond = "" if after is None else f"AND ({key}) > ({', '.join('?' * len(columns))})"
    found = tx.execute(
        f"SELECT * FROM {table} WHERE sprite = ? {beyond} ORDER BY {key} LIMIT ?",  # noqa: S608
        (sprite, *(after or ()), _PIECES_AT_ONCE),
    ).fetchall()
    log = SpriteLog(tx, sprite, keyring)
    for row in found:
        try:
            look(log, row, findings)
        except DamagedError as error:
            findings.add(str(error))
    return tuple(found[-1][column] for column in columns) if found else None


def _look_at_row(log: SpriteLog, row: Any, findings: Findings) -> None:
    findings.rows += 1
    log.row(row)


def _look_at_chunk(log: SpriteLog, row: Any, findings: Findings) -> None:
    findings.chunks += 1
    name = bytes(row["name"])
    what = f"chunk {name.hex()[:16]}"
    content = log.unsealed(row, chunk_place(name), what)
    if log.chunk_name(hashlib.sha256(content).hexdigest()) != name:
        raise log.damaged(what)


def _missing(sprite: str, tx: Transaction) -> list[str]:
    found = tx.execute(
        "SELECT DISTINCT chunk FROM stored_references WHERE sprite = ? AND NOT EXISTS ("
        "SELECT 1 FROM stored_chunks AS c WHERE c.sprite = stored_references.sprite "
        "AND c.name = stored_references.chunk) LIMIT ?",
        (sprite, _MOST_WORDS),
    )
    return [bytes(row["chunk"]).hex()[:16] for row in found]
