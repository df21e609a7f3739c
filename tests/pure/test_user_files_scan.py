"""The scan of the person's folders: bounded, without following links, with names that cannot forge anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.log.file_table import Entry
from sprite.memory.folders import USER_FOLDERS
from sprite.protocol.files import MAX_SHOWN_CHARS, is_below_folders, on_disk, on_wire, shown, size_in_words
from sprite.protocol.shapes import FILE_FOLDERS
from sprite.workspace.user_files import (
    MOST_DEEP,
    MOST_ENTRIES,
    Scan,
    is_there,
    lines,
    not_said_in,
    remove,
    scan,
    within,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for folder in FILE_FOLDERS:
        (tmp_path / folder).mkdir()
    return tmp_path


def look(workspace: Path, *folders: str) -> Scan:
    return scan(workspace, folders or FILE_FOLDERS, seconds=60)


def put(workspace: Path, path: str, content: str = "x", at: float | None = None) -> None:
    target = workspace / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)
    if at is not None:
        os.utime(target, (at, at))


def entry(path: str, size: int = 10, at: int = 1_790_000_000) -> Entry:
    return Entry(path, size, at * 10**9)


def names(found: Scan) -> list[str]:
    return [each.path for each in found.entries]


# The folders


def test_scan_covers_workspace_folders() -> None:
    assert set(FILE_FOLDERS) <= {"documents", *USER_FOLDERS}


def test_newest_file_comes_first_across_folders(workspace: Path) -> None:
    put(workspace, "documents/old.txt", at=1_000)
    put(workspace, "artifacts/deep/er/new.txt", "four", at=3_000)
    put(workspace, "ocr/middle.txt", at=2_000)
    found = look(workspace)
    assert names(found) == ["artifacts/deep/er/new.txt", "ocr/middle.txt", "documents/old.txt"]
    assert (found.entries[0].size, found.entries[0].modified_ns, found.more, found.complete) == (
        4,
        3_000 * 10**9,
        0,
        True,
    )
    assert names(look(workspace, "ocr")) == ["ocr/middle.txt"]


def test_links_are_neither_followed_nor_listed(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    put(outside, "secret.txt")
    (workspace / "documents/out").symlink_to(outside)
    (workspace / "documents/loop").symlink_to(workspace / "documents")
    (workspace / "documents/file").symlink_to(outside / "secret.txt")
    os.mkfifo(workspace / "documents/pipe")
    (workspace / "artifacts").rmdir()
    (workspace / "artifacts").symlink_to(outside)
    assert names(look(workspace)) == []


def test_program_folder_is_one_entry(workspace: Path) -> None:
    put(workspace, "artifacts/app/node_modules/left-pad/index.js")
    put(workspace, "artifacts/app/.git/objects/aa/bb")
    put(workspace, "artifacts/app/main.js")
    assert sorted(names(look(workspace))) == [
        "artifacts/app/.git/",
        "artifacts/app/main.js",
        "artifacts/app/node_modules/",
    ]


def test_newest_of_many_files_are_kept_others_counted(workspace: Path) -> None:
    for number in range(MOST_ENTRIES + 30):
        put(workspace, f"documents/{number}", at=10_000 + number)
    found = look(workspace)
    assert (len(found.entries), found.more, found.complete) == (MOST_ENTRIES, 30, True)
    assert found.entries[-1].path == "documents/30"


def test_scan_stops_at_deadline_with_results(workspace: Path) -> None:
    put(workspace, "documents/a")
    put(workspace, "documents/b")
    found = scan(workspace, seconds=-1)
    assert (len(found.entries), found.complete) == (1, False)


def test_overly_deep_tree_is_one_entry(workspace: Path) -> None:
    (workspace / "documents" / "/".join(["deeper"] * 3 * MOST_DEEP)).mkdir(parents=True)
    put(workspace, "ocr/a.txt")
    assert sorted(names(look(workspace))) == [f"documents/{'deeper/' * MOST_DEEP}", "ocr/a.txt"]


def test_arbitrary_byte_names_are_shown_on_one_line(workspace: Path) -> None:
    hostile = [b"two\nlines", b"\x1b[2Jclear", b"not \xff utf-8", "r\u202etxt.exe".encode(), b"n" * 255]
    for name in hostile:
        (workspace / "documents" / os.fsdecode(name)).write_bytes(b"x")
    found = look(workspace)
    assert {os.fsencode(each.path) for each in found.entries} == {b"documents/" + name for name in hostile}
    told = lines([], found.entries)
    assert len(told) == len(hostile)
    assert all(line.isprintable() and len(line) < MAX_SHOWN_CHARS + 50 for line in told)
    assert any(r"documents/two\nlines" in line for line in told)
    assert any(r"documents/not \xff utf-8" in line for line in told)


# Names on the wire


@given(st.binary(min_size=1, max_size=40))
def test_name_round_trips_over_wire(name: bytes) -> None:
    path = os.fsdecode(name)
    wired = on_wire(path)
    assert wired.encode("utf-8")
    assert path in on_disk(wired)


def test_private_use_character_in_name_is_literal() -> None:
    assert on_disk("documents/a.txt") == ("documents/a.txt",)
    assert on_disk("documents/\uf7ff") == ("documents/\uf7ff", "documents/\udcff")


@pytest.mark.parametrize(
    "path",
    [
        "documents",
        "documents/",
        "documents/../.os/run/token",
        "/etc/passwd",
        ".os/run/token",
        "skills/a",
        "documents//a",
        "documents/./a",
        "documents/a\0",
        "",
    ],
)
def test_path_leading_elsewhere_is_rejected(path: str) -> None:
    assert not is_below_folders(path)


# What changed


def test_changes_contradicting_memory_come_first() -> None:
    gone = [entry("documents/other", 1), entry("documents/a.pdf", 2), entry("documents/a", 3)]
    told = lines(gone, [entry("artifacts/n.csv", 12_345)], "# Files\n- documents/a.pdf: the lease.\n")
    assert told == [
        "deleted: documents/a.pdf (files.md names it)",
        "deleted: documents/other",
        "deleted: documents/a",
        "added: artifacts/n.csv (12 kB, 2026-09-21)",
    ]


def test_omitted_changes_are_counted() -> None:
    told = within([f"line {number:>94}" for number in range(100)], 1_000)
    assert len(told) <= 1_000
    assert told.endswith("more changes.")
    assert within(["one", "two"], 100) == "one\ntwo"


def test_file_named_in_turn_is_not_new() -> None:
    added = [entry("artifacts/report.csv"), entry("artifacts/other.csv"), entry("artifacts/app/.git/")]
    assert [each.path for each in not_said_in(added, ["cat artifacts/report.csv", "git init .git"])] == [
        "artifacts/other.csv"
    ]


def test_time_outside_calendar_is_no_error() -> None:
    for moment in (2**63 - 1, -(2**63)):
        assert lines([], [Entry("ocr/a", 1, moment)])[0].startswith("added: ocr/a (1 byte, ")


def test_sizes_are_human_readable() -> None:
    sizes = [0, 1, 1023, 12_345, 1_300_000, 30 * 2**20, 5 * 2**30]
    assert [size_in_words(size) for size in sizes] == [
        "0 bytes",
        "1 byte",
        "1023 bytes",
        "12 kB",
        "1.2 MB",
        "30 MB",
        "5.0 GB",
    ]


def test_long_name_keeps_start_and_end() -> None:
    told = shown("documents/" + "n" * 300 + ".pdf")
    assert (told[:10], told[-4:], len(told)) == ("documents/", ".pdf", MAX_SHOWN_CHARS + 1)


# Deleting


def test_deletion_follows_no_link(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    put(outside, "kept.txt")
    (workspace / "documents/out").symlink_to(outside)
    (workspace / "documents/link").symlink_to(outside / "kept.txt")
    for path in ("documents/out/kept.txt", "documents/link"):
        with pytest.raises(OSError, match=r"Not a directory|Too many levels|documents/link"):
            remove(workspace, path)
    with pytest.raises(IsADirectoryError):
        remove(workspace, "documents")
    assert (outside / "kept.txt").exists()
    put(workspace, "documents/a b/c.txt", "12345")
    assert remove(workspace, "documents/a b/c.txt") == 5
    assert not is_there(workspace, "documents/a b/c.txt")
