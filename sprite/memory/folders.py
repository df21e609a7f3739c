"""The folders of a workspace: `.os/` for Sprite's files, and the person's folders."""

from __future__ import annotations

from pathlib import Path

from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.memory.files import AT_WORK, SHIPPED
from sprite.privacy.redaction import redact

#: File name in the folder of the running process.
LAST_ERROR = "last_error"


def note_error(run: Path, words: str | None) -> None:
    """Write an error to disk, or clear it if `words` is None. Errors of the disk are ignored."""
    try:
        # Remove a pipe, too: opening it would block.
        (run / LAST_ERROR).unlink(missing_ok=True)
        if words is not None:
            (run / LAST_ERROR).write_text(f"{redact(words)}\n", encoding="utf-8")
    except OSError:
        return


def last_error(run: Path) -> str | None:
    """Return the text of the last error, or None."""
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


def refuse_what_is_no_file(settings: Settings) -> None:
    """Raise OperatorError if a folder, pipe or device is in the place of one of our files.

    Opening a pipe would block. Memory files and memory.db are excluded: they are quarantined and restored.
    """
    databases = (settings.transcript_db, settings.memory_db, settings.workspace_db)
    files = [Path(f"{path}{suffix}") for path in databases for suffix in ("-wal", "-shm")]
    files += [settings.transcript_db, settings.workspace_db, settings.lock, settings.token_file, settings.address_file]
    files += [settings.boot_prompt, settings.run / LAST_ERROR, settings.memory / SHIPPED, settings.memory / AT_WORK]
    files += [settings.run / name for name in ("agent", "cli")]
    for path in files:
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "no file"
            raise OperatorError(f"{path} is {what}, and a file of Sprite's belongs there. Move it away.")
    for folder in (settings.run, settings.boot_files, settings.run / UPLOADS, settings.cli_state):
        _refuse_pipes(folder)


def _refuse_pipes(folder: Path) -> None:
    """Raise OperatorError if a folder contains a pipe or a device, because opening one may block for ever."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise OperatorError(f"{folder} is no folder, and one of Sprite's belongs there. Move it away.")
    for path in folder.iterdir():
        if path.is_fifo() or path.is_char_device() or path.is_block_device():
            raise OperatorError(f"{path} is a pipe or a device, and none belongs there. Move it away.")


def make_folders(settings: Settings) -> None:
    """Create missing folders. Raises OperatorError if the workspace is not writable or a file is in the way."""
    try:
        for folder in (settings.system, settings.memory, settings.run):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
        for folder in (settings.documents, *(settings.workspace / name for name in USER_FOLDERS)):
            folder.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise OperatorError(f"{error.filename} is no folder, and a folder belongs there. Move it away.") from error
    except OSError as error:
        raise OperatorError(
            f"The workspace {settings.workspace} cannot be written to ({error.strerror}). "
            "Choose another with --workspace DIR, or change its owner."
        ) from error
