"""What programs were granted: what stays of it on disk, and how it ends."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from bridge.database import open_database
from bridge.door.people import People
from bridge.mcp.grants import Code, Grants, Issued


@pytest.fixture
async def grants(tmp_path: Path) -> AsyncIterator[Grants]:
    async with open_database(tmp_path / "bridge.db") as database:
        await People(database).add("ada")
        grants = Grants(database)
        await grants.add_client("program", "{}")
        yield grants


async def granted(grants: Grants) -> Issued:
    code = Code("program", "ada", ["memory:read"], "x" * 43, "http://localhost/", True, None, time.time() + 60)
    issued = await grants.exchange_code(await grants.add_code(code), "Editor")
    assert issued is not None
    return issued


def rows(folder: Path, table: str) -> int:
    with closing(sqlite3.connect(folder / "bridge.db")) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


async def test_a_program_that_asks_for_new_tokens_without_end_does_not_fill_the_disk(
    grants: Grants, tmp_path: Path
) -> None:
    other = await granted(grants)
    first = issued = await granted(grants)
    for _ in range(150):
        renewed = await grants.exchange_refresh(issued.refresh)
        assert renewed is not None
        before, issued = issued, renewed
    assert rows(tmp_path, "oauth_spent") <= 100
    assert rows(tmp_path, "granted_access") <= 9
    assert await grants.of_access(issued.access) is not None
    assert await grants.of_access(before.access) is not None, "requests that are under way with it go on"
    assert await grants.of_access(first.access) is None
    assert await grants.of_access(other.access) is not None, "another grant's tokens are its own"
    assert await grants.end_reused(first.refresh) is None, "it is as good as unknown"
    assert await grants.refresh(first.refresh) is None
    assert await grants.end_reused(before.refresh) is not None
    assert await grants.of_access(issued.access) is None
    assert await grants.of_access(other.access) is not None
