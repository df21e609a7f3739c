"""Errors by blame: the peer's fault, the operator's to fix, or a dependency that is down. Any other one is a bug.

The docstring of a class is its default message, so that every error says what to do.
"""

from __future__ import annotations

import errno
import os

#: Errors of a machine without free descriptors, processes or memory. The condition may be temporary.
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
#: A library that cannot be loaded reports this only in its message.
_NO_DESCRIPTOR = os.strerror(errno.EMFILE)


class SpriteError(Exception):
    """Something went wrong in the sprite."""

    code = "internal"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class PeerError(SpriteError):
    """The other side sent an invalid message. It gets an error, and the connection stays open."""

    code = "bad_request"
    #: The `id` of the faulty message, if it could be read.
    reply_to: str | None = None

    def __init__(self, message: str | None = None, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class FatalPeerError(PeerError):
    """The other side broke the framing or the handshake. It gets an error, and the connection is closed."""

    code = "bad_frame"


class StaleOwnerError(FatalPeerError):
    """A bridge with a newer lease has used this sprite; `newest` is the epoch of that lease."""

    code = "stale_owner"

    def __init__(self, message: str, newest: int) -> None:
        super().__init__(message)
        self.newest = newest


class OperatorError(SpriteError):
    """The machine or the workspace has a problem that a person must fix. The process exits with 2."""

    code = "operator"


class WorkspaceLockedError(OperatorError):
    """Another sprite already owns this workspace. Stop it first, or choose another --workspace."""

    code = "workspace_locked"


class DatabaseUnusableError(OperatorError):
    """A database file is damaged, or belongs to another program. It was left untouched."""

    code = "database_unusable"


class MigrationPendingError(DatabaseUnusableError):
    """A database must be migrated or rebuilt; the next start of the sprite does that by itself."""


class StorageError(SpriteError):
    """The disk cannot be written to. Free some space or make it writable; no data was written in part."""

    code = "storage"


class ShortageError(SpriteError):
    """This computer has no room for more open files or processes at the moment. Nothing is lost; try again soon."""

    code = "shortage"


class ModelError(SpriteError):
    """The model could not be reached or refused the call."""

    code = "model"

    def __init__(self, message: str | None = None, *, retryable: bool = True, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after


class AgentError(SpriteError):
    """The agent's process could not be started or has died. `details` is its last output."""

    code = "agent"

    def __init__(self, message: str | None = None, details: str = "") -> None:
        super().__init__(message)
        self.details = details


def is_shortage(error: BaseException | None) -> bool:
    """Return whether the machine lacks resources, according to the error or one of its causes."""
    while error is not None:
        if isinstance(error, ShortageError) or (isinstance(error, OSError) and error.errno in _SHORTAGES):
            return True
        if isinstance(error, ImportError) and _NO_DESCRIPTOR in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
