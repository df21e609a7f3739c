"""Sprites that must be restored: their machine is gone, or a restore was begun and did not finish.

A host checks this before it creates or uses a machine; see `Guard`.
"""

from __future__ import annotations

from datetime import UTC, datetime

from bridge.database import Database, Transaction, in_transaction
from bridge.hosts.host import HostError, MachineGoneError
from bridge.sql.interface import DatabaseError
from bridge.store.store import Store, StoreError


def moment(at: float) -> str:
    """Format a time (Unix seconds) for people, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


class Losses:
    """Knows the replicas of sprites and the unfinished restores. `refuse` is a Guard."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store

    async def kept_words(self, sprite: str) -> tuple[str, float] | None:
        """Return a description of the replica for a person, and its time; None if there is none or the lookup fails."""
        try:
            at = await self.kept_at(sprite)
        except (StoreError, DatabaseError):
            return None
        return None if at is None else (f"What it knew is kept as of {moment(at)}.", at)

    async def kept_at(self, sprite: str) -> float | None:
        """Return the time of the replica (Unix seconds), None if there is none. Raise StoreError or DatabaseError."""
        return (await self._store.newest(sprite)).at

    async def refuse(self, sprite: str, is_there: bool) -> None:
        """Raise MachineGoneError if the sprite must be restored first."""
        try:
            is_begun = await self.is_begun(sprite)
            if is_there and not is_begun:
                return
            at = await self.kept_at(sprite)
        except (StoreError, DatabaseError) as error:
            raise HostError(f"It is not known what is kept of this agent: {error}") from error
        if is_begun:
            raise MachineGoneError(
                "A restore of this agent was begun and has not ended. What it knew is kept: restore it again.", at
            )
        if at is not None:
            raise MachineGoneError(f"The machine of this agent is gone. What it knew is kept as of {moment(at)}.", at)

    async def is_begun(self, sprite: str) -> bool:
        """Return whether a restore has moved the earlier sprite away and not finished."""
        sql = "SELECT 1 AS found FROM restores WHERE sprite = ?"
        return await self._database.read(lambda tx: tx.execute(sql, (sprite,)).fetchone() is not None)

    @in_transaction
    def begin(self, tx: Transaction, sprite: str) -> None:
        """Note that the sprite must not be used before `end`."""
        tx.execute(
            "INSERT INTO restores(sprite, begun_at) VALUES (?, db_now()) ON CONFLICT (sprite) DO NOTHING", (sprite,)
        )

    @in_transaction
    def end(self, tx: Transaction, sprite: str) -> None:
        """Note that the restore has finished."""
        tx.execute("DELETE FROM restores WHERE sprite = ?", (sprite,))
