"""Grants to programs: bounded storage and revocation."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge.auth.people import People
from bridge.auth.tokens import PersonTokens
from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.mcp.grants import Grants, Issued


@pytest.fixture
async def database(database_at: Path | str) -> AsyncIterator[Database]:
    async with open_database(database_at) as database:
        yield database


@pytest.fixture
async def grants(database: Database) -> Grants:
    await People(database).add("ada")
    grants = Grants(database)
    await grants.add_client("program", "{}")
    return grants


async def granted(grants: Grants) -> Issued:
    # Every worker imports this file, and MCP takes half a second.
    from mcp.server.auth.provider import AuthorizationCode
    from pydantic import AnyUrl

    code = AuthorizationCode(
        code=secrets.token_urlsafe(),
        scopes=["memory:read"],
        expires_at=time.time() + 60,
        client_id="program",
        code_challenge="x" * 43,
        redirect_uri=AnyUrl("http://localhost/"),
        redirect_uri_provided_explicitly=True,
        subject="ada",
    )
    await grants.add_code(code)
    issued = await grants.exchange_code(code, "Editor")
    assert issued is not None
    return issued


async def rows(database: Database, table: str) -> int:
    (row,) = await database.statement(f"SELECT count(*) FROM {table}")
    return int(row[0])


async def test_grant_with_endless_token_requests_is_bounded(grants: Grants, database: Database) -> None:
    tokens = PersonTokens(database)
    other = await granted(grants)
    first = issued = await granted(grants)
    for _ in range(110):
        renewed = await grants.exchange_refresh(issued.refresh)
        assert renewed is not None
        before, issued = issued, renewed
    assert await rows(database, "oauth_spent") <= 100
    assert await rows(database, "granted_access") <= 9
    assert await tokens.holder(issued.access) is not None
    assert await tokens.holder(before.access) is not None, "requests under way with it continue"
    assert await tokens.holder(first.access) is None
    assert await tokens.holder(other.access) is not None, "tokens of another grant are not affected"
    assert await grants.end_reused(first.refresh) is None, "it is treated as unknown"
    assert await grants.refresh(first.refresh) is None
    assert await grants.end_reused(before.refresh) is not None
    assert await tokens.holder(issued.access) is None
    assert await tokens.holder(other.access) is not None
