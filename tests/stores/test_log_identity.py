"""Memory belongs to one log: a different, older or empty log is detected, reported, and replayed from."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any

import pytest

from sprite.config import Settings
from sprite.errors import MigrationPendingError
from sprite.log.transcript import open_transcript
from sprite.memory.database import open_memory
from sprite.memory.files import CURATED, MemoryFiles, set_aside
from sprite.memory.opening import misfit, open_own_memory
from sprite.memory.projection import Projection
from sprite.owner import open_stores as open_to_read
from tests.looks import dump, rows
from tests.memory_stores import Stores, added, noted, open_stores

FIRST = "Ada lives in Lund."
SECOND = "Bo repairs bicycles."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace" / ".os" / "memory"
    folder.mkdir(parents=True)
    return folder


async def taught(stores: Stores, *contents: str) -> None:
    """Curate each fact as a separate turn, with a line in user.md."""
    for content in contents:
        await stores.learn(f'FACT [t] {content} | "{content}"\n{added("user.md", content)}', content)


async def backed_up(folder: Path) -> Path:
    """Make a log with one taught fact, back it up, and add a second fact to the original."""
    async with open_stores(folder) as stores:
        await taught(stores, FIRST)
    backup = shutil.copy(folder / "transcript.db", folder.parent / "backup.db")
    async with open_stores(folder) as stores:
        await taught(stores, SECOND)
        await stores.turn("This one waits")
        await stores.projection.settle()
    return Path(backup)


async def opened(folder: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the messages to people when the owner opens the folder, and memory.db once it is settled."""
    told = BufferingHandler(100)
    async with AsyncExitStack() as stack:
        logging.getLogger("sprite.memory.opening").addHandler(told)
        stack.callback(logging.getLogger("sprite.memory.opening").removeHandler, told)
        transcript = await stack.enter_async_context(open_transcript(folder / "transcript.db"))
        memory = await stack.enter_async_context(open_own_memory(folder / "memory.db", transcript))
        files = MemoryFiles(folder)
        files.ensure()
        await Projection(transcript, memory, files).settle()
        assert await misfit(transcript, memory) is None
    return [record.getMessage() for record in told.buffer], dump(folder / "memory.db")


def contents(path: Path) -> list[str]:
    return [row["content"] for row in rows(path, "SELECT content FROM learnings ORDER BY id")]


def emptied(folder: Path, _backup: Path) -> None:
    (folder / "transcript.db").write_bytes(b"")


def deleted(folder: Path, _backup: Path) -> None:
    (folder / "transcript.db").unlink()


def older(folder: Path, backup: Path) -> None:
    shutil.copy(backup, folder / "transcript.db")


def rows_taken_out(folder: Path, _backup: Path) -> None:
    connection = sqlite3.connect(folder / "transcript.db")
    connection.executescript("DROP TRIGGER observations_stay; DELETE FROM observations WHERE id = 3")
    connection.close()


def changes_taken_out(folder: Path, _backup: Path) -> None:
    connection = sqlite3.connect(folder / "transcript.db")
    connection.executescript("DROP TRIGGER curations_stay; DELETE FROM curations WHERE id = 2")
    connection.close()


@pytest.mark.parametrize(
    ("change", "reason", "known"),
    [
        (emptied, "of-another-log", []),
        (deleted, "of-another-log", []),
        (older, "of-a-newer-log", [FIRST]),
        (rows_taken_out, "of-a-newer-log", [FIRST, SECOND]),
        (changes_taken_out, "of-a-newer-log", [FIRST]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_foreign_log_is_detected_and_memory_rebuilt(
    change: Callable[[Path, Path], None], reason: str, known: list[str], folder: Path
) -> None:
    change(folder, await backed_up(folder))
    told, _ = await opened(folder)
    assert len(told) == 1
    (aside,) = folder.glob(f"memory.db.{reason}-*")
    assert aside.name in told[0]
    assert contents(aside) == [FIRST, SECOND]
    assert contents(folder / "memory.db") == known
    assert (folder / "user.md").read_text().count("\n- ") == len(known)
    (file,) = folder.glob(f"user.md.{reason}-*")
    assert SECOND in file.read_text()
    edits = rows(folder / "transcript.db", "SELECT * FROM curations WHERE kind = 'edit'")
    assert edits == [], "text written from the other log is no manual edit of this one"
    assert {aside.name, file.name} <= {words.partition(":")[0] for words in set_aside(folder)}
    again, _ = await opened(folder)
    assert again == []


async def test_memory_continues_from_restored_log(folder: Path) -> None:
    older(folder, await backed_up(folder))
    await opened(folder)
    async with open_stores(folder) as stores:
        await taught(stores, "Cy plays chess.")
        assert [learning.content for learning in await stores.learnings()] == [FIRST, "Cy plays chess."]


async def test_diverged_log_of_equal_length_is_detected(folder: Path) -> None:
    older(folder, await backed_up(folder))
    aside = folder / "memory.db"
    kept = aside.rename(folder.parent / "memory.db")
    async with open_stores(folder) as stores:
        await taught(stores, "Cy plays chess.", "Di sings.")
    kept.replace(aside)
    told, _ = await opened(folder)
    assert "has less than memory.db" in told[0]
    assert contents(aside) == [FIRST, "Cy plays chess.", "Di sings."]


async def test_memory_of_another_workspace_is_never_mixed(folder: Path, tmp_path: Path) -> None:
    await backed_up(folder)
    other = tmp_path / "other" / ".os" / "memory"
    other.mkdir(parents=True)
    async with open_stores(other) as stores:
        await taught(stores, "Eve", "Fay", "Gil")
    shutil.copy(other / "memory.db", folder / "memory.db")
    told, _ = await opened(folder)
    assert "was not made from the transcript.db" in told[0]
    assert contents(folder / "memory.db") == [FIRST, SECOND]
    shutil.copy(other / "transcript.db", folder / "transcript.db")
    told, _ = await opened(folder)
    assert "was not made from the transcript.db" in told[0]
    assert contents(folder / "memory.db") == ["Eve", "Fay", "Gil"]
    assert len(list(folder.glob("memory.db.of-another-log-*"))) == 2, "the second file does not overwrite the first"


async def test_older_memory_catches_up_silently(folder: Path) -> None:
    async with open_stores(folder) as stores:
        await taught(stores, FIRST)
    backup = shutil.copy(folder / "memory.db", folder.parent / "memory.db")
    async with open_stores(folder) as stores:
        await taught(stores, SECOND)
    expected = dump(folder / "memory.db")
    shutil.copy(backup, folder / "memory.db")
    told, found = await opened(folder)
    assert told == []
    assert {**found, "written_files": None} == {**expected, "written_files": None}


async def test_memory_without_identity_adopts_its_logs(folder: Path) -> None:
    await backed_up(folder)
    connection = sqlite3.connect(folder / "memory.db")
    connection.executescript("UPDATE log_seen SET log_id = NULL, turn_id = 0, turn_at = 0, curation_id = 0")
    connection.close()
    expected = contents(folder / "memory.db")
    told, _ = await opened(folder)
    assert (told, contents(folder / "memory.db")) == ([], expected)
    emptied(folder, folder)
    assert (await opened(folder))[0]


async def test_manual_edit_beside_restored_log_stays_persons(folder: Path) -> None:
    older(folder, await backed_up(folder))
    (folder / "user.md").write_text("- By hand.\n")
    await opened(folder)
    assert (folder / "user.md").read_text() == "- By hand.\n"
    assert len(rows(folder / "transcript.db", "SELECT * FROM curations WHERE kind = 'edit'")) == 1


async def test_interrupted_reset_is_repeated_at_next_start(folder: Path) -> None:
    older(folder, await backed_up(folder))
    async with open_memory(folder / "memory.db") as memory:
        await memory.copy_to(folder / "memory.db.of-a-newer-log-20260101T000000Z")
    told, _ = await opened(folder)
    assert len(told) == 1
    assert contents(folder / "memory.db") == [FIRST]


async def test_reader_reports_foreign_log(folder: Path) -> None:
    await backed_up(folder)
    settings = Settings(folder.parent.parent)
    async with open_to_read(settings):
        pass
    emptied(folder, folder)
    async with open_transcript(folder / "transcript.db"):
        pass
    before = (folder / "memory.db").read_bytes()
    with pytest.raises(MigrationPendingError, match="python -m sprite rebuild"):
        async with open_to_read(settings):
            pass
    assert (folder / "memory.db").read_bytes() == before
    await opened(folder)
    async with open_to_read(settings) as stores:
        assert await stores.view.learnings() == []


async def test_log_identity_is_immutable(folder: Path) -> None:
    await backed_up(folder)
    connection = sqlite3.connect(folder / "transcript.db")
    for sql in (
        "DELETE FROM log_identity",
        "UPDATE log_identity SET id = 'x'",
        "INSERT INTO log_identity VALUES ('x')",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(sql)
    connection.close()


@pytest.mark.parametrize("name", CURATED)
async def test_every_curated_file_follows_restored_log(name: str, folder: Path) -> None:
    async with open_stores(folder) as stores:
        await stores.note(name, FIRST)
    backup = Path(shutil.copy(folder / "transcript.db", folder.parent / "backup.db"))
    async with open_stores(folder) as stores:
        await stores.note(name, SECOND)
        assert SECOND in stores.files.read(name)
    older(folder, backup)
    await opened(folder)
    assert (folder / name).read_text() == noted(name, FIRST)
