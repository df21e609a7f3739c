"""Workspace lock: wait for a short holder, and name a long one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sprite.config import Settings
from sprite.errors import WorkspaceLockedError
from sprite.memory.folders import workspace_lock


def test_short_lock_holder_is_awaited(workspace: Path) -> None:
    settings = Settings(workspace)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with workspace_lock(settings, briefly=True):
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    threading.Timer(0.2, done.set).start()
    with workspace_lock(settings):
        assert done.is_set()
    holder.join()


def test_long_lock_holder_is_named_after_short_one(workspace: Path) -> None:
    settings = Settings(workspace)
    with workspace_lock(settings, briefly=True):
        pass
    with (
        workspace_lock(settings),
        pytest.raises(WorkspaceLockedError, match=r"process \d+\) already owns"),
        workspace_lock(settings),
    ):
        pass
