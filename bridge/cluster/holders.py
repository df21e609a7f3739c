"""Which bridge has which sprite, as operators are told it: read from the leases, whoever asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.database import Database

_HOLDERS = "SELECT sprite, address, expires_at - db_now() AS seconds FROM leases WHERE expires_at > db_now()"


@dataclass(frozen=True, slots=True)
class Holder:
    """The bridge that has a sprite, by its address, and for how many seconds more unless it renews its lease."""

    address: str
    seconds: float


async def holders(database: Database) -> dict[str, Holder]:
    """By sprite; one that no bridge has is not among them. DatabaseError."""
    return {row["sprite"]: Holder(row["address"], float(row["seconds"])) for row in await database.statement(_HOLDERS)}
