"""The bridge's data folder: its creation, its lock and the bridge's last address."""

import logging
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bridge.config import Settings
from bridge.errors import OperatorError
from sprite.common import own_secrets
from sprite.common.files import replace_file
from sprite.common.locks import LockHeldError, held, is_held

_LOCK, _ADDRESS = "bridge.lock", "address"


class FolderTakenError(OperatorError):
    """Another bridge runs on this data folder."""


@contextmanager
def owned(settings: Settings) -> Iterator[None]:
    """Create what is missing of the data folder and own it while the block runs.

    Raises FolderTakenError if another bridge owns it and OperatorError if it is not writable.
    """
    with ExitStack() as stack:
        try:
            settings.run.mkdir(parents=True, exist_ok=True)
            settings.run.chmod(0o700)
            stack.enter_context(held(settings.run / _LOCK, settings.run))
        except OSError as error:
            raise OperatorError(
                f"The data folder {settings.data} cannot be written to ({error.strerror}). Choose another with "
                "--data DIR, or change its owner."
            ) from error
        except LockHeldError as error:
            raise FolderTakenError(
                f"Another bridge (process {error.owner}) already runs on {settings.data}. Stop it first "
                "(`chat` may have started it), or choose another --data."
            ) from error
        yield


def is_taken(settings: Settings) -> bool:
    """Return whether a bridge owns the folder right now."""
    return is_held(settings.run / _LOCK)


def write_address(run: Path, url: str) -> None:
    """Store the bridge's URL. It stays after shutdown, because commands create links offline, too."""
    (run / _ADDRESS).write_text(f"{url}\n")


def last_address(run: Path) -> str | None:
    """Return the bridge's last URL, or None."""
    try:
        return (run / _ADDRESS).read_text().strip() or None
    except OSError:
        return None


def operator_token(settings: Settings) -> str:
    """Return the token for `/metrics`, from a file which the first start creates."""
    path = settings.run / "operator-token"
    if not path.exists():
        replace_file(path, f"{secrets.token_urlsafe(32)}\n".encode())
    token = path.read_text().strip()
    own_secrets.hold(token)
    return token


log = logging.getLogger(__name__)

_EXPLANATION = "# Where the Claude Code plugin finds this machine's memory. The bridge writes this when it starts."


def leave(note: Path, workspace: Path, code: Path, *, takes_over: bool) -> None:
    """Write the note that tells programs on this machine where the memory is.

    A note that names another existing workspace is replaced only with `takes_over`. A failed write is only logged.
    """
    values = {"workspace": str(workspace), "python": sys.executable, "code": str(code)}
    if any("\n" in value for value in values.values()):
        log.warning("the Claude Code plugin is not told where memory is: there is a line break in %r", values)
        return
    try:
        named = _workspace(note)
        if named not in {None, workspace} and not takes_over:
            return
        text = "".join(f"{line}\n" for line in (_EXPLANATION, *(f"{k}={v}" for k, v in values.items())))
        note.parent.mkdir(parents=True, exist_ok=True)
        replace_file(note, text.encode(errors="surrogateescape"))
    except OSError as error:
        log.warning(
            "the Claude Code plugin is not told where memory is: %s cannot be written (%s)", note, error.strerror
        )


def _workspace(note: Path) -> Path | None:
    """Return the workspace that a note names, if it still exists."""
    try:
        lines = note.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return None
    named = next((Path(line.partition("=")[2]) for line in lines if line.startswith("workspace=")), None)
    return named if named is not None and named.is_dir() else None
