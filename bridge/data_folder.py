"""The bridge's data folder: what it must look like, and that one bridge owns it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bridge.config import Settings
from bridge.errors import OperatorError
from bridge.locks import LockHeldError, held, is_held


class FolderTakenError(OperatorError):
    """Another bridge runs on this data folder."""


@contextmanager
def owned(settings: Settings) -> Iterator[None]:
    """Makes what is missing of the folder, and owns it while the block runs.

    FolderTakenError when another bridge does, OperatorError when the folder cannot be written to.
    """
    with ExitStack() as stack:
        try:
            settings.run.mkdir(parents=True, exist_ok=True)
            settings.run.chmod(0o700)
            stack.enter_context(held(_lock(settings)))
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
    """Whether a bridge owns the folder right now."""
    return is_held(_lock(settings))


def write_address(run: Path, url: str) -> None:
    """Notes where the bridge listens; kept after its end, since links are made then, too."""
    _address(run).write_text(f"{url}\n")


def last_address(run: Path) -> str | None:
    """Where the bridge listened last."""
    try:
        return _address(run).read_text().strip() or None
    except OSError:
        return None


def _lock(settings: Settings) -> Path:
    return settings.run / "bridge.lock"


def _address(run: Path) -> Path:
    return run / "address"
