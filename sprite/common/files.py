"""Atomic files: written to a temporary file, then renamed in one step."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

#: Suffix of an unfinished file. A killed process leaves it behind.
PART: Final = ".part"


@contextmanager
def replacing(path: Path, *, is_synced: bool = True) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` when the block ends without an error, and is deleted otherwise.

    Only its owner can read it. The block can read what it wrote. With `is_synced` the file survives a power cut.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=PART, dir=path.parent)
    try:
        with os.fdopen(descriptor, "w+b") as stream:
            yield stream
            stream.flush()
            if is_synced:
                os.fsync(descriptor)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def replace_file(path: Path, content: bytes, *, is_synced: bool = True) -> None:
    """Write a file atomically, readable only by its owner."""
    with replacing(path, is_synced=is_synced) as stream:
        stream.write(content)


@contextmanager
def whole_file(path: Path, *, force: bool, error: Callable[[str], Exception]) -> Iterator[BinaryIO]:
    """Yield a new file as `replacing` does. Raises `error` if `path` exists without `force`, or cannot be written."""
    _refuse_existing(path, force=force, error=error)
    try:
        with replacing(path) as stream:
            yield stream
            _refuse_existing(path, force=force, error=error)
        with contextlib.suppress(OSError):
            sync(path.parent)
    except OSError as fault:
        raise error(f"{path} cannot be written ({fault.strerror}). Nothing was left behind.") from fault


def _refuse_existing(path: Path, *, force: bool, error: Callable[[str], Exception]) -> None:
    if path.is_dir():
        raise error(f"{path} is a folder: say which file to write, such as {path / 'sprite.zip'}.")
    if os.path.lexists(path) and not force:
        raise error(f"{path} exists already. Choose another name, or replace it with --force.")


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's names, to disk. Raises OSError on failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clear(folder: Path, keep: Collection[str] = ()) -> None:
    """Delete everything in one of Sprite's own folders except regular files with the names in `keep`."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in keep or path.is_symlink() or not path.is_file():
            path.unlink(missing_ok=True)
