"""Back up databases before another version of the program opens them for the first time."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from sprite.common.files import replace_file
from sprite.common.sqlite import BUSY_TIMEOUT_MS, RefusedFileError


def back_up_before(
    version: str, stamp: Path, databases: Iterable[Path], backup: Path, *, emptied: Iterable[str] = ()
) -> None:
    """Copy the databases to the folder `backup` if the file `stamp` names another version; then write `version` to it.

    The copy replaces that of an earlier version. In the copy, the tables in `emptied` have no rows. The caller owns
    the databases. Raises RefusedFileError if the copy fails.
    """
    last = stamp.read_text(errors="replace").strip() if stamp.is_file() else version
    if last != version:
        try:
            _copy([path for path in databases if path.is_file()], backup, tuple(emptied))
        except (OSError, sqlite3.Error) as error:
            raise RefusedFileError(
                f"The backup before the first start of version {version} failed ({error}). Nothing was changed. Make "
                f"room for the backup, start version {last} again, or delete {stamp} to start without a backup."
            ) from error
    if last != version or not stamp.is_file():
        replace_file(stamp, f"{version}\n".encode())


def _copy(databases: Iterable[Path], backup: Path, emptied: Iterable[str]) -> None:
    unfinished = backup.with_name(f"{backup.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    for path in databases:
        with (
            closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_MS / 1000)) as source,
            closing(sqlite3.connect(unfinished / path.name, isolation_level=None)) as copy,
        ):
            source.backup(copy)
            for table in emptied:
                copy.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own tables
            if emptied:
                copy.execute("VACUUM")
    shutil.rmtree(backup, ignore_errors=True)
    unfinished.rename(backup)
