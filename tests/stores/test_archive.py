"""Workspace archives: byte-identical round trips, complete tables and strict validation.

The file is long because each kind of invalid archive has its own test.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import stat
import zipfile
from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import pytest

from sprite.backup import restore as moving_in
from sprite.backup.archive import SCHEMAS, Export, snapshot
from sprite.backup.archive_reader import is_archive
from sprite.backup.archive_reader import opened as archive_opened
from sprite.backup.restore import is_folding, refuse_same
from sprite.cli import archives as export_command
from sprite.cli.import_logs import import_logs
from sprite.common.files import whole_file
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.log.curations import OFF_RECORD, LostCall
from sprite.log.file_table import Entry
from sprite.log.transcript import ImportedTurn, NewObservation
from sprite.owner import open_log
from sprite.owner import open_stores as open_to_read
from sprite.protocol.archive import FORMAT, MANIFEST, PARTS, DatabaseName, Part, from_line, is_plain, to_line
from sprite.protocol.shapes import Block, Card, Point, UsedTool
from sprite.sandbox.hosts import Place
from sprite.storage.connection import empty_database
from sprite.workspace.database import CardSaved, ChatAdded, MissionMoved, StoredMission, WorkspaceDB, open_workspace
from tests.command_line import settings_of
from tests.forking import ROOT
from tests.looks import dump, rows
from tests.memory_stores import SESSION, Stores, call, open_stores

_SHIPPED = "how much of it a store elsewhere has; a restored workspace ships all of it"
#: Tables excluded from an archive, and the reason.
NOT_STATE: Final[dict[tuple[DatabaseName, str], str]] = {
    ("transcript.db", "turn_outlines"): "made of the turns",
    ("workspace.db", "meta"): "numbers the events, names the newest bridge; both begin anew where restored",
    ("workspace.db", "events"): "what open pages have still to be told",
    ("workspace.db", "seen_files"): "this machine's disk as of the last scan",
    ("workspace.db", "outside_files"): "this machine's files",
    ("workspace.db", "change_sets"): "undo, which needs the contents below `.os/undo/`",
    ("workspace.db", "changes"): "the same",
    ("transcript.db", "ship_changes"): _SHIPPED,
    ("workspace.db", "ship_changes"): _SHIPPED,
    ("workspace.db", "ship_state"): _SHIPPED,
    ("workspace.db", "ship_issued"): _SHIPPED,
    ("workspace.db", "ship_rows"): _SHIPPED,
}
ODD = 'caf\u00e9 \u2028 \U0001f980 \x00 "quoted" \\ \r\n end'


@asynccontextmanager
async def opened(workspace: Path) -> AsyncIterator[tuple[Stores, WorkspaceDB]]:
    """Open the stores of a workspace as the sprite process does."""
    (workspace / ".os/memory").mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(workspace / ".os/memory"))
        yield stores, await stack.enter_async_context(open_workspace(workspace / ".os/workspace.db"))


async def live_in(workspace: Path) -> None:
    """Fill every table: curated, pending, private and imported turns, a manual edit, a canvas, a chat and files."""
    for name, content in {"documents/notes.txt": "Notes", "artifacts/deep/er/run.sh": "echo", "top.md": ODD}.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        os.utime(path, ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    (workspace / "artifacts/deep/er/run.sh").chmod(0o750)
    (workspace / "artifacts/empty").mkdir()
    async with opened(workspace) as (stores, canvas):
        log = stores.transcript
        await stores.learn(
            'FACT [t] Ada lives in Lund. | "I live in Lund."\nUSER_MD_UPDATE:\n- Lund', "I live in Lund."
        )
        await stores.learn('ACTION [t] Buy oats | "Remember to buy oats."', "Remember to buy oats.")
        await stores.projection.edit("context.md", f"# Context\n- {ODD.replace(chr(0), '')}\n")
        await stores.turn(ODD, calls=[call("Bash", ODD, {"command": "ls"})], mission_id="m1")
        await stores.turn("This is private", processed=OFF_RECORD)
        await log.add_imported(
            [
                ImportedTurn(
                    "key-1",
                    5.0,
                    6.5,
                    NewObservation(
                        "other", "Port 8", [], "Yes", "error", project="/p", source="codex", pasted=((0, 4),)
                    ),
                )
            ]
        )
        await log.journal.append("open", SESSION, "prompt", {"text": "\ud800 half"})
        await log.lost_calls.append(LostCall("offline", "cut off", {"input_tokens": 1}, None))
        await log.user_files.keep([Entry("documents/b\udcff", 1, 2)], 7.25, 1)
        await log.user_files.add_deed("uploaded", "documents/caf\u00e9", 9)
        stack_id = await canvas.create_stack("Trip")
        block = Block("b", "note", {"content": ODD}, 1, "agent")
        await canvas.record(
            [], [CardSaved(Card("c", stack_id, "Plan", "notes", Point(1, 2.5), None, [block], archived=False))]
        )
        await canvas.accept_mission(StoredMission("m1", "Hello", stack_id, "queued", None))
        await canvas.record(
            [(1, b"{}")],
            [
                ChatAdded("assistant", ODD, "m1", tools=[UsedTool("Bash", "ls", is_error=True)]),
                MissionMoved("m1", "complete", SESSION, 0.1 + 0.2),
            ],
        )
        await canvas.rename_session(SESSION, "The trip")
        await canvas.hosts.add_rule("example.org", "m1")
        await canvas.hosts.ended(await canvas.hosts.began(Place.of("example.org", 443), "always", "m1"), 1, 2, "always")
    # An edit made while no sprite ran: it is not logged yet.
    with (workspace / ".os/memory/user.md").open("a") as stream:
        stream.write("- A hand's line\n")


async def exported(workspace: Path, target: Path, **more: Any) -> Path:
    given = {"file": str(target), "without_files": False, "force": False, "json": True, **more}
    assert await export_command.export(settings_of(workspace), Namespace(**given)) == 0
    return target


async def imported(archive: Path, workspace: Path, *, dry_run: bool = False) -> None:
    given = Namespace(paths=[archive], dry_run=dry_run, json=True)
    assert await import_logs(settings_of(workspace), given) == 0


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a workspace and its archive, which tests copy."""
    folder = tmp_path_factory.mktemp("original")

    async def make() -> None:
        (folder / "lived-in").mkdir()
        await live_in(folder / "lived-in")
        await exported(folder / "lived-in", folder / "sprite.zip")

    asyncio.run(make())
    return folder


@pytest.fixture
def lived_in(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original / "lived-in", tmp_path / "lived-in")


@pytest.fixture
def archive(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy2(original / "sprite.zip", tmp_path))


def changed(
    archive: Path, change: Callable[[dict[str, bytes], dict[str, Any]], None], *, resealed: bool = True
) -> Path:
    """Copy the archive with changed entries and manifest; `resealed` updates the sizes and hashes to match."""
    with zipfile.ZipFile(archive) as source:
        entries = {name: source.read(name) for name in source.namelist()}
    manifest = json.loads(entries.pop(MANIFEST))
    change(entries, manifest)
    if resealed:
        for file in [*manifest["tables"], *manifest["memory"], *manifest["files"]]:
            if file["path"] in entries:
                content = entries[file["path"]]
                file |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                if "rows" in file:
                    file["rows"] = content.count(b"\n")
    target = archive.with_name(f"changed-{archive.name}")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in entries.items():
            out.writestr(name, content, zipfile.ZIP_STORED if name == "README.md" else None)
        out.writestr(MANIFEST, json.dumps(manifest))
    return target


def tree(workspace: Path) -> dict[str, Any]:
    """Return content, permissions and times of every user file and folder."""
    return {
        str(path.relative_to(workspace)): (
            path.read_bytes() if path.is_file() else None,
            stat.S_IMODE(path.stat().st_mode),
            path.stat().st_mtime_ns,
        )
        for path in sorted(workspace.rglob("*"))
        if ".os" not in path.parts and path.parent != workspace
    }


# Contents


def test_archive_covers_every_stateful_table() -> None:
    known = {(part.database, part.table) for part in PARTS} | NOT_STATE.keys()
    for name, schema in SCHEMAS.items():
        with empty_database(schema) as database:
            tables = {
                row[0]
                for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                # Full-text tables are derived from their sources; SQLite's own table only counts.
                if "_fts" not in row[0] and not row[0].startswith("sqlite_")
            }
            assert {table for database_name, table in known if database_name == name} == tables


def test_archive_layout_matches_documentation() -> None:
    page = (ROOT / "docs/archive.md").read_text()

    def line(part: Part) -> str:
        with empty_database(SCHEMAS[part.database]) as database:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({part.table})")]
        kept = " ".join(f"`{name}`" for name in columns)
        return f"| `{part.path}` | {part.words} | {kept} |"

    documented = re.findall(r"^\| `[\w/]+\.jsonl` \|.*$", page, re.MULTILINE)
    assert documented == [line(part) for part in PARTS]
    assert f"`format` ({FORMAT})" in page


async def test_archive_is_readable_plain_text(lived_in: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive) as opened_archive:
        assert opened_archive.testzip() is None
        turns = [json.loads(line) for line in opened_archive.read("log/observations.jsonl").splitlines()]
        stored = rows(lived_in / ".os/memory/transcript.db", "SELECT * FROM observations ORDER BY id")
        assert turns == stored
        assert b"Nothing here needs a program" in opened_archive.read("README.md")
        assert opened_archive.read("memory/user.md").endswith(b"- A hand's line\n")
        assert opened_archive.read("files/documents/notes.txt") == b"Notes"
        told = json.loads(opened_archive.read(MANIFEST))
        for file in [*told["tables"], *told["memory"], *told["files"]]:
            assert hashlib.sha256(opened_archive.read(file["path"])).hexdigest() == file["sha256"]
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600


async def test_fixture_fills_every_table(archive: Path) -> None:
    with zipfile.ZipFile(archive) as opened_archive:
        empty = [part.path for part in PARTS if not opened_archive.read(part.path)]
    assert empty == []


# Round trip


async def test_import_then_export_is_byte_identical(lived_in: Path, archive: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    await imported(archive, new)
    again = await exported(new, tmp_path / "again.zip")
    assert again.read_bytes() == archive.read_bytes()
    assert tree(new) == tree(lived_in)
    for name in ("memory/transcript.db", "memory/memory.db"):
        was, now = dump(lived_in / ".os" / name), dump(new / ".os" / name)
        # Page layout of full text is not state, and neither are the time of memory's last look and the replica's
        # position.
        apart = {table for table in was if table.endswith(("_fts_data", "_fts_idx"))}
        apart |= {"log_seen", "written_files", "ship_changes", "sqlite_sequence"}
        assert {k: v for k, v in was.items() if k not in apart} == {k: v for k, v in now.items() if k not in apart}


async def test_imported_workspace_is_searchable_and_continues(lived_in: Path, archive: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    await imported(archive, new)
    found = []
    for workspace in (lived_in, new):
        async with open_to_read(settings_of(workspace)) as stores:
            found.append([await stores.view.search(query, 10) for query in ("Lund", "oats", "caf\u00e9", "private")])
    assert found[0] == found[1]
    assert not found[1][3].hits
    ended = []
    for workspace in (lived_in, new):
        async with opened(workspace) as (stores, canvas):
            # Both workspaces notice the manual edit, as if nothing had happened in between.
            await stores.projection.settle()
            await stores.learn('FACT [t] Bo paints. | "Bo paints."', "Bo paints.", at=9.0)
            ended.append((stores.files.read("user.md"), [each.content for each in await stores.learnings()]))
            assert [line.text for line in await canvas.chat(10)] == ["Hello", ODD]
            assert not await stores.projection.settle()
    assert ended[0] == ended[1]
    assert "A hand's line" in ended[1][0]


async def test_imported_log_keeps_its_guards(archive: Path, tmp_path: Path) -> None:
    await imported(archive, tmp_path / "new")
    with closing(sqlite3.connect(tmp_path / "new/.os/memory/transcript.db")) as database:
        for statement in ("DELETE FROM observations", "UPDATE curations SET response = ''", "DELETE FROM log_identity"):
            with pytest.raises(sqlite3.DatabaseError, match="never"):
                database.execute(statement)


async def test_workspace_with_imports_only_is_exported(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    async with opened(workspace) as (stores, _):
        await stores.turn()
        await stores.projection.settle()
    (workspace / ".os/workspace.db").unlink()
    archive = await exported(workspace, tmp_path / "sprite.zip")
    await imported(archive, tmp_path / "new")
    assert (await exported(tmp_path / "new", tmp_path / "again.zip")).read_bytes() == archive.read_bytes()


async def test_export_without_files(lived_in: Path, tmp_path: Path) -> None:
    archive = await exported(lived_in, tmp_path / "small.zip", without_files=True)
    with zipfile.ZipFile(archive) as opened_archive:
        assert not [name for name in opened_archive.namelist() if name.startswith("files/")]
    await imported(archive, tmp_path / "new")
    assert not (tmp_path / "new/documents").exists()


# Consistency


async def test_export_beside_writer_is_consistent_snapshot(tmp_path: Path) -> None:
    """A turn is written before its chat line; a line without its turn would mean two snapshots."""
    workspace = tmp_path / "workspace"
    stop = asyncio.Event()
    async with opened(workspace) as (stores, canvas):

        async def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                await canvas.accept_mission(StoredMission(f"m{number}", "Hello", None, "queued", None))
                await stores.learn(
                    f'FACT [t] Fact {number} | "Fact {number}"', f"Fact {number}", mission_id=f"m{number}"
                )
                await canvas.record([], [MissionMoved(f"m{number}", "complete")])

        writing = asyncio.create_task(write())
        try:
            for number in range(5):
                async with snapshot(settings_of(workspace)) as look:
                    sink = io.BytesIO()
                    for _ in Export(look, None).write(sink):
                        await asyncio.sleep(0)
                with zipfile.ZipFile(sink) as made:
                    count = {part.path: made.read(part.path).count(b"\n") for part in PARTS}
                    ended = made.read("chat/missions.jsonl").count(b'"complete"')
                assert ended <= count["log/observations.jsonl"] <= count["chat/missions.jsonl"] <= ended + 1
                assert number or count["log/observations.jsonl"] < 1000
        finally:
            stop.set()
            await writing


async def test_export_needs_no_memory_database(lived_in: Path, archive: Path, tmp_path: Path) -> None:
    settings_of(lived_in).memory_db.unlink()
    again = await exported(lived_in, tmp_path / "again.zip")
    assert again.read_bytes() == archive.read_bytes()


async def test_export_names_unsupported_entries(lived_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lived_in / "documents/link").symlink_to("/etc/passwd")
    (lived_in / "documents/away").symlink_to("/etc", target_is_directory=True)
    os.mkfifo(lived_in / "documents/pipe")
    (lived_in / os.fsdecode(b"documents/\xff.txt")).write_text("odd")
    archive = await exported(lived_in, lived_in / "documents/sprite.zip")
    said = capsys.readouterr().err
    for words in ("documents/link: a link", "documents/away: a link", "pipe: no file", "its name is no text"):
        assert words in said
    with zipfile.ZipFile(archive) as made:
        assert [name for name in made.namelist() if name.startswith("files/documents")] == ["files/documents/notes.txt"]


# Rejected without side effects


async def refused(archive: Path, workspace: Path, words: str) -> None:
    before = tree(workspace), dump_all(workspace)
    with pytest.raises(OperatorError, match=words):
        await imported(archive, workspace)
    assert (tree(workspace), dump_all(workspace)) == before


def dump_all(workspace: Path) -> dict[str, Any]:
    return {str(path): dump(path) for path in workspace.rglob("*.db")}


def damage(archive: Path) -> None:
    with zipfile.ZipFile(archive) as opened_archive:
        entry = opened_archive.getinfo("log/observations.jsonl")
    content = bytearray(archive.read_bytes())
    content[entry.header_offset + len(entry.FileHeader()) + entry.compress_size // 2] ^= 0x55
    archive.write_bytes(content)


def cut(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-40])


def cut_short(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:2000])


@pytest.mark.parametrize("harm", [damage, cut, cut_short])
async def test_damaged_archive_is_refused_before_any_write(
    archive: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    harm(archive)
    assert is_archive(archive)
    with pytest.raises(OperatorError, match="damaged"):
        await imported(archive, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def newer(_: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["format"] = 2
    manifest["surprise"] = True


def newer_log(_: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["schemas"]["transcript.db"] = 1000


def no_table(_: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["tables"] = manifest["tables"][1:]


def extra(entries: dict[str, bytes], _: dict[str, Any]) -> None:
    entries["files/documents/stowaway"] = b"x"


def missing(entries: dict[str, bytes], _: dict[str, Any]) -> None:
    del entries["files/top.md"]


def other_words(entries: dict[str, bytes], _: dict[str, Any]) -> None:
    entries["log/observations.jsonl"] = entries["log/observations.jsonl"].replace(b"Lund", b"Rome")


def upwards(entries: dict[str, bytes], manifest: dict[str, Any]) -> None:
    entries["files/../../evil"] = entries.pop("files/top.md")
    next(f for f in manifest["files"] if f["path"] == "files/top.md")["path"] = "files/../../evil"


def into_ours(entries: dict[str, bytes], manifest: dict[str, Any]) -> None:
    entries["files/.os/run/token"] = entries.pop("files/top.md")
    next(f for f in manifest["files"] if f["path"] == "files/top.md")["path"] = "files/.os/run/token"


def into_ours_folded(_: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["folders"].append({"path": ".OS/run", "mode": 511, "modified_ns": 0})


def folder_upwards(_: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["folders"].append({"path": "../evil", "mode": 511, "modified_ns": 0})


def file_and_folder(_: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["folders"].append({"path": "top.md", "mode": 511, "modified_ns": 0})


def file_above_a_file(entries: dict[str, bytes], manifest: dict[str, Any]) -> None:
    entries["files/top.md/deeper"] = b""
    manifest["files"].append({"path": "files/top.md/deeper", "mode": 384, "modified_ns": 0})


def for_everybody(_: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["files"][0]["mode"] = 0o4755


def memory_elsewhere(entries: dict[str, bytes], manifest: dict[str, Any]) -> None:
    entries["memory/../run/token"] = entries.pop("memory/os.md")
    next(f for f in manifest["memory"] if f["path"] == "memory/os.md")["path"] = "memory/../run/token"


async def test_names_colliding_by_case_are_refused(lived_in: Path, tmp_path: Path) -> None:
    """On a case-folding disk the second file would replace the first; this disk tells them apart."""
    folder = lived_in / "documents/Straße"
    folder.mkdir()
    (lived_in / "documents/STRASSE").mkdir()
    for name in ("a.txt", "A.txt", "e\u0301", "é"):
        (folder / name).write_text(name)
    (lived_in / ".Os").mkdir()
    (lived_in / ".Os/token").write_text("not ours")
    path = await exported(lived_in, tmp_path / "own.zip")
    await imported(path, tmp_path / "new")
    assert {each.name for each in (tmp_path / "new/documents/Straße").iterdir()} == {"a.txt", "A.txt", "e\u0301", "é"}
    assert not (tmp_path / "new/.Os").exists()
    assert not is_folding(tmp_path)
    with archive_opened(path) as archive, pytest.raises(OperatorError, match="takes for the same name"):
        refuse_same(archive)


@pytest.mark.parametrize(
    ("change", "resealed", "words"),
    [
        (newer, True, "newer Sprite.*format 2"),
        (newer_log, True, r"another version of Sprite.*transcript\.db of version 1000"),
        (no_table, True, "does not name"),
        (extra, True, "stowaway"),
        (missing, True, "missing"),
        (other_words, False, r"damaged: log/observations\.jsonl"),
        (upwards, True, "not a valid name for a person's file"),
        (into_ours, True, "not a valid name for a person's file"),
        (into_ours_folded, True, "not a valid name for a person's file"),
        (folder_upwards, True, "not a valid name for a person's file"),
        (for_everybody, True, "permissions"),
        (file_and_folder, True, "cannot be a file and a folder"),
        (file_above_a_file, True, "cannot be a file and a folder"),
        (memory_elsewhere, True, "memory file"),
    ],
)
async def test_archive_of_another_program_is_refused(
    archive: Path, tmp_path: Path, change: Callable[..., None], resealed: bool, words: str
) -> None:
    with pytest.raises(OperatorError, match=words):
        await imported(changed(archive, change, resealed=resealed), tmp_path / "new")
    assert not (tmp_path / "new").exists()


async def test_duplicate_entry_is_refused(archive: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive, "a") as out, pytest.warns(UserWarning, match="Duplicate"):
        out.writestr("log/observations.jsonl", b"{}")
    with pytest.raises(OperatorError, match="twice"):
        await imported(archive, tmp_path / "new")


async def test_archive_larger_than_disk_is_refused_unread(archive: Path, tmp_path: Path) -> None:
    huge = 1 << 50
    with zipfile.ZipFile(archive) as source:
        manifest = json.loads(source.read(MANIFEST))
    next(file for file in manifest["files"] if file["path"] == "files/top.md")["size"] = huge
    with zipfile.ZipFile(archive, "a") as made:
        # The zip's central directory is written last, with the sizes it is given.
        made.getinfo("files/top.md").file_size = huge
        del made.NameToInfo[MANIFEST]
        made.filelist[:] = [info for info in made.filelist if info.filename != MANIFEST]
        made.writestr(MANIFEST, json.dumps(manifest))
    with pytest.raises(OperatorError, match="the disk has"):
        await imported(archive, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("path", "line", "words"),
    [
        ("log/observations.jsonl", b'{"id": 1}\n', "columns are not those of the table"),
        ("log/sessions.jsonl", b"[" * 100_000 + b"\n", "line 1"),
        ("log/curations.jsonl", b"no JSON\n", "line 1"),
        ("log/identity.jsonl", b'{"id": 5}\n', "id is no text"),
        ("log/identity.jsonl", b'{"id": "x"}', "line 1: the line is incomplete"),
        ("chat/missions.jsonl", b"\xff\n", "line 1"),
    ],
)
async def test_invalid_row_is_named(archive: Path, tmp_path: Path, path: str, line: bytes, words: str) -> None:
    def tampered(entries: dict[str, bytes], manifest: dict[str, Any]) -> None:
        entries[path] = line
        for file in manifest["tables"]:
            file["rows"] = 1 if file["path"] == path else file["rows"]

    with pytest.raises(OperatorError, match=words):
        await imported(changed(archive, tampered), tmp_path / "new")
    assert not list((tmp_path / "new").rglob("*.db"))
    await imported(archive, tmp_path / "new")


async def test_turn_without_session_and_invalid_card_are_named(archive: Path, tmp_path: Path) -> None:
    def orphaned(entries: dict[str, bytes], _: dict[str, Any]) -> None:
        entries["log/sessions.jsonl"] = entries["log/sessions.jsonl"].split(b"\n", 1)[1]

    def unshowable(entries: dict[str, bytes], _: dict[str, Any]) -> None:
        entries["canvas/cards.jsonl"] = re.sub(
            rb'"blocks_json":".*?\]"', b'"blocks_json":"[5]"', entries["canvas/cards.jsonl"]
        )

    for change, words in ((orphaned, r"log/observations\.jsonl, line 1: FOREIGN KEY"), (unshowable, "cannot be shown")):
        with pytest.raises(OperatorError, match=words):
            await imported(changed(archive, change), tmp_path / "new")
        assert not list((tmp_path / "new").rglob("*.db"))


async def test_workspace_with_memory_is_not_overwritten(archive: Path, lived_in: Path, tmp_path: Path) -> None:
    await refused(archive, lived_in, "already has a memory")
    drawn = tmp_path / "drawn"
    async with opened(drawn) as (_, canvas):
        stack_id = await canvas.create_stack("Mine")
        await canvas.make_card(Card("mine", stack_id, "Mine", "notes", None, None, [], archived=False))
    await refused(archive, drawn, "already has a memory")
    filed = tmp_path / "filed"
    (filed / "documents").mkdir(parents=True)
    (filed / "documents/notes.txt").write_text("Other")
    await refused(archive, filed, r"notes\.txt exists already")
    (filed / "documents/notes.txt").unlink()
    (filed / "documents").rmdir()
    (filed / "documents").symlink_to(tmp_path)
    await refused(archive, filed, "is not a folder")
    (filed / "documents").unlink()
    (filed / "artifacts").write_text("not a folder")
    await refused(archive, filed, "is not a folder")
    with pytest.raises(OperatorError, match="alone"):
        await import_logs(settings_of(tmp_path / "new"), Namespace(paths=[archive, archive], dry_run=False, json=True))


async def test_workspace_without_turns_counts_as_empty(archive: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    async with opened(new):
        pass
    (new / "documents").mkdir()
    (new / "documents/notes.txt").write_text("Notes")
    (new / ".os/memory/vectors.db").write_text("of another log")
    await imported(archive, new)
    assert not (new / ".os/memory/vectors.db").exists()
    assert (await exported(new, tmp_path / "again.zip")).read_bytes() == archive.read_bytes()


async def test_dry_run_reads_all_and_writes_nothing(archive: Path, tmp_path: Path) -> None:
    await imported(archive, tmp_path / "new", dry_run=True)
    assert not (tmp_path / "new").exists()
    damage(archive)
    with pytest.raises(OperatorError, match="damaged"):
        await imported(archive, tmp_path / "new", dry_run=True)


async def test_archive_is_checked_beside_memory(
    archive: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    await imported(archive, home)
    log = (home / ".os/memory/transcript.db").read_bytes()
    capfd.readouterr()
    assert await import_logs(settings_of(home), Namespace(paths=[archive], dry_run=True, json=False)) == 0
    assert capfd.readouterr().out.startswith(f"{archive} is complete and undamaged: ")
    assert (home / ".os/memory/transcript.db").read_bytes() == log


async def test_garbage_archive_is_named_as_damaged(tmp_path: Path) -> None:
    garbage = tmp_path / "kept.zip"
    garbage.write_bytes(b"no archive at all")
    with pytest.raises(OperatorError, match=r"kept\.zip is damaged: its list of contents"):
        await imported(garbage, tmp_path / "new")


# Interruptions


async def cut_off(archive: Path, workspace: Path, *moved: str) -> Settings:
    """A workspace whose import was committed and interrupted; only these files have moved."""
    await imported(archive, workspace)
    decided = workspace / ".os/import"
    for name, target in {
        ".os/memory/transcript.db": "transcript.db",
        ".os/memory/memory.db": "memory.db",
        ".os/workspace.db": "workspace.db",
        **{f".os/memory/{name}": f"memory/{name}" for name in ("user.md", "context.md", "soul.md")},
        "top.md": "files/top.md",
        "documents": "files/documents",
        "artifacts": "files/artifacts",
    }.items():
        if name not in moved:
            (decided / target).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).rename(decided / target)
    with zipfile.ZipFile(archive) as made:
        (decided / MANIFEST).write_bytes(made.read(MANIFEST))
    return settings_of(workspace)


@pytest.mark.parametrize("moved", [[], ["documents"], ["top.md", ".os/memory/user.md", ".os/workspace.db"]])
async def test_import_interrupted_in_last_step_is_completed(archive: Path, tmp_path: Path, moved: list[str]) -> None:
    for again in (False, True):
        settings = await cut_off(archive, tmp_path / f"new-{again}", *moved)
        with pytest.raises(OperatorError, match="interrupted in its last step"):
            async with open_to_read(settings):
                pass
        with pytest.raises(OperatorError, match="interrupted in its last step"):
            async with open_log(settings):
                pass
        if again:
            await imported(archive, settings.workspace)
        else:
            moving_in.finish(settings)
        made = await exported(settings.workspace, tmp_path / f"again-{again}.zip")
        assert made.read_bytes() == archive.read_bytes()
        assert {path.name for path in (settings.workspace / ".os").iterdir()} == {
            "data-version",
            "memory",
            "run",
            "workspace.db",
        }


async def test_import_interrupted_earlier_leaves_nothing(archive: Path, tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "new")
    (settings.system / "import.new/memory").mkdir(parents=True)
    (settings.system / "import.new/transcript.db").write_text("half of it")
    await imported(archive, settings.workspace)
    assert (await exported(settings.workspace, tmp_path / "again.zip")).read_bytes() == archive.read_bytes()


# The written file


def test_archive_file_is_written_atomically(tmp_path: Path) -> None:
    target = tmp_path / "sprite.zip"
    with pytest.raises(ZeroDivisionError), whole_file(target, force=False, error=OperatorError) as stream:
        _ = 1 / (stream.write(b"half") - 4)
    assert list(tmp_path.iterdir()) == []
    with whole_file(target, force=False, error=OperatorError) as stream:
        stream.write(b"first")
    with pytest.raises(OperatorError, match="exists already"), whole_file(target, force=False, error=OperatorError):
        pass
    with pytest.raises(OperatorError, match="is a folder"), whole_file(tmp_path, force=True, error=OperatorError):
        pass
    with (
        pytest.raises(OperatorError, match="cannot be written"),
        whole_file(tmp_path / "no/where", force=True, error=OperatorError),
    ):
        pass
    with whole_file(target, force=True, error=OperatorError) as stream:
        stream.write(b"second")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"second"]


@pytest.mark.parametrize(
    "row", [{"a": 1, "b": 1.0, "c": None, "d": ODD, "e": b"\0\xff", "f": 0.1 + 0.2, "g": 1e22, "h": -(2**63)}]
)
def test_row_round_trips_unchanged(row: dict[str, Any]) -> None:
    back = from_line(to_line(row))
    assert back == row
    assert [type(value) for value in back.values()] == [type(value) for value in row.values()]


@pytest.mark.parametrize(
    "line", [b"", b"[]", b'{"a": true}', b'{"a": {}}', b'{"a": 1e999}', b'{"a": "\\ud800"}', b"{" * 9999]
)
def test_malformed_row_raises_no_internal_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_line(line)
    with pytest.raises(ValueError, match="infinite"):
        to_line({"a": float("inf")})


@pytest.mark.parametrize(
    "path", ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/./b", "a\0b", "a/" * 9999 + "a"]
)
def test_path_leading_elsewhere_is_rejected(path: str) -> None:
    assert not is_plain(path)
    assert is_plain("a/..b/c...")
