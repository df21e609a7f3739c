"""File changes of turns: found by a scan, shown with diffs, and taken back without harm to what the person wrote."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from stat import S_ISREG

import pytest

from sprite.errors import PeerError
from sprite.protocol.shapes import FileCounts
from sprite.undo.scan import is_ignored, read_patterns
from tests.undo_stage import RandomTurns, Stage, opened, tree

#: Random turns; `make soak` takes 10,000.
TURNS = int(os.environ.get("SOAK_TURNS", "40"))
SEED = int(os.environ.get("UNDO_SEED", "26"))


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents/old.txt").write_text("one\ntwo\n")
    async with opened(tmp_path) as stage:
        yield stage


async def test_undo_of_random_turns_restores_tree(stage: Stage) -> None:
    """Undo gives the tree before the turn, and undo of that the tree after it."""
    turns = RandomTurns(stage.folder, SEED)
    undone = 0
    for number in range(TURNS):
        before = tree(stage.folder)
        turns.change()
        after = tree(stage.folder)
        if await stage.turn(f"turn {number}") is None:
            assert before == after, number
            continue
        result = await stage.undo(f"turn {number}")
        assert not result.conflicts + result.yours + result.unkept, (number, result)
        assert tree(stage.folder) == before, number
        if number % 2 and result.undo:
            await stage.undo(result.undo)
            assert tree(stage.folder) == after, number
        undone += 1
    assert undone > TURNS / 2
    assert list((stage.folder / ".os/undo/aside").iterdir()) == []


async def test_undo_of_random_turns_keeps_persons_work(stage: Stage) -> None:
    """A person changes files before each turn and after it. Undo leaves these, and every file that the turn left."""
    agent, person = RandomTurns(stage.folder, SEED), RandomTurns(stage.folder, SEED + 1)
    undone = 0
    for number in range(TURNS):
        person.change(3)
        await stage.tracker.turn_began()
        await stage.tracker.tool_began("t", "Bash", {"command": "make"})
        before = tree(stage.folder)
        agent.change()
        after = tree(stage.folder)
        stage.tracker.tool_ended("t")
        if await stage.turn(f"turn {number}") is None:
            continue
        person.change(2)
        now = tree(stage.folder)
        undone += bool((await stage.undo(f"turn {number}")).restored)
        found = tree(stage.folder)
        for path, state in now.items():
            if S_ISREG(state[0]) and not before.get(path) != after.get(path) == state:
                assert found.get(path) == state, (number, path)
    assert undone > TURNS / 2


async def test_changes_list_kinds_sizes_and_diffs(stage: Stage) -> None:
    documents = stage.folder / "documents"
    (documents / "old.txt").write_text("one\n2\n")
    (documents / "new.bin").write_bytes(b"\0\1")
    assert await stage.turn("m1") == FileCounts(1, 1, 0)
    (documents / "new.bin").unlink()
    (documents / "pixel.gif").write_bytes(b"GIF89a.")
    assert await stage.turn("m2") == FileCounts(1, 0, 1)
    shown = await stage.undoing.changes("m1")
    new, old = shown.files
    assert (new.path, new.kind, new.size, new.diff) == ("documents/new.bin", "added", 2, None)
    assert (old.kind, old.size_before, old.size, old.diff) == ("modified", 8, 6, "@@ -1,2 +1,2 @@\n one\n-two\n+2")
    newest = await stage.undoing.changes(None)
    assert (newest.turn, newest.files[1].preview) == ("m2", "data:image/gif;base64,R0lGODlhLg==")
    with pytest.raises(PeerError, match="Undo works from the next turn on"):
        await stage.undoing.changes("m3")


async def test_unchanged_and_touched_files_are_no_changes(stage: Stage) -> None:
    with pytest.raises(PeerError, match="No turn has changed a file yet"):
        await stage.undoing.changes(None)
    (stage.folder / "documents/old.txt").touch()
    assert await stage.turn("m1") is None
    (stage.folder / "documents/old.txt").write_text("ONE\ntwo\n")
    assert await stage.turn("m2") == FileCounts(0, 1, 0)


async def test_same_size_write_after_scan_is_found(stage: Stage) -> None:
    """A write within the clock's tick of the scan leaves size, inode and perhaps the change time as they were."""
    path = stage.folder / "documents/old.txt"
    for number in range(20):
        with path.open("r+b") as stream:
            stream.write(b"%03d" % number)
        assert await stage.turn(f"m{number}") == FileCounts(0, 1, 0), number


async def test_file_changed_since_is_kept_unless_named(stage: Stage) -> None:
    path = stage.folder / "documents/old.txt"
    path.write_text("agent")
    await stage.turn("m1")
    path.write_text("person")
    result = await stage.undo("m1")
    assert (result.conflicts, result.restored, result.undo) == (["documents/old.txt"], [], None)
    assert path.read_text() == "person"
    result = await stage.undo("m1", over=("documents/old.txt",))
    assert (result.restored, path.read_text()) == (["documents/old.txt"], "one\ntwo\n")
    await stage.undo(result.undo)
    assert path.read_text() == "person"


async def test_change_without_tool_is_maybe_yours(stage: Stage) -> None:
    documents = stage.folder / "documents"
    await stage.tracker.tool_began("t0", "Bash", {"command": "true"})
    stage.tracker.tool_ended("t0")
    time.sleep(0.12)  # noqa: ASYNC251 - beyond the tolerance of file times
    (documents / "mine.txt").write_text("person")
    time.sleep(0.12)  # noqa: ASYNC251 - beyond the tolerance of file times
    await stage.tracker.tool_began("t1", "Bash", {"command": "make"})
    (documents / "asked.txt").write_text("person, before they answered")
    time.sleep(0.12)  # noqa: ASYNC251 - the same
    stage.undoing.permitted()
    (documents / "made.txt").write_text("agent")
    (documents / "sent.txt").write_text("upload")
    stage.tracker.by_person("documents/sent.txt")
    stage.tracker.tool_ended("t1")
    await stage.turn("m1", is_live=False)
    files = (await stage.undoing.changes("m1")).files
    assert {file.path: file.yours for file in files} == {
        "documents/asked.txt": True,
        "documents/made.txt": False,
        "documents/mine.txt": True,
        "documents/sent.txt": True,
    }
    result = await stage.undo("m1")
    assert result.restored == ["documents/made.txt"]
    assert result.yours == ["documents/asked.txt", "documents/mine.txt", "documents/sent.txt"]
    assert (await stage.undo("m1", ["documents/mine.txt"])).restored == ["documents/mine.txt"]
    assert sorted(path.name for path in documents.iterdir()) == ["asked.txt", "old.txt", "sent.txt"]


@pytest.mark.parametrize("is_live", [False, True])
async def test_edit_between_turns_survives_undo(stage: Stage, *, is_live: bool) -> None:
    new, old = stage.folder / "documents/new.txt", stage.folder / "documents/old.txt"
    await stage.turn("m1", is_live=is_live)
    new.write_text("my work\n")
    old.write_text("one\ntwo\nmine\n")
    await stage.tracker.turn_began()
    await stage.tracker.tool_began("t1", "Bash", {"command": "sed -i s/m/M/ documents/*"})
    for path in (new, old):
        path.write_text(path.read_text().replace("m", "M"))
    stage.tracker.tool_ended("t1")
    assert await stage.turn("m2", is_live=is_live) == FileCounts(0, 2, 0)
    result = await stage.undo("m2")
    assert (result.restored, result.yours) == (["documents/new.txt", "documents/old.txt"], [])
    assert (new.read_text(), old.read_text()) == ("my work\n", "one\ntwo\nmine\n")


async def test_change_without_work_is_no_turns(stage: Stage) -> None:
    (stage.folder / "documents/mine.txt").write_text("mine")
    assert await stage.turn("m1", is_live=False) is None


async def test_change_beside_background_work_is_maybe_yours(stage: Stage) -> None:
    await stage.turn("m1", is_live=True)
    (stage.folder / "documents/mine.txt").write_text("mine")
    await stage.tracker.turn_began()
    assert await stage.turn("m2", is_live=True) is None
    assert (await stage.undo("m1")).yours == ["documents/mine.txt"]


async def test_killed_turn_keeps_its_tools_and_persons_deeds(stage: Stage) -> None:
    """A command ran from before the agent's change until the process was killed; later changes are the person's."""
    documents, journal = stage.folder / "documents", stage.transcript.journal
    call = {"tool_use_id": "t1", "name": "Bash", "input": {"command": "make"}}
    await journal.append("turn", "session", "start", {"call": call})
    for name in ("agent.txt", "sent.txt", "later.txt"):
        (documents / name).write_text(name)
    await stage.transcript.user_files.add_deed("uploaded", "documents/sent.txt", 8)
    working = stage.folder / ".os/run/working"
    working.touch()
    # It is precise to a second.
    os.utime(working, ns=(0, time.time_ns() - 800_000_000))
    stage.tracker.recall(await journal.entries(), await stage.transcript.user_files.deeds())
    time.sleep(0.4)  # noqa: ASYNC251 - beyond the tolerance of file times
    (documents / "later.txt").write_text("person")
    await stage.turn("m1", is_live=False)
    assert {file.path: file.yours for file in (await stage.undoing.changes("m1")).files} == {
        "documents/agent.txt": False,
        "documents/later.txt": True,
        "documents/sent.txt": True,
    }


async def test_write_tool_explains_only_its_path(stage: Stage) -> None:
    documents = stage.folder / "documents"
    await stage.tracker.tool_began("t1", "Write", {"file_path": str(documents / "a.txt")})
    for name in ("a.txt", "b.txt"):
        (documents / name).write_text(name)
    await stage.turn("m1", is_live=False)
    assert [file.yours for file in (await stage.undoing.changes("m1")).files] == [False, True]


async def test_folders_of_programs_are_listed_not_kept(stage: Stage) -> None:
    root = stage.folder
    (root / ".gitignore").write_text("*.log\n!keep.log\nsecret/\n/dist\n")
    for name in ("node_modules/a/b.js", "secret/key", "app/app.log", "app/keep.log", "dist/x", "app/dist/y"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    await stage.turn("m1")
    kept = {file.path: file.kept for file in (await stage.undoing.changes("m1")).files}
    assert kept == {
        ".gitignore": True,
        "app/app.log": False,
        "app/dist/y": True,
        "app/keep.log": True,
        "dist": False,
        "node_modules": False,
        "secret": False,
    }
    result = await stage.undo("m1", over=("node_modules",))
    assert set(result.unkept) >= {"app/app.log", "dist", "secret"}
    assert (root / "node_modules/a/b.js").exists()
    assert (root / "app/app.log").exists()
    assert not (root / "app/keep.log").exists()


async def test_build_folder_depends_on_project_file(stage: Stage) -> None:
    """A folder whose rules change is neither added nor deleted with its files."""
    (stage.folder / "build").mkdir()
    (stage.folder / "build/kept.txt").write_text("x")
    assert await stage.turn("m1") == FileCounts(1, 0, 0)
    (stage.folder / "Makefile").write_text("all:\n")
    assert await stage.turn("m2") == FileCounts(1, 0, 0)
    (stage.folder / "Makefile").unlink()
    assert await stage.turn("m3") == FileCounts(0, 0, 1)
    await stage.undo("m3")
    assert (stage.folder / "build/kept.txt").exists()


async def test_large_file_is_never_deleted(stage: Stage) -> None:
    path = stage.folder / "documents/large.bin"
    with path.open("wb") as stream:
        stream.truncate(65 * 2**20)
    await stage.turn("m1")
    for over in ((), ("documents/large.bin",)):
        assert (await stage.undo("m1", over=over)).unkept == ["documents/large.bin"]
    assert path.exists()


async def test_contents_are_bounded_oldest_first(stage: Stage) -> None:
    stage.tracker.contents._limit = 250_000
    path = stage.folder / "documents/old.txt"
    for number in range(5):
        path.write_bytes(os.urandom(100_000))
        await stage.turn(f"m{number}")
    stored = list((stage.folder / ".os/undo").glob("??/*"))
    assert sum(each.stat().st_size for each in stored) <= 250_000
    assert (await stage.undo("m1", over=("documents/old.txt",))).unkept == ["documents/old.txt"]
    assert (await stage.undo("m4")).restored == ["documents/old.txt"]
    (stage.folder / "documents/huge.bin").write_bytes(os.urandom(240_000))
    await stage.turn("m9")
    assert (await stage.undoing.changes("m9")).files[0].kept is False


async def test_linked_folder_is_never_written_through(stage: Stage, tmp_path: Path) -> None:
    """The agent replaces a folder by a link that leads outside, after its turn and before the undo."""
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    folder = stage.folder / "documents/project"
    folder.mkdir()
    (folder / "file").write_text("old")
    await stage.turn("m1")
    (folder / "file").write_text("new")
    (folder / "other").write_text("new")
    await stage.turn("m2")
    for name in ("file", "other"):
        (folder / name).rename(outside / name)
    folder.rmdir()
    folder.symlink_to(outside)
    result = await stage.undo("m2", over=("documents/project",))
    assert "documents/project/file" in result.conflicts
    assert [(path.name, path.read_text()) for path in sorted(outside.iterdir())] == [("file", "new"), ("other", "new")]
    assert (await stage.turn("m3")) is not None
    assert all("outside" not in file.path for file in (await stage.undoing.changes("m3")).files)


async def test_repository_is_undone_as_a_whole(stage: Stage) -> None:
    git = stage.folder / "app/.git"
    git.mkdir(parents=True)
    (git / "HEAD").write_text("ref: main")
    await stage.turn("m1")
    (git / "HEAD").write_text("ref: agent")
    (git / "object").write_text("commit")
    assert await stage.turn("m2") == FileCounts(0, 1, 0)
    assert [file.path for file in (await stage.undoing.changes("m2")).files] == ["app/.git/"]
    (git / "HEAD").write_text("ref: person")
    result = await stage.undo("m2")
    assert (result.restored, result.conflicts) == ([], ["app/.git/"])
    assert (git / "object").exists()
    result = await stage.undo("m2", over=("app/.git/",))
    assert (result.restored, (git / "HEAD").read_text(), (git / "object").exists()) == (
        ["app/.git/"],
        "ref: main",
        False,
    )


async def test_folder_with_persons_file_stays(stage: Stage) -> None:
    folder = stage.folder / "documents/new"
    folder.mkdir()
    (folder / "agent.txt").write_text("agent")
    await stage.turn("m1")
    (folder / "mine.txt").write_text("person")
    result = await stage.undo("m1")
    assert (result.restored, result.conflicts) == (["documents/new/agent.txt"], [])
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


async def test_undo_is_logged_and_marks_turn(stage: Stage) -> None:
    (stage.folder / "documents/old.txt").write_text("x")
    await stage.turn("m1")
    first = await stage.undo("m1")
    assert await stage.workspace.file_changes.undos("m1") == [first.undo]
    with pytest.raises(PeerError, match="of turn zz"):
        await stage.undo("zz")
    await stage.undo("undo")
    assert await stage.workspace.file_changes.undos("m1") == []
    rows = await stage.transcript.curations.after(0)
    assert [row.kind for row in rows] == ["undo", "undo"]
    assert all("old.txt" not in row.response for row in rows)


async def test_turn_during_first_snapshot_has_no_changes(tmp_path: Path) -> None:
    async with opened(tmp_path) as stage:
        await stage.tracker.tool_began("t1", "Bash", {"command": "make"})
        (tmp_path / "documents/a.txt").write_text("a")
        await stage.tracker.snapshot()
        (tmp_path / "documents/late.txt").write_text("late")
        assert await stage.turn("m1") is None
        (tmp_path / "documents/b.txt").write_text("b")
        assert await stage.turn("m2") == FileCounts(1, 0, 0)


@pytest.mark.parametrize(
    ("pattern", "path", "is_folder", "ignored"),
    [
        ("*.pyc", "a/b.pyc", False, True),
        ("build/", "a/build", True, True),
        ("build/", "a/build", False, False),
        ("/build", "a/build", True, False),
        ("a/*.txt", "a/b.txt", False, True),
        ("a/*.txt", "a/b/c.txt", False, False),
        ("a/**/z", "a/z", False, True),
        ("a/**/z", "a/b/c/z", False, True),
        ("**/z", "a/b/z", False, True),
        ("# z", "# z", False, False),
        ("\\#z", "#z", False, True),
        ("*\n!b.txt", "a/b.txt", False, False),
        ("[ab].txt", "b.txt", False, True),
    ],
)
def test_ignore_patterns_match_as_in_git(pattern: str, path: str, *, is_folder: bool, ignored: bool) -> None:
    assert is_ignored((("", read_patterns(pattern.encode())),), path, is_folder=is_folder) is ignored


def test_hostile_ignore_pattern_is_matched_quickly() -> None:
    rules = (("", read_patterns(b"\n".join([b"*a" * 100 + b"b", b"**/a/" * 100 + b"b"]))),)
    began = time.process_time()
    assert not is_ignored(rules, "/".join(["a"] * 200), is_folder=False)
    assert not is_ignored(rules, "a" * 255, is_folder=False)
    assert time.process_time() - began < 1


async def test_edit_at_the_moment_of_undo_survives(stage: Stage) -> None:
    """The person's editor saves a file again and again while the agent's change of it is undone."""
    path = stage.folder / "documents/old.txt"
    for number in range(20):
        path.write_text(f"agent {number}")
        await stage.turn(f"m{number}")
        saved: list[str] = []
        stops = threading.Event()

        def save(saved: list[str] = saved, stops: threading.Event = stops) -> None:
            while not stops.is_set():
                draft = stage.folder / ".draft"
                draft.write_text(f"person {len(saved)}")
                draft.replace(path)
                saved.append(f"person {len(saved)}")

        editor = threading.Thread(target=save)
        editor.start()
        await stage.undo(f"m{number}")
        stops.set()
        editor.join()
        aside = path.with_name("old.txt.before-undo")
        found = {each.read_text() for each in (path, aside) if each.exists()}
        assert saved[-1] in found if saved else True
        aside.unlink(missing_ok=True)


async def test_turn_recorded_twice_is_one_set(stage: Stage) -> None:
    """A start after a kill records the killed turn again."""
    before = tree(stage.folder)
    (stage.folder / "documents/old.txt").write_text("first")
    (stage.folder / "documents/gone.txt").write_text("first")
    await stage.turn("m1")
    (stage.folder / "documents/old.txt").write_text("second")
    (stage.folder / "documents/gone.txt").unlink()
    assert await stage.turn("m1") == FileCounts(0, 1, 0)
    assert await stage.turn("m1") == FileCounts(0, 1, 0)
    await stage.undo("m1")
    assert tree(stage.folder) == before


async def test_forgotten_turn_loses_set_and_contents(stage: Stage) -> None:
    (stage.folder / "documents/old.txt").write_text("secret plan")
    await stage.turn("m1")
    undo = await stage.undo("m1")
    table, contents = stage.workspace.file_changes, stage.tracker.contents
    await table.forget({"m1"}, lambda _: False)
    contents.sweep(await table.wanted())
    assert [path.read_text() for path in (stage.folder / ".os/undo").glob("??/*")] == ["one\ntwo\n"]
    with pytest.raises(PeerError):
        await stage.undoing.changes(undo.undo)


async def test_forgotten_name_of_existing_file_leaves_trace(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    path = tmp_path / "documents/zorblat.txt"
    async with opened(tmp_path) as stage:
        path.write_text("one")
        await stage.turn("m1")
        await stage.workspace.file_changes.forget(set(), lambda name: "zorblat" in name)
        assert await stage.workspace.file_changes.paths() == {"documents", "artifacts", "extractions", "ocr", "skills"}
    path.write_text("two!")
    async with opened(tmp_path) as stage:
        assert await stage.turn("m2") == FileCounts(0, 1, 0)
        await stage.undo("m2")
    assert path.read_text() == "one"
