"""Of which project a folder is: the root of its git repository, that of the main worktree for every worktree of it.

Only files are read, and no git is run: a session's log names folders of anybody, and git obeys what stands in them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from sprite.errors import PeerError
from sprite.protocol.projects import project_key

#: A `.git` file and what it leads to are one line each.
_MAX_LINK_BYTES = 4096
#: A path has fewer parts on every system.
_MAX_PARENTS = 256


def project_of(folder: Path) -> str:
    """Returns the project of a folder, which need not be on this machine: its repository's root, else the folder.

    Worktrees belong to their repository, submodules are repositories of their own. A `.git` that cannot be believed
    (it names a repository that does not know it, it is no file or folder) counts for nothing.
    """
    try:
        here = Path(os.path.realpath(folder))
    except (OSError, ValueError):
        return str(folder)
    for parent in (here, *here.parents)[:_MAX_PARENTS]:
        git = parent / ".git"
        try:
            mode = git.stat().st_mode
        except (OSError, ValueError):
            continue
        if stat.S_ISDIR(mode) and _is_repository(git):
            return str(parent)
        root = _root_by_file(git) if stat.S_ISREG(mode) else None
        if root is not None:
            return str(root)
    return str(here)


class Projects:
    """Projects as a log knows them: None for the person's own, of which the sprite's own workspace is, too."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = Path(os.path.realpath(workspace))

    def of(self, folder: Any) -> str | None:
        """Returns the project of a folder as a session's log names it; None, too, where that names none."""
        if not isinstance(folder, str):
            return None
        try:
            # Of another machine, as its drive says, it is taken as it is.
            key = project_key(project_of(Path(folder)) if folder.startswith("/") else folder)
        except PeerError:
            return None
        # The workspace may itself stand in somebody's repository; one that was cloned into it is a project.
        is_around = self._workspace.is_relative_to(key)
        return None if is_around and Path(os.path.realpath(folder)).is_relative_to(self._workspace) else key


def _is_repository(folder: Path) -> bool:
    return (folder / "HEAD").is_file()


def _root_by_file(git: Path) -> Path | None:
    """Returns the root that a `.git` file stands for: a worktree's repository, or for any other the file's folder."""
    said = _line(git)
    if said is None or not said.startswith("gitdir:"):
        return None
    folder = _joined(git.parent, said.removeprefix("gitdir:").strip())
    if folder is None or not _is_repository(folder):
        return None
    shared = _line(folder / "commondir")
    if shared is None:
        return git.parent
    common = _joined(folder, shared)
    known_as = _line(folder / "gitdir")
    # Anybody's folder can name a repository; only that of a worktree's own names the worktree in return.
    if common is None or known_as is None or _joined(folder, known_as) != git or not _is_repository(common):
        return None
    return common.parent if common.name == ".git" else common


def _joined(folder: Path, path: str) -> Path | None:
    try:
        return Path(os.path.realpath(folder / path)) if path else None
    except (OSError, ValueError):
        return None


def _line(path: Path) -> str | None:
    """Returns the one line of a small file, or None: a pipe would be waited for, and a device has no end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            line = file.read(_MAX_LINK_BYTES + 1)
    except (OSError, ValueError):
        return None
    if len(line) > _MAX_LINK_BYTES or b"\0" in line:
        return None
    return os.fsdecode(line).strip()
