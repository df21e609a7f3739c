"""The single-owner lock of a workspace: one process writes its databases, a second one is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sprite.common.locks import LockHeldError, held
from sprite.errors import OperatorError, WorkspaceLockedError


@contextmanager
def workspace_lock(path: Path, databases: Path, *, briefly: bool = False) -> Iterator[None]:
    """Hold the lock file and the databases' folder; `briefly` tells others to wait.

    The lock on the folder holds even if the lock file is deleted or a database is restored beside its owner.

    Raises WorkspaceLockedError with the owner's process id if another process holds them, OperatorError if they
    cannot be opened.
    """
    with ExitStack() as stack:
        try:
            for folder in (path.parent, databases):
                # A workspace that was restored from a backup may contain only its memory.
                folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(path, databases, briefly=briefly))
        except OSError as error:
            raise OperatorError(
                f"The workspace cannot be locked: {error.filename or path}: {error.strerror}. "
                "Move away what stands in the way, or change its owner."
            ) from error
        except LockHeldError as error:
            raise WorkspaceLockedError(
                f"Another sprite (process {error.owner}) already owns {path.parent.parent.parent}. "
                "Stop it first, or choose another --workspace."
            ) from error
        yield
