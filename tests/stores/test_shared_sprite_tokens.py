"""Sprite tokens in a shared Postgres: every bridge accepts them, and soon refuses a revoked one."""

from __future__ import annotations

import asyncio

import pytest

from bridge.db.open import open_database
from bridge.proxy import sprite_tokens
from bridge.proxy.sprite_tokens import SpriteTokens
from tests.in_thread import PATIENCE


async def ended(tokens: SpriteTokens, token: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await tokens.sprite_of(token) is not None:  # noqa: ASYNC110 - another bridge's cache
            await asyncio.sleep(0.02)


async def test_token_is_valid_and_revoked_on_every_bridge(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sprite_tokens, "_REMEMBERED_SECONDS", 0.2)
    async with open_database(postgres_url) as one, open_database(postgres_url) as other_one:
        here, there = SpriteTokens(one), SpriteTokens(other_one)
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
