"""Errors by blame: the peer's fault, the operator's to fix, or a dependency that is down.

Everything else that is raised is a bug of ours and travels as the exception it is. The docstring of a
class is its default message, so that no error is ever silent about what to do.
"""

from __future__ import annotations


class SpriteError(Exception):
    """Something went wrong in the sprite."""

    code = "internal"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class PeerError(SpriteError):
    """The other side sent something that cannot be used; it is told, and the connection lives on."""

    code = "bad_request"
    #: The `id` of the message at fault, where it could be read.
    reply_to: str | None = None

    def __init__(self, message: str | None = None, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class FatalPeerError(PeerError):
    """The other side broke the framing or the handshake; it is told, and the connection is closed."""

    code = "bad_frame"


class OperatorError(SpriteError):
    """The machine or the workspace is not as it must be; a person has to act. The process exits with 2."""

    code = "operator"


class WorkspaceLockedError(OperatorError):
    """Another sprite already owns this workspace. Stop it first, or choose another --workspace."""

    code = "workspace_locked"


class DatabaseUnusableError(OperatorError):
    """A database file is damaged or is not ours. It was left untouched."""

    code = "database_unusable"


class StorageError(SpriteError):
    """The disk refuses to be written to. Free some space or make it writable; nothing was half-written."""

    code = "storage"


class ModelError(SpriteError):
    """The model could not be reached or refused the call."""

    code = "model"

    def __init__(
        self,
        message: str | None = None,
        *,
        retryable: bool = True,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after


class AgentError(SpriteError):
    """The agent's process could not be started or has died."""

    code = "agent"
