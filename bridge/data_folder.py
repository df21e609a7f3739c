"""The bridge's data folder: what it must look like, and that one bridge owns it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridge.config import Settings
from bridge.errors import OperatorError
from bridge.locks import is_held


class FolderTakenError(OperatorError):
    """Another bridge runs on this data folder."""


@contextmanager
def owned(settings: Settings) -> Iterator[None]:
    """Make what is missing of the folder, and own it while the block runs.

    FolderTakenError when another bridge does, OperatorError when the folder cannot be written to. The kernel drops the
    lock with the process, so a killed bridge leaves nothing to clean up.
    """
    try:
        settings.run.mkdir(parents=True, exist_ok=True)
        settings.run.chmod(0o700)
        descriptor = os.open(settings.run / "bridge.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OperatorError(
            f"The data folder {settings.data} cannot be written to ({error.strerror}). Choose another with --data DIR, "
            "or change its owner."
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise FolderTakenError(
                f"Another bridge (process {owner}) already runs on {settings.data}. Stop it first, or choose another "
                "--data."
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def is_taken(settings: Settings) -> bool:
    """Whether a bridge owns the folder right now."""
    return is_held(settings.run / "bridge.lock")


def write_address(run: Path, url: str) -> None:
    """Note where the bridge listens; kept after its end, since links are made then, too."""
    (run / "address").write_text(f"{url}\n")


def last_address(run: Path) -> str | None:
    """Where the bridge listened last."""
    try:
        return (run / "address").read_text().strip() or None
    except OSError:
        return None
