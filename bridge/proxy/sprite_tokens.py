"""Tokens with which sprites authenticate at the model proxy: random, stored as SHA-256, bound to one sprite's budget.

A sprite has one token at a time; a new one revokes the old one at once. Tokens are looked up by hash, so no comparison
leaks timing. A bridge caches the tokens that it saw for a few seconds.
"""

import secrets
import time

from bridge.db.database import Database, token_sha256

_PREFIX = "sprite-"
_TOKEN_BYTES = 32
#: Far above the length of a token; bounds the hashing of untrusted input.
_MAX_TOKEN_CHARACTERS = 256
_REPLACE = """
INSERT INTO sprite_tokens VALUES (?, ?, ?)
ON CONFLICT (sprite) DO UPDATE SET token_sha256 = excluded.token_sha256, created_at = excluded.created_at
"""
#: A bridge accepts a token that another one revoked for this long; and the size of the cache.
_REMEMBERED_SECONDS, _MOST_REMEMBERED = 5.0, 20_000


class SpriteTokens:
    """Create, look up and revoke the tokens of sprites."""

    def __init__(self, database: Database) -> None:
        self._database = database
        #: The sprite of each cached token, and when to look it up again.
        self._cached: dict[bytes, tuple[str, float]] = {}

    async def sprite_of(self, token: str) -> str | None:
        """Return the sprite of a token, or None if it is not a valid one. Raise DatabaseError if the lookup fails."""
        if not token.startswith(_PREFIX) or len(token) > _MAX_TOKEN_CHARACTERS:
            return None
        hashed = token_sha256(token)
        sprite, good_until = self._cached.get(hashed, ("", 0.0))
        if good_until >= time.monotonic():
            return sprite
        rows = await self._database.read(
            lambda db: db.execute("SELECT sprite FROM sprite_tokens WHERE token_sha256 = ?", (hashed,)).fetchall()
        )
        self._cached.pop(hashed, None)
        if not rows:
            return None
        if len(self._cached) >= _MOST_REMEMBERED:
            self._cached = {}
        sprite = str(rows[0]["sprite"])
        self._cached[hashed] = sprite, time.monotonic() + _REMEMBERED_SECONDS
        return sprite

    async def rotate(self, sprite: str) -> str:
        """Replace a sprite's token and return the new one, which cannot be read again. Raise DatabaseError."""
        token = _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        # The old token ends in memory first; the new one is valid only after it is stored.
        self._forget(sprite)
        await self._database.statement(_REPLACE, (sprite, token_sha256(token), time.time()))
        self._forget(sprite)  # another rotation may have run meanwhile
        return token

    async def revoke(self, sprite: str) -> None:
        """Revoke the token of a sprite, if it has one."""
        self._forget(sprite)
        await self._database.statement("DELETE FROM sprite_tokens WHERE sprite = ?", (sprite,))
        self._forget(sprite)

    def _forget(self, sprite: str) -> None:
        self._cached = {hashed: cached for hashed, cached in self._cached.items() if cached[0] != sprite}
