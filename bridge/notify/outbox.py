"""What a webhook is still to be sent, in the table `webhook_outbox`: it outlives the bridge. Knows no HTTP."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.notify.signature import new_key

if TYPE_CHECKING:
    from bridge.database import Database, Transaction

#: The oldest go where a receiver has been away for that long.
MOST_WAITING = 1000
#: In seconds, after each try in vain: five tries within an hour.
PAUSES = (30.0, 300.0, 900.0, 2100.0)
_DUE = """
SELECT id, body, tries FROM webhook_outbox WHERE next_at <= ? OR next_at > ? ORDER BY next_at, kept_at LIMIT ?
"""
#: Of two bridges that want the same at once, the second sees that the first one has taken it.
_TAKE = """
UPDATE webhook_outbox SET next_at = ? WHERE (next_at <= ? OR next_at > ?) AND id IN (
    SELECT id FROM webhook_outbox WHERE next_at <= ? OR next_at > ? ORDER BY next_at, kept_at LIMIT ?
) RETURNING id, body, tries
"""
#: Longer than a try takes: what a bridge took and did not bring to its end, another one takes after this.
_TAKEN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that is to be sent now, and how often that was tried."""

    id: str
    body: bytes
    tries: int


class Outbox:
    """Messages until they are delivered or given up. Every method: DatabaseError where the disk refuses.

    Where it is `shared` by several bridges, what is due is handed to one of them.
    """

    def __init__(self, database: Database, pauses: tuple[float, ...] = PAUSES, *, shared: bool = False) -> None:
        self._database = database
        #: Then what is due is handed out once, and else each time it is asked for.
        self.is_shared = shared
        self._pauses = pauses

    async def key(self) -> bytes:
        """The key that signs, made when it is wanted first."""
        return await self._database.write(_key)

    async def add(self, message_id: str, body: bytes) -> None:
        """Keeps a message; one that waits already stays as it is."""

        def insert(tx: Transaction) -> None:
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

        await self._database.write(insert)

    async def due(self, most: int) -> list[Waiting]:
        """What is to be sent now, the longest due first; also what a clock that was set back would keep for ever."""
        now = time.time()
        bounds = (now, now + max(self._pauses))
        if self.is_shared:
            rows = await self._database.statement(_TAKE, (now + _TAKEN_SECONDS, *bounds, *bounds, most))
        else:
            rows = await self._database.read(lambda db: db.execute(_DUE, (*bounds, most)).fetchall())
        return [Waiting(row["id"], bytes(row["body"]), row["tries"]) for row in rows]

    async def next_at(self) -> float | None:
        """When the next one is due, in Unix seconds; None where nothing waits."""
        row = await self._database.read(
            lambda db: db.execute("SELECT min(next_at) AS at FROM webhook_outbox").fetchone()
        )
        return None if row["at"] is None else float(row["at"])

    async def size(self) -> int:
        """How many wait."""
        row = await self._database.read(lambda db: db.execute("SELECT count(*) AS n FROM webhook_outbox").fetchone())
        return int(row["n"])

    async def done(self, message_id: str) -> None:
        """Forgets a message."""
        await self._database.statement("DELETE FROM webhook_outbox WHERE id = ?", (message_id,))

    async def failed(self, message: Waiting) -> bool:
        """Puts a message off; False where that was its last try, and it is given up."""
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
