"""The project of a folder: the root of its git repository; all worktrees share the main one's root.

Only files are read. Running git would be unsafe: session logs name arbitrary folders, and git executes their settings.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from sprite.errors import PeerError
from sprite.protocol.observing import project_key

#: A `.git` file and each file that it points to hold one line.
_MAX_LINK_BYTES = 4096
#: No real path is deeper.
_MAX_PARENTS = 256


def project_of(folder: Path) -> str:
    """Return the root of a folder's repository, or the folder itself; it need not exist on this machine.

    A worktree belongs to its repository, a submodule is its own. An invalid `.git` is ignored: neither file nor folder,
    or naming a repository that does not name it in return.
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
    """Map the folders of a log to projects. The user's own memory and the sprite's workspace map to None."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = Path(os.path.realpath(workspace))

    def of(self, folder: Any) -> str | None:
        """Return the project key of a folder named in a session log, or None if the folder is unusable."""
        if not isinstance(folder, str):
            return None
        try:
            # A folder of another machine, such as one with a drive letter, is used as it stands.
            key = project_key(project_of(Path(folder)) if folder.startswith("/") else folder)
        except PeerError:
            return None
        # The workspace may lie inside a repository. A repository cloned into the workspace is a project.
        is_around = self._workspace.is_relative_to(key)
        return None if is_around and Path(os.path.realpath(folder)).is_relative_to(self._workspace) else key


def _is_repository(folder: Path) -> bool:
    return (folder / "HEAD").is_file()


def _root_by_file(git: Path) -> Path | None:
    """Return the root for a `.git` file: the repository of a worktree, else the file's folder."""
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
    # Any folder can name a repository. Only a real worktree is named in return.
    if common is None or known_as is None or _joined(folder, known_as) != git or not _is_repository(common):
        return None
    return common.parent if common.name == ".git" else common


def _joined(folder: Path, path: str) -> Path | None:
    try:
        return Path(os.path.realpath(folder / path)) if path else None
    except (OSError, ValueError):
        return None


def _line(path: Path) -> str | None:
    """Return the one line of a small regular file, or None. A pipe would block, a device would never end."""
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
