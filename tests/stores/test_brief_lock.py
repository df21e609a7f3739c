"""Who has the workspace for a moment is waited for; who has it for long is named."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sprite.errors import WorkspaceLockedError
from sprite.storage.connection import workspace_lock


def test_who_holds_it_briefly_is_waited_for(workspace: Path) -> None:
    lock, databases = workspace / ".os/run/lock", workspace / ".os/memory"
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with workspace_lock(lock, databases, briefly=True):
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    threading.Timer(0.2, done.set).start()
    with workspace_lock(lock, databases):
        assert done.is_set()
    holder.join()


def test_who_holds_it_for_long_is_named_also_after_somebody_held_it_briefly(workspace: Path) -> None:
    lock, databases = workspace / ".os/run/lock", workspace / ".os/memory"
    with workspace_lock(lock, databases, briefly=True):
        pass
    with (
        workspace_lock(lock, databases),
        pytest.raises(WorkspaceLockedError, match=r"process \d+\) already owns"),
        workspace_lock(lock, databases),
    ):
        pass
