"""The lock of the bridge's data folder: one owner, even if the lock file is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from sprite.common.locks import LockHeldError, held, is_held


@pytest.mark.parametrize("damage", ["none", "deleted", "replaced"])
def test_folder_has_one_owner_despite_replaced_lock(tmp_path: Path, damage: str) -> None:
    lock = tmp_path / "bridge.lock"
    assert not is_held(lock)
    with held(lock, tmp_path):
        if damage != "none":
            lock.unlink()
        if damage == "replaced":
            lock.write_text("1\n")
        assert is_held(lock)
        with pytest.raises(LockHeldError), held(lock, tmp_path):
            pass
    assert not is_held(lock)
    with held(lock, tmp_path):
        assert is_held(lock)
