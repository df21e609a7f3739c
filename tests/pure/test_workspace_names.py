"""What the sprite and its hosts call the same files."""

from __future__ import annotations

from pathlib import Path

from bridge.hosts import workspace
from sprite.config import Settings
from sprite.folders import USER_FOLDERS


def test_a_host_looks_for_the_sprites_files_where_the_sprite_keeps_them() -> None:
    sprite = Settings(Path("/w"))
    system = sprite.workspace / workspace.SYSTEM
    assert system == sprite.system
    assert [system / name for name in (workspace.LOCK, workspace.TOKEN, workspace.ADDRESS, workspace.MEMORY)] == [
        sprite.lock,
        sprite.token_file,
        sprite.address_file,
        sprite.memory,
    ]
    assert (system / workspace.CHAT_HISTORY).parent == sprite.run
    assert {sprite.documents.name, *USER_FOLDERS} >= workspace.SHARED_FOLDERS
