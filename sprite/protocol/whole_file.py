"""Atomic files: written to a temporary file, then renamed in one step."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, force: bool, error: Callable[[str], Exception]) -> Iterator[BinaryIO]:
    """Yield a new file, readable only by its owner; it appears complete when the block ends well, or not at all.

    Raises `error` with a text for people if the file exists without `force`, or cannot be written. The written data
    can be read in the block.
    """
    _refuse_existing(path, force=force, error=error)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    except OSError as fault:
        raise error(f"{path} cannot be written: {fault.strerror}.") from fault
    unfinished = Path(name)
    try:
        with os.fdopen(descriptor, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(descriptor)
        _refuse_existing(path, force=force, error=error)
        unfinished.replace(path)
        with contextlib.suppress(OSError):
            sync(path.parent)
    except OSError as fault:
        raise error(f"{path} could not be written ({fault.strerror}). Nothing was left behind.") from fault
    finally:
        unfinished.unlink(missing_ok=True)


def _refuse_existing(path: Path, *, force: bool, error: Callable[[str], Exception]) -> None:
    if path.is_dir():
        raise error(f"{path} is a folder: say which file to write, such as {path / 'sprite.zip'}.")
    if os.path.lexists(path) and not force:
        raise error(f"{path} is there already. Choose another name, or replace it with --force.")


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's names, to disk. Raises OSError on failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clear(folder: Path, keep: Collection[str] = ()) -> None:
    """Remove everything in one of our folders except regular files with these names."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in keep or path.is_symlink() or not path.is_file():
            path.unlink(missing_ok=True)
