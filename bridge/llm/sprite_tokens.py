"""What a sprite shows the model proxy instead of a key: random, stored as SHA-256, worth one sprite's budget.

Owns the table `sprite_tokens`. A sprite has one token at a time; a new one ends the old one at once. Who it belongs to
is looked up by hash in memory: nothing is compared byte by byte, and no call waits for the disk.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from types import TracebackType
from typing import Self

from bridge.database import Database, token_sha256

_PREFIX = "sprite-"
_TOKEN_BYTES = 32
#: Far above a token of ours; hashing what a stranger sends is bounded.
_MAX_TOKEN_CHARACTERS = 256


class SpriteTokens:
    """`async with SpriteTokens(database) as tokens:`; the only writer of its table while it is open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sprites: dict[bytes, str] = {}

    async def __aenter__(self) -> Self:
        rows = await self._database.read(
            lambda db: db.execute("SELECT token_sha256, sprite FROM sprite_tokens").fetchall()
        )
        self._sprites = {bytes(row["token_sha256"]): row["sprite"] for row in rows}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sprites.clear()

    def sprite_of(self, token: str) -> str | None:
        """Whose token it is; None for any that is not, or no longer, one."""
        if not token.startswith(_PREFIX) or len(token) > _MAX_TOKEN_CHARACTERS:
            return None
        return self._sprites.get(token_sha256(token))

    async def rotate(self, sprite: str) -> str:
        """Makes a sprite's token anew and returns it, this once; sqlite3.Error where the disk refuses."""
        token = _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        hashed = token_sha256(token)

        def replace(tx: sqlite3.Connection) -> None:
            tx.execute("INSERT OR REPLACE INTO sprite_tokens VALUES (?, ?, ?)", (sprite, hashed, time.time()))

        # In memory first the old one ends, then the new one begins when it is safely stored.
        self._forget(sprite)
        await self._database.write(replace)
        self._forget(sprite)  # another rotation may have come in between
        self._sprites[hashed] = sprite
        return token

    async def revoke(self, sprite: str) -> None:
        """Ends a sprite's token, if it has one."""
        self._forget(sprite)
        await self._database.write(lambda tx: tx.execute("DELETE FROM sprite_tokens WHERE sprite = ?", (sprite,)))
        self._forget(sprite)

    def _forget(self, sprite: str) -> None:
        self._sprites = {hashed: owner for hashed, owner in self._sprites.items() if owner != sprite}
