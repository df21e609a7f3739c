"""Pending webhook messages in the table `webhook_outbox`; they outlive the bridge. Knows no HTTP."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bridge.database import Database, Transaction, in_transaction
from bridge.notify.signature import new_key

#: Above this number the oldest are dropped, if a receiver is down for long.
MOST_WAITING = 1000
#: Delays in seconds after each failed try: five tries within an hour.
PAUSES = (30.0, 300.0, 900.0, 2100.0)
_DUE = """
SELECT id, body, tries FROM webhook_outbox WHERE next_at <= ? OR next_at > ? ORDER BY next_at, kept_at LIMIT ?
"""
#: With two bridges at once, the second sees that the first one has taken them.
_TAKE = """
UPDATE webhook_outbox SET next_at = ? WHERE (next_at <= ? OR next_at > ?) AND id IN (
    SELECT id FROM webhook_outbox WHERE next_at <= ? OR next_at > ? ORDER BY next_at, kept_at LIMIT ?
) RETURNING id, body, tries
"""
#: Longer than one try: after this another bridge takes messages that were not finished.
_TAKEN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that is due, and its number of tries so far."""

    id: str
    body: bytes
    tries: int


class Outbox:
    """Messages until they are delivered or given up. Every method may raise DatabaseError.

    If it is `shared` by several bridges, each due message is given to one of them.
    """

    def __init__(self, database: Database, pauses: tuple[float, ...] = PAUSES, *, shared: bool = False) -> None:
        self._database = database
        #: If set, `due` returns a message once, otherwise on every call.
        self.is_shared = shared
        self._pauses = pauses

    async def key(self) -> bytes:
        """Return the signing key, created on first use."""
        return await self._database.write(_key)

    @in_transaction
    def add(self, tx: Transaction, message_id: str, body: bytes) -> None:
        """Store a message, unless its id is already pending."""
        now = time.time()
        tx.execute(
            "INSERT INTO webhook_outbox VALUES (?, ?, 0, ?, ?) ON CONFLICT (id) DO NOTHING",
            (message_id, body, now, now),
        )
        tx.execute(
            "DELETE FROM webhook_outbox WHERE id NOT IN "
            "(SELECT id FROM webhook_outbox ORDER BY kept_at DESC, id LIMIT ?)",
            (MOST_WAITING,),
        )

    async def due(self, most: int) -> list[Waiting]:
        """Return the messages that are due, the longest due first.

        Messages scheduled too far ahead are included, because a clock that was set back would delay them for ever.
        """
        now = time.time()
        bounds = (now, now + max(self._pauses))
        if self.is_shared:
            rows = await self._database.statement(_TAKE, (now + _TAKEN_SECONDS, *bounds, *bounds, most))
        else:
            rows = await self._database.read(lambda db: db.execute(_DUE, (*bounds, most)).fetchall())
        return [Waiting(row["id"], bytes(row["body"]), row["tries"]) for row in rows]

    async def next_at(self) -> float | None:
        """Return the time of the next due message in Unix seconds, None if there is none."""
        row = await self._database.read(
            lambda db: db.execute("SELECT min(next_at) AS at FROM webhook_outbox").fetchone()
        )
        return None if row["at"] is None else float(row["at"])

    async def size(self) -> int:
        """Return the number of pending messages."""
        row = await self._database.read(lambda db: db.execute("SELECT count(*) AS n FROM webhook_outbox").fetchone())
        return int(row["n"])

    async def done(self, message_id: str) -> None:
        """Delete a message."""
        await self._database.statement("DELETE FROM webhook_outbox WHERE id = ?", (message_id,))

    async def failed(self, message: Waiting) -> bool:
        """Reschedule a message; return False if that was its last try and it was deleted."""
        if message.tries >= len(self._pauses):
            await self.done(message.id)
            return False
        again_at = time.time() + self._pauses[message.tries]
        await self._database.statement(
            "UPDATE webhook_outbox SET tries = ?, next_at = ? WHERE id = ?", (message.tries + 1, again_at, message.id)
        )
        return True


def _key(tx: Transaction) -> bytes:
    row = tx.execute("SELECT key FROM webhook_key").fetchone()
    if row is not None:
        return bytes(row["key"])
    key = new_key()
    tx.execute("INSERT INTO webhook_key VALUES (?)", (key,))
    return key
