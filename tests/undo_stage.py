"""A workspace with tracked files, random turns that change them, and the state of the whole tree."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sprite.config import PermissionMode, Settings
from sprite.log.transcript import TranscriptDB, open_transcript
from sprite.memory.folders import make_folders
from sprite.protocol.memory import UndoResult
from sprite.protocol.shapes import FileCounts
from sprite.undo.tracker import Tracker
from sprite.undo.undo import Undoing
from sprite.workspace.database import WorkspaceDB, open_workspace
from sprite.workspace.user_files import UserFiles

#: The state of a path: its mode with the type, and its content, the target of a link, or nothing for a folder.
Tree = dict[bytes, tuple[int, bytes]]
_LARGE = 2**20 + 7


@dataclass(frozen=True)
class Stage:
    """One workspace, opened in this process."""

    folder: Path
    workspace: WorkspaceDB
    transcript: TranscriptDB
    tracker: Tracker
    undoing: Undoing

    async def turn(self, name: str, *, is_live: bool = True) -> FileCounts | None:
        """End a turn of the agent, which may have changed everything if `is_live`."""
        return await self.tracker.turn_ended(name, is_live=is_live)

    async def undo(
        self, turn: str | None = None, paths: list[str] | None = None, over: tuple[str, ...] = ()
    ) -> UndoResult:
        return await self.undoing.undo(turn, paths, over)


@asynccontextmanager
async def opened(folder: Path, permissions: PermissionMode = "bypass") -> AsyncIterator[Stage]:
    """Open a workspace, with its first snapshot taken."""
    settings = Settings(workspace=folder, permissions=permissions)
    make_folders(settings)
    async with (
        open_workspace(settings.workspace_db) as workspace,
        open_transcript(settings.transcript_db) as transcript,
    ):
        tracker = Tracker(settings, workspace)
        undoing = Undoing(settings, workspace, transcript, tracker, UserFiles(folder, transcript))
        await tracker.load()
        await undoing.finish_interrupted()
        if await workspace.file_changes.since() is None:
            await tracker.snapshot()
        yield Stage(folder, workspace, transcript, tracker, undoing)


def tree(folder: Path) -> Tree:
    """Return the state of every path but `.os/` and pipes."""
    found: Tree = {}
    root = os.fsencode(folder)
    for top, folders, names in os.walk(root):
        if top == root:
            folders.remove(b".os")
        for name in [*folders, *names]:
            path = os.path.join(top, name)  # noqa: PTH118 - names need not be text
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode):
                with open(path, "rb") as stream:  # noqa: PTH123 - the same
                    content = stream.read()
            else:
                content = os.fsencode(Path(os.fsdecode(path)).readlink()) if stat.S_ISLNK(mode) else b""
            if not stat.S_ISFIFO(mode):
                found[os.path.relpath(path, root)] = (mode, content)
    return found


class RandomTurns:
    """Change a workspace at random, as an agent could."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._rng = random.Random(seed)  # noqa: S311 - no secret
        self._works: list[Callable[[Path], None]] = [
            *(self._write, self._write, self._write, self._append, self._remove, self._rename, self._rename_folder),
            *(
                self._make_folder,
                self._remove_folder,
                self._link,
                self._chmod,
                self._hard_link,
                self._swap,
                self._touch,
            ),
            self._pipe,
        ]

    def change(self, steps: int = 6) -> None:
        """Take some random steps."""
        for _ in range(self._rng.randint(1, steps)):
            with suppress(OSError):
                self._rng.choice(self._works)(self._new())

    def _folders(self) -> list[Path]:
        found = [Path(top) for top, _, _ in os.walk(self._folder / "documents")]
        return [self._folder, *(each for each in found if len(each.parts) < len(self._folder.parts) + 5)]

    def _new(self) -> Path:
        names = [
            "a",
            "b",
            "A",
            "notes.txt",
            "caf\u00e9",
            os.fsdecode(b"odd \xff name"),
            "x" * 250,
            "with\nline",
            "data.bin",
        ]
        return self._rng.choice(self._folders()) / self._rng.choice(names)

    def _old(self) -> Path:
        files = [path for folder in self._folders() for path in folder.iterdir() if path.is_file() or path.is_symlink()]
        if not files:
            raise FileNotFoundError
        return self._rng.choice(files)

    def _bytes(self) -> bytes:
        size = self._rng.choice([0, 1, 20, 5_000, 5_000, _LARGE if self._rng.random() < 0.1 else 100])
        if self._rng.random() < 0.5:
            return self._rng.randbytes(size)
        return f"line {self._rng.random()}\n".encode() * (size // 20 + 1)

    def _write(self, path: Path) -> None:
        if not path.is_symlink():
            path.write_bytes(self._bytes())

    def _append(self, _path: Path) -> None:
        if not (path := self._old()).is_symlink():
            with path.open("ab") as stream:
                stream.write(self._bytes())

    def _remove(self, _path: Path) -> None:
        self._old().unlink()

    def _rename(self, path: Path) -> None:
        self._old().rename(path)

    def _rename_folder(self, path: Path) -> None:
        folder = self._rng.choice(self._folders()[1:])
        if folder.name != "documents" and not path.is_relative_to(folder) and not os.path.lexists(path):
            folder.rename(path)

    def _make_folder(self, path: Path) -> None:
        path.mkdir()
        (path / "inside").write_bytes(self._bytes())

    def _remove_folder(self, _path: Path) -> None:
        folder = self._rng.choice(self._folders()[1:])
        if folder.name != "documents":
            shutil.rmtree(folder)

    def _link(self, path: Path) -> None:
        path.symlink_to(self._rng.choice(["/etc", "/etc/hostname", "documents", "gone", "../..", "a"]))

    def _chmod(self, _path: Path) -> None:
        path = self._rng.choice([*self._folders()[1:], self._old()])
        if not path.is_symlink():
            path.chmod(self._rng.choice([0o600, 0o644, 0o755, 0o500, 0o400]) | (0o700 if path.is_dir() else 0))

    def _hard_link(self, path: Path) -> None:
        old = self._old()
        if not old.is_symlink():
            path.hardlink_to(old)

    def _swap(self, _path: Path) -> None:
        """Replace a file by a folder, or a folder by a file."""
        if self._rng.random() < 0.5:
            (path := self._old()).unlink()
            self._make_folder(path)
        else:
            folder = self._rng.choice(self._folders()[1:])
            self._remove_folder(folder)
            if not folder.exists():
                folder.write_bytes(self._bytes())

    def _touch(self, _path: Path) -> None:
        self._old().touch()

    def _pipe(self, _path: Path) -> None:
        os.mkfifo(self._folder / f"pipe-{self._rng.random()}")
