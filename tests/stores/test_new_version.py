"""The backup before the first start of a new version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bridge.db.open import open_database
from bridge.db.tables import MIGRATIONS
from sprite import __version__
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.memory.folders import workspace_lock
from tests.memory_stores import forget_in, open_stores, seed_turns


async def test_new_version_backs_up_log(workspace: Path) -> None:
    settings = Settings(workspace)
    await seed_turns(workspace, "I prefer tea.")
    with workspace_lock(settings):
        assert not settings.backup.exists()
    (settings.system / "data-version").write_text("0.0.9\n")
    with workspace_lock(settings):
        pass
    with closing(sqlite3.connect(settings.backup / "transcript.db")) as copy:
        assert copy.execute("SELECT user_message FROM observations").fetchall() == [("I prefer tea.",)]
    assert (settings.system / "data-version").read_text().strip() == __version__
    async with open_stores(settings.memory) as stores:
        forgotten = await forget_in(stores, text="I prefer tea")
    assert not forgotten.still
    assert not settings.backup.exists()


async def test_failed_backup_refuses_start(workspace: Path) -> None:
    settings = Settings(workspace)
    with workspace_lock(settings):
        settings.transcript_db.write_bytes(b"no database" * 1000)
    (settings.system / "data-version").write_text("0.0.9\n")
    with pytest.raises(OperatorError, match=r"backup .* failed \(file is not a database\)"), workspace_lock(settings):
        pass
    assert (settings.system / "data-version").read_text() == "0.0.9\n"


async def test_bridge_backup_holds_no_notices(tmp_path: Path) -> None:
    async with open_database(tmp_path / "bridge.db") as database:
        await database.statement("INSERT INTO people (name, created_at) VALUES ('ada', 1)")
        await database.statement("INSERT INTO notices VALUES ('ada', 'm', 'ended', 'call Bo', '', NULL, 1, 0, 1)")
    (tmp_path / "data-version").write_text("0.0.9")
    async with open_database(tmp_path / "bridge.db"):
        pass
    with closing(sqlite3.connect(tmp_path / "backup/bridge.db")) as copy:
        assert copy.execute("SELECT name FROM people").fetchall() == [("ada",)]
        assert copy.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert b"call Bo" not in (tmp_path / "backup/bridge.db").read_bytes()
