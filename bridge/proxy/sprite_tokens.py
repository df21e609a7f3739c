"""Tokens with which sprites authenticate at the model proxy: random, stored as SHA-256, bound to one sprite's budget.

Owns the table `sprite_tokens`. A sprite has one token at a time; a new one revokes the old one at once. Tokens are
looked up by hash, so no comparison leaks timing. A bridge caches the tokens that it saw for a few seconds and receives
notice of those that another bridge revoked.
"""

import secrets
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from bridge.db.database import Database, Transaction, token_sha256
from sprite.common.tasks import Service, owned_task

_PREFIX = "sprite-"
_TOKEN_BYTES = 32
#: Far above the length of a token; bounds the hashing of untrusted input.
_MAX_TOKEN_CHARACTERS = 256
_REPLACE = """
INSERT INTO sprite_tokens VALUES (?, ?, ?)
ON CONFLICT (sprite) DO UPDATE SET token_sha256 = excluded.token_sha256, created_at = excluded.created_at
"""
#: Channel on which bridges announce rotated and revoked tokens.
_CHANNEL = "sprite_tokens"
#: A bridge that missed a notice accepts a revoked token for this long; and the size of the cache.
_REMEMBERED_SECONDS, _MOST_REMEMBERED = 5.0, 20_000


class SpriteTokens(Service):
    """`async with SpriteTokens(database, on_death) as tokens:`.

    `on_death` is called if the task dies that receives the notices of other bridges.
    """

    def __init__(self, database: Database, on_death: Callable[[], None] = lambda: None) -> None:
        self._database = database
        self._on_death = on_death
        self._sprites: dict[bytes, str] = {}
        #: The expiry of each cached token.
        self._good_until: dict[bytes, float] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.callback(self._sprites.clear)
        await stack.enter_async_context(owned_task(self._listen(), name="sprite tokens", on_death=self._on_death))

    async def sprite_of(self, token: str) -> str | None:
        """Return the sprite of a token, or None if it is not a valid one. Raise DatabaseError if the lookup fails."""
        if not token.startswith(_PREFIX) or len(token) > _MAX_TOKEN_CHARACTERS:
            return None
        hashed = token_sha256(token)
        if self._good_until.get(hashed, 0.0) < time.monotonic():
            return await self._looked_up(hashed)
        return self._sprites.get(hashed)

    async def _looked_up(self, hashed: bytes) -> str | None:
        rows = await self._database.read(
            lambda db: db.execute("SELECT sprite FROM sprite_tokens WHERE token_sha256 = ?", (hashed,)).fetchall()
        )
        if not rows:
            self._sprites.pop(hashed, None)
            self._good_until.pop(hashed, None)
            return None
        if len(self._sprites) >= _MOST_REMEMBERED:
            self._sprites, self._good_until = {}, {}
        sprite = self._sprites[hashed] = str(rows[0]["sprite"])
        self._good_until[hashed] = time.monotonic() + _REMEMBERED_SECONDS
        return sprite

    async def _listen(self) -> None:
        async for sprite in self._database.listen(_CHANNEL):
            self._forget(sprite)

    async def rotate(self, sprite: str) -> str:
        """Replace a sprite's token and return the new one; it cannot be read again.

        Raise DatabaseError if the disk fails.
        """
        token = _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        hashed = token_sha256(token)

        def replace(tx: Transaction) -> None:
            tx.execute(_REPLACE, (sprite, hashed, time.time()))
            tx.execute("SELECT db_notify(?, ?)", (_CHANNEL, sprite))

        # The old token ends in memory first; the new one is valid only after it is stored.
        self._forget(sprite)
        await self._database.write(replace)
        self._forget(sprite)  # another rotation may have run meanwhile
        return token

    async def revoke(self, sprite: str) -> None:
        """Revoke the token of a sprite, if it has one."""
        self._forget(sprite)

        def delete(tx: Transaction) -> None:
            tx.execute("DELETE FROM sprite_tokens WHERE sprite = ?", (sprite,))
            tx.execute("SELECT db_notify(?, ?)", (_CHANNEL, sprite))

        await self._database.write(delete)
        self._forget(sprite)

    def _forget(self, sprite: str) -> None:
        self._sprites = {hashed: owner for hashed, owner in self._sprites.items() if owner != sprite}
        self._good_until = {hashed: until for hashed, until in self._good_until.items() if hashed in self._sprites}
