"""The folders of a workspace, and the project of any folder.

A project is the root of a git repository; all worktrees share the main one's root. Only files are read. Running git
would be unsafe: session logs name arbitrary folders, and git executes their settings.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sprite import __version__
from sprite.common.locks import LockHeldError, held
from sprite.common.sqlite import RefusedFileError
from sprite.common.versions import back_up_before
from sprite.config import Settings
from sprite.errors import OperatorError, PeerError, WorkspaceLockedError
from sprite.memory.files import AT_WORK, SHIPPED
from sprite.privacy.redaction import redact
from sprite.protocol.observing import project_key

#: File name in the folder of the running process.
LAST_ERROR = "last_error"


def note_error(run: Path, words: str | None) -> None:
    """Save the text of Sprite's last error in a file, or delete it if `words` is None. Ignore errors of the disk."""
    try:
        # Remove a pipe, too: opening it would block.
        (run / LAST_ERROR).unlink(missing_ok=True)
        if words is not None:
            (run / LAST_ERROR).write_text(f"{redact(words)}\n", encoding="utf-8")
    except OSError:
        return


def last_error(run: Path) -> str | None:
    """Return the text of Sprite's last error, or None."""
    if not (run / LAST_ERROR).is_file():
        return None
    try:
        return (run / LAST_ERROR).read_text(encoding="utf-8", errors="replace").strip() or None
    except FileNotFoundError:
        return None


#: Folder for unfinished uploads, in `.os/run/`.
UPLOADS = "uploads"
#: The person's folders beside `.os/` and `documents/`.
USER_FOLDERS = ("ocr", "extractions", "artifacts", "skills")


def refuse_links(settings: Settings) -> None:
    """Raise OperatorError if a folder of Sprite is a link: files that Sprite deletes there would be somebody else's."""
    for folder in (
        settings.system,
        settings.memory,
        settings.run,
        settings.cli_state,
        settings.boot_files,
        settings.backup,
    ):
        if folder.is_symlink():
            raise OperatorError(f"{folder} is a link, but must be a folder of Sprite. Move it away.")


def refuse_what_is_no_file(settings: Settings) -> None:
    """Raise OperatorError if one of Sprite's files or folders is something else, such as a link, pipe or device.

    Opening a pipe would block. Memory files and memory.db are excluded: they are quarantined and restored.
    """
    refuse_links(settings)
    databases = (settings.transcript_db, settings.memory_db, settings.workspace_db)
    files = [Path(f"{path}{suffix}") for path in databases for suffix in ("-wal", "-shm")]
    files += [settings.transcript_db, settings.workspace_db, settings.lock, settings.token_file, settings.address_file]
    files += [settings.boot_prompt, settings.run / LAST_ERROR, settings.memory / SHIPPED, settings.memory / AT_WORK]
    files += [settings.run / name for name in ("agent", "cli")]
    for path in files:
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "no file"
            raise OperatorError(f"{path} is {what}, but must be a file of Sprite. Move it away.")
    for folder in (settings.run, settings.boot_files, settings.run / UPLOADS, settings.cli_state):
        _refuse_pipes(folder)


def _refuse_pipes(folder: Path) -> None:
    """Raise OperatorError if a folder contains a pipe or a device, because opening one may block for ever."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise OperatorError(f"{folder} is not a folder, but must be one of Sprite's. Move it away.")
    for path in folder.iterdir():
        if path.is_fifo() or path.is_char_device() or path.is_block_device():
            raise OperatorError(f"{path} is a pipe or a device, which must not be there. Move it away.")


def make_folders(settings: Settings) -> None:
    """Create Sprite's missing folders. Raise OperatorError if the workspace is not writable or a file is in the way."""
    refuse_links(settings)
    try:
        for folder in (settings.system, settings.memory, settings.run):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
        for folder in (settings.documents, *(settings.workspace / name for name in USER_FOLDERS)):
            folder.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise OperatorError(f"{error.filename} is not a folder, but must be one. Move it away.") from error
    except OSError as error:
        raise OperatorError(
            f"The workspace {settings.workspace} cannot be written to ({error.strerror}). "
            "Choose another with --workspace DIR, or change its owner."
        ) from error


@contextmanager
def workspace_lock(settings: Settings, *, briefly: bool = False) -> Iterator[None]:
    """Lock the workspace while the block runs: the lock file and the databases' folder.

    With `briefly`, other processes wait for the lock instead of failing. The lock on the folder holds even if the
    lock file is deleted or a database is restored beside its owner. The first owner of a new version backs up the
    log and the chat; memory.db derives from the log.

    Raises WorkspaceLockedError with the owner's process id if another process holds the lock, OperatorError if the
    workspace cannot be locked or backed up.
    """
    path, databases = settings.lock, settings.memory
    with ExitStack() as stack:
        try:
            for folder in (path.parent, databases):
                # A workspace that was restored from a backup may contain only its memory.
                folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(path, databases, briefly=briefly))
        except OSError as error:
            raise OperatorError(
                f"The workspace cannot be locked: {error.filename or path}: {error.strerror}. Move away the file "
                "or folder in its place, or change its owner."
            ) from error
        except LockHeldError as error:
            raise WorkspaceLockedError(
                f"Another sprite (process {error.owner}) already owns {settings.workspace}. "
                "Stop it first, or choose another --workspace."
            ) from error
        try:
            kept = (settings.transcript_db, settings.workspace_db)
            back_up_before(__version__, settings.system / "data-version", kept, settings.backup)
        except RefusedFileError as error:
            raise OperatorError(str(error)) from error
        yield


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
