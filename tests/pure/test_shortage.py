"""Errors of an exhausted machine (files, processes): distinguished from bugs, and explained."""

from __future__ import annotations

import errno
import os

import pytest

from sprite.agent.mission_end import failed
from sprite.errors import AgentError, StorageError, is_shortage


def _raised_for(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


FULL = OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/workspace/.os/run/boot.md")


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        BlockingIOError(errno.EAGAIN, "fork"),
        ImportError("libx.so: cannot open shared object file: Too many open files"),
        _raised_for(AgentError("The agent's process would not start: [Errno 24]"), _raised_for(RuntimeError(), FULL)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_shortage_fails_mission_with_reason_and_retry(error: Exception) -> None:
    end = failed("m1", error)
    assert (end.code, end.retryable) == ("shortage", True)
    assert "open files or processes" in end.message
    assert "/workspace" not in end.message


@pytest.mark.parametrize(
    ("error", "code"),
    [(ValueError("ours"), "internal"), (OSError(errno.ENOENT, "none"), "internal"), (StorageError(), "storage")],
)
def test_other_error_is_reported_unchanged(error: Exception, code: str) -> None:
    assert not is_shortage(error)
    assert failed("m1", error).code == code
