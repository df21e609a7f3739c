"""The bridge's data folder: its creation, its lock and the bridge's last address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bridge.config import Settings
from bridge.errors import OperatorError
from sprite.common.locks import LockHeldError, held, is_held


class FolderTakenError(OperatorError):
    """Another bridge runs on this data folder."""


@contextmanager
def owned(settings: Settings) -> Iterator[None]:
    """Create what is missing of the folder and own it while the block runs.

    Raises FolderTakenError if another bridge owns it and OperatorError if it is not writable.
    """
    with ExitStack() as stack:
        try:
            settings.run.mkdir(parents=True, exist_ok=True)
            settings.run.chmod(0o700)
            stack.enter_context(held(_lock(settings), settings.run))
        except OSError as error:
            raise OperatorError(
                f"The data folder {settings.data} cannot be written to ({error.strerror}). Choose another with "
                "--data DIR, or change its owner."
            ) from error
        except LockHeldError as error:
            raise FolderTakenError(
                f"Another bridge (process {error.owner}) already runs on {settings.data}. Stop it first, or choose "
                "another --data."
            ) from error
        yield


def is_taken(settings: Settings) -> bool:
    """Return whether a bridge owns the folder right now."""
    return is_held(_lock(settings))


def write_address(run: Path, url: str) -> None:
    """Store the bridge's URL. It stays after shutdown, because commands create links offline, too."""
    _address(run).write_text(f"{url}\n")


def last_address(run: Path) -> str | None:
    """Return the bridge's last URL, or None."""
    try:
        return _address(run).read_text().strip() or None
    except OSError:
        return None


def _lock(settings: Settings) -> Path:
    return settings.run / "bridge.lock"


def _address(run: Path) -> Path:
    return run / "address"
