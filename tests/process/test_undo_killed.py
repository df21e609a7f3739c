"""Kills at every step of recording a turn's file changes and of undoing them: nothing is lost."""

from __future__ import annotations

import os
import shutil
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.forking import fork_module
from tests.undo_stage import Tree, opened, tree

#: Kill at every step instead of the first of each kind.
IS_CAMPAIGN = "SOAK_KILLS" in os.environ


async def child(folder: Path, action: str, step: int) -> tuple[int, list[str]]:
    process = await fork_module("tests.undo_child", str(folder), action, str(step), env=dict(os.environ), stdout=PIPE)
    assert process.stdout is not None
    printed = (await process.stdout.read()).decode().splitlines()
    return await process.wait(), printed


def change(folder: Path) -> None:
    """Change, add, delete and replace files, links, folders and modes."""
    documents = folder / "documents"
    (documents / "a.txt").write_text("new a")
    (documents / "b.txt").unlink()
    (documents / "c.txt").write_bytes(b"c" * 2**20)
    (documents / "mode.sh").chmod(0o755)
    (documents / "link").unlink()
    (documents / "link").symlink_to("elsewhere")
    shutil.rmtree(documents / "folder")
    (documents / "folder").write_text("now a file")
    (documents / "file").unlink()
    (documents / "file").mkdir()
    (documents / "file/x").write_text("x")
    (documents / "kept").chmod(0o700)


async def prepared(folder: Path) -> tuple[Tree, Tree]:
    """Make a workspace with a snapshot; return its tree before and after the changes of a turn."""
    documents = folder / "documents"
    for name in ("folder", "kept"):
        (documents / name).mkdir(parents=True)
    for name in ("a.txt", "b.txt", "mode.sh", "folder/y", "file", "kept/z"):
        (documents / name).write_text(name)
    (documents / "link").symlink_to("a.txt")
    async with opened(folder):
        before = tree(folder)
    change(folder)
    return before, tree(folder)


def steps_of(kinds: list[str]) -> list[int]:
    return [at + 1 for at, kind in enumerate(kinds) if IS_CAMPAIGN or kind not in kinds[:at]]


@pytest.mark.parametrize("action", ["turn", "undo"])
async def test_kill_at_any_step_loses_nothing(action: str, tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    before, after = await prepared(first)
    if action == "undo":
        async with opened(first) as stage:
            await stage.turn("m1")
    whole = shutil.copytree(first, tmp_path / "whole", symlinks=True)
    code, kinds = await child(whole, action, 0)
    assert code == 0
    assert {"os.rename", "open"} <= set(kinds)
    for step in steps_of(kinds):
        folder = shutil.copytree(first, tmp_path / f"step {step}", symlinks=True)
        code, _ = await child(folder, action, step)
        assert code < 0, (step, kinds[step - 1])
        async with opened(folder) as stage:
            # A start completes an undo that was planned.
            is_undone = await stage.workspace.file_changes.undos("m1") != []
            assert tree(folder) == (before if is_undone else after), (step, kinds[step - 1])
            logged = [row.kind for row in await stage.transcript.curations.after(0)]
            assert logged == ["undo"] * is_undone
            if not is_undone:
                await stage.turn("m1")
                result = await stage.undo("m1")
                assert not result.conflicts + result.unkept
                assert tree(folder) == before, (step, kinds[step - 1])
            assert list((folder / ".os/undo/aside").iterdir()) == []
            newest = await stage.undoing.changes("m1")
            assert (newest.undone_by is None, len(newest.files)) == (False, 9)
        shutil.rmtree(folder)
