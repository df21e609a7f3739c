"""Sprite tokens in a shared Postgres: every bridge accepts them, and learns when one is revoked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from bridge.db.open import open_database
from bridge.proxy.sprite_tokens import SpriteTokens
from tests.in_thread import PATIENCE


@asynccontextmanager
async def bridge(url: str) -> AsyncIterator[SpriteTokens]:
    async with open_database(url) as database, SpriteTokens(database, died) as tokens:
        yield tokens


def died() -> None:
    raise AssertionError("a task died")


async def ended(tokens: SpriteTokens, token: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await tokens.sprite_of(token) is not None:  # noqa: ASYNC110 - another bridge's news
            await asyncio.sleep(0.02)


async def test_token_is_valid_and_revoked_on_every_bridge(postgres_url: str) -> None:
    async with bridge(postgres_url) as here, bridge(postgres_url) as there:
        first, other = await here.rotate("ada"), await there.rotate("grace")
        for tokens in (here, there):
            assert await tokens.sprite_of(first) == "ada"
            assert await tokens.sprite_of(other) == "grace"
            assert await tokens.sprite_of("sprite-none") is None
            assert await tokens.sprite_of(f"person-{first}") is None
        second = await there.rotate("ada")
        # A token made elsewhere is valid at once; the old one is evicted from the other bridge's cache.
        assert await here.sprite_of(second) == "ada"
        assert await there.sprite_of(first) is None
        await ended(here, first)
        await here.revoke("ada")
        assert await here.sprite_of(second) is None
        await ended(there, second)
        assert await there.sprite_of(other) == "grace"


async def test_revocation_is_broadcast_to_other_bridges(postgres_url: str) -> None:
    """Otherwise they would accept the token until their next check."""
    async with open_database(postgres_url) as database, bridge(postgres_url) as here:
        told = database.listen("sprite_tokens")
        async with aclosing(told), asyncio.timeout(PATIENCE):
            hears = asyncio.ensure_future(anext(told))
            # Retried until the bridge listens, then once for each token.
            while not hears.done():
                await here.revoke("nobody")
                await asyncio.wait([hears], timeout=0.1)
            await here.rotate("ada")
            await here.revoke("grace")
            heard = [text async for text in until(told, "grace")]
        assert [text for text in heard if text != "nobody"] == ["ada", "grace"]


async def until(told: AsyncIterator[str], last: str) -> AsyncIterator[str]:
    async for text in told:
        yield text
        if text == last:
            return
