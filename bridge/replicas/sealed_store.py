"""The encrypted store of replicas, and when its versions expire. `sprite_log.py` has the SQL, a shelf the tables."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeVar

from bridge.config import Settings
from bridge.db.database import Database, Transaction
from bridge.replicas import store
from bridge.replicas.keys import Keyring, fixed_keys, key_file, key_of_secret
from bridge.replicas.sprite_log import START, Cursor, SpriteLog
from bridge.replicas.tables import DatabaseShelf, FolderShelf, Shelf
from sprite.protocol.replication import Shipped

_T = TypeVar("_T")
_DAY = 86400.0
#: A problem with an agent is noticed within a month; older versions would cost disk for ever.
VERSIONS_SECONDS = 30 * _DAY
#: A restored file or a card that is drawn again finds its chunks still stored.
UNUSED_CHUNK_SECONDS = 7 * _DAY
#: Rows forgotten in one transaction: Postgres ends a statement that takes ten seconds.
_FORGOTTEN_AT_ONCE = 500
#: Retention for a sprite that has filled its quota; its newest chunks wait only moments for their rows.
_SHORT_OF_ROOM_SECONDS = 3600.0
#: Limit for the stored data of each sprite, in bytes.
_QUOTA = 4096 * 2**20


class SealedStore:
    """Store encrypted replicas; `quota` is a sprite's limit in bytes. Methods may raise StoreError or DatabaseError."""

    def __init__(self, shelf: Shelf, keyring: Keyring, quota: int = _QUOTA) -> None:
        self.shelf = shelf
        self.keyring = keyring
        self._quota = quota

    async def position(self, sprite: str) -> store.Position:
        """Return the position of the sprite's replica; an empty one for an unknown sprite."""
        return await self.read(sprite, SpriteLog.position)

    async def take(self, sprite: str, shipped: Shipped, after: int | None = None) -> tuple[store.Position, bool]:
        """Store a batch durably and atomically, skipping rows that are already stored.

        `after` is the position that it continues from, if known; StoreError if the store is not that far. Also return
        whether forgotten data may still be on the disk: then call `finish_wipe`.
        """
        # Checking many small rows takes a while; a thread keeps the event loop free.
        shipment = await asyncio.to_thread(store.checked, shipped)
        if shipment.forgotten:
            await self._forget_in_steps(sprite, shipment, after)
        return await self.write(sprite, lambda log: self._store(log, shipment, after))

    async def rows(
        self,
        sprite: str,
        as_of: float | None = None,
        on_damaged: Callable[[str, store.DamagedError], None] | None = None,
    ) -> AsyncIterator[store.StoredRow]:
        """Yield every row, by table, then by id (numbers in order, texts unordered).

        With `as_of`, read the last complete state up to that time; raise StoreError if there is none. Without it, read
        the newest state, even if the sprite had more to ship. After a forget, earlier states cannot be read. Writes
        during the iteration are not seen. A damaged row raises DamagedError; if `on_damaged` is given, it gets the
        table and the error, and the row is left out.
        """
        view = await self.read(sprite, lambda log: log.view(as_of))
        after: Cursor | None = START
        while after is not None:
            page = await self.read(sprite, lambda log, after=after: log.page(view, after))  # type: ignore[misc]
            for table, error in page.damaged:
                if on_damaged is None:
                    raise error
                on_damaged(table, error)
            for row in page.rows:
                yield row
            after = page.after

    async def count(self, sprite: str, table: str, as_of: float | None = None) -> int:
        """Return the number of rows of a table, now or at a moment. Raise StoreError as `rows` does."""
        return await self.read(sprite, lambda log: log.count(log.view(as_of), table))

    async def chunk(self, sprite: str, sha256: str) -> bytes:
        """Return the bytes with this SHA-256 (hex). Raise DamagedError if they are missing or corrupt."""
        return await self.read(sprite, lambda log: log.chunk(sha256))

    async def sprites(self) -> list[str]:
        """Return the names of all sprites with a replica."""
        return await self.shelf.sprites()

    async def kept(self, sprite: str) -> store.Kept:
        """Return the size of a sprite's replica."""
        return await self.read(sprite, SpriteLog.kept)

    async def accept(self, sprite: str) -> None:
        """Replicate the sprite from the beginning, as after a restore; the earlier replica stays as an older state."""
        await self.write(sprite, lambda log: log.begin() if log.generation else None)

    async def delete(self, sprite: str) -> None:
        """Overwrite and delete everything that is stored of a sprite."""
        await self.write(sprite, SpriteLog.delete)
        await self.shelf.remove(sprite)

    async def tidy(self, sprite: str) -> None:
        """Delete expired data: older versions, and unreferenced chunks."""
        await self.write(sprite, lambda log: log.drop_expired(VERSIONS_SECONDS, UNUSED_CHUNK_SECONDS))

    async def _forget_in_steps(self, sprite: str, shipment: store.Shipment, after: int | None) -> None:
        """Do the large part of a forget in short transactions; the message's own transaction completes it.

        After an interruption the sprite, which got no acknowledgement, sends it again.
        """
        through = shipment.forgotten
        # Reject an invalid message before any change.
        named = await self.read(sprite, partial(_named, shipment))
        generation = await self.write(sprite, lambda log: _begin_forget(log, shipment, after))
        if not generation:
            return
        while await self.write(sprite, lambda log: log.forget_some(generation, through, _FORGOTTEN_AT_ONCE)):
            pass
        for table, ids in named:
            for at in range(0, len(ids), _FORGOTTEN_AT_ONCE):
                some = ids[at : at + _FORGOTTEN_AT_ONCE]
                doom = partial(SpriteLog.doom, generation=generation, through=through, table=table, ids=some)
                await self.write(sprite, doom)

    def _store(self, log: SpriteLog, shipment: store.Shipment, after: int | None) -> tuple[store.Position, bool]:
        position, generation = _following(log, shipment, after), log.generation or log.begin()
        for sha256, content in shipment.chunks.items():
            log.add_chunk(sha256, content)
        # Rows whose acknowledgement was lost arrive again.
        new = [row for row in shipment.rows if row.position > position.through]
        for row in new:
            log.add_row(generation, row)
        has_changed = bool(new)
        if shipment.baseline:
            has_changed |= log.rebase(generation, shipment.baseline, shipment.through)
        # A repeated forget has nothing left to do.
        if shipment.forgotten > position.through:
            log.forget(generation, shipment.forgotten)
        self._keep_to_quota(log, shipment)
        through = max(shipment.through, position.through)
        log.move(generation, shipment.log, through, is_whole=shipment.is_whole, has_changed=has_changed)
        return log.position(), log.wipes_due() > 0

    def _keep_to_quota(self, log: SpriteLog, shipment: store.Shipment) -> None:
        """Delete older data if the quota is exceeded. Raise StoreFullError if that is not enough."""
        if not (shipment.rows or shipment.chunks) or log.size() <= self._quota:
            return
        log.drop_expired(_SHORT_OF_ROOM_SECONDS, _SHORT_OF_ROOM_SECONDS)
        # A forget ships the rest of its rows; it must not wait for space.
        if log.size() > self._quota + (self._quota // 10 if shipment.forgotten else 0):
            raise store.StoreFullError(f"The sprite has used up its {self._quota >> 20} MiB in the store.")

    async def wipe_is_due(self, sprite: str) -> bool:
        """Return whether forgotten data of a sprite may still be on the disk."""
        return await self.read(sprite, SpriteLog.wipes_due) > 0

    async def finish_wipe(self, sprite: str) -> bool:
        """Wipe forgotten data from the disk, also after a bridge ended in between.

        Return whether more was forgotten meanwhile, so that it is due again. On DatabaseError it stays due.
        """
        due = await self.read(sprite, SpriteLog.wipes_due)
        if not due:
            return False
        await self.shelf.wipe(sprite)
        return not await self.write(sprite, lambda log: log.wiped(due))

    async def read(self, sprite: str, work: Callable[[SpriteLog], _T]) -> _T:
        """Call `work` with the sprite's log in one transaction that only reads. It may be called more than once."""
        return await self.shelf.read(sprite, lambda tx: work(SpriteLog(tx, sprite, self.keyring)))

    async def write(self, sprite: str, work: Callable[[SpriteLog], _T]) -> _T:
        """Call `work` with the sprite's log in one transaction. It may be called more than once."""

        def finished(tx: Transaction) -> _T:
            log = SpriteLog(tx, sprite, self.keyring)
            done = work(log)
            log.finish()
            return done

        return await self.shelf.write(sprite, finished)


def _following(log: SpriteLog, shipment: store.Shipment, after: int | None) -> store.Position:
    """Return the replica's current position. Raise StoreError if the shipment does not continue from there."""
    position = log.position()
    if position.log not in {None, shipment.log}:
        raise store.StoreAheadError("The sprite's log is not the one that is stored.")
    if after is not None and after > position.through:
        raise store.StoreError("The replica has changed meanwhile; the sprite is asked again.")
    return position


def _named(shipment: store.Shipment, log: SpriteLog) -> store.Named:
    """Return the rows that a forget names. Raise BadShipmentError or DamagedError."""

    def nothing(_: str) -> bytes:
        raise store.BadShipmentError("The sprite shipped a long row without its chunks.")

    return shipment.doomed(log.chunk if log.generation else nothing)


def _begin_forget(log: SpriteLog, shipment: store.Shipment, after: int | None) -> int:
    """Begin a forget; return its generation, or 0 if there is nothing to do. Raise StoreError as `_following` does."""
    position, generation = _following(log, shipment, after), log.generation
    if not generation or shipment.forgotten <= position.through:
        return 0
    log.begin_forget(generation, shipment.forgotten)
    return generation


@asynccontextmanager
async def open_store(settings: Settings, database: Database | None) -> AsyncIterator[SealedStore]:
    """Open the store in the shared database or, without one, in the data folder."""
    async with AsyncExitStack() as stack:
        shelf: Shelf
        if settings.database_url is not None and database is not None:
            shelf = DatabaseShelf(database)
        else:
            shelf = await stack.enter_async_context(FolderShelf(settings.store))
        fixed = [*(settings.store_keys or ())]
        if settings.database_url is not None and settings.cluster_secret is not None:
            # Bridges of one cluster share a key, even if none was configured.
            fixed.append(key_of_secret(settings.cluster_secret))
        # The file is created when first needed, unless something was sealed with a key that is missing.
        makes = not fixed and not settings.store_key.exists() and not await _has_sealed(shelf)
        yield SealedStore(shelf, fixed_keys(fixed) if fixed else key_file(settings.store_key, makes=makes))


async def _has_sealed(shelf: Shelf) -> bool:
    """Return whether anything is sealed. A bridge that was killed at its first write leaves an empty log."""
    sql = "SELECT 1 FROM stored_sprites WHERE sprite = ?"
    for sprite in await shelf.sprites():
        try:
            if await shelf.read(sprite, lambda tx, sprite=sprite: tx.execute(sql, (sprite,)).fetchone()):  # type: ignore[misc]
                return True
        except store.StoreError:
            # It is damaged, so it was sealed once.
            return True
    return False
