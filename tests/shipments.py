"""Replica batches made by hand, and replica stores of both kinds."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bridge.db.open import open_database
from bridge.replicas.keys import Keyring, fixed_keys
from bridge.replicas.sealed_store import SealedStore
from bridge.replicas.store import Position, StoredRow
from bridge.replicas.tables import DatabaseShelf, FolderShelf
from sprite.protocol.replication import Shipped, ShippedChunk, ShippedRow

TURNS = "log/observations.jsonl"
LOG = "log-1"


def shipped(*rows: tuple[str, int | str, dict[str, Any] | None, int], log: str = LOG, **more: Any) -> Shipped:
    """Return a message with rows `(table, id, row, position)`; `through` defaults to the last row's position."""
    made = [ShippedRow(*row) for row in rows]
    more.setdefault("through", made[-1].position if made else 0)
    return Shipped(log=log, rows=made, **more)


def turn(number: int, words: str, position: int) -> tuple[str, int | str, dict[str, Any] | None, int]:
    return TURNS, number, {"id": number, "user_text": words}, position


def chunk(content: bytes) -> ShippedChunk:
    return ShippedChunk(sha(content), base64.b64encode(content).decode())


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def new_keys(count: int = 1) -> tuple[bytes, ...]:
    return tuple(secrets.token_bytes(32) for _ in range(count))


@asynccontextmanager
async def store_at(place: Path | str, keys: Keyring | None = None, quota: int = 2**30) -> AsyncIterator[SealedStore]:
    """Open a store in files below a folder, or in the Postgres at an address."""
    keyring = keys or fixed_keys(new_keys())
    if isinstance(place, str):
        async with open_database(place) as database:
            yield SealedStore(DatabaseShelf(database), keyring, quota)
    else:
        async with FolderShelf(place / "store") as shelf:
            yield SealedStore(shelf, keyring, quota)


async def append(store: SealedStore, sprite: str, message: Shipped, after: int | None = None) -> Position:
    """Store a batch, and wipe forgotten data from the disk."""
    position, wipe_is_due = await store.take(sprite, message, after)
    while wipe_is_due:
        wipe_is_due = await store.finish_wipe(sprite)
    return position


async def nothing_kept(_sprite: str) -> None:
    """Answer a replicator that there is no replica, or that there are no notices to forget."""


async def all_rows(store: SealedStore, sprite: str, as_of: float | None = None) -> list[StoredRow]:
    return [row async for row in store.rows(sprite, as_of)]


async def words(store: SealedStore, sprite: str, as_of: float | None = None) -> list[str]:
    """Return the text of the turns."""
    return [row.row["user_text"] for row in await all_rows(store, sprite, as_of) if row.table == TURNS]


def bytes_in(folder: Path) -> bytes:
    """Return the bytes of all files below a folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
