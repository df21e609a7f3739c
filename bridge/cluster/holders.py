"""Which bridge owns which sprite, for operators, read from the leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.database import Database

_HOLDERS = "SELECT sprite, address, expires_at - db_now() AS seconds FROM leases WHERE expires_at > db_now()"


@dataclass(frozen=True, slots=True)
class Holder:
    """The bridge that owns a sprite, and the seconds until its lease expires without renewal."""

    address: str
    seconds: float


async def holders(database: Database) -> dict[str, Holder]:
    """Return the owners by sprite, without sprites that no bridge owns. Raises DatabaseError."""
    return {row["sprite"]: Holder(row["address"], float(row["seconds"])) for row in await database.statement(_HOLDERS)}
