"""Deletion of the CLI's files never follows a link to files that are not the CLI's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from sprite.agent.processes import clear_cli_files, keep_cli_session
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.memory.folders import make_folders


@pytest.mark.parametrize("linked", [".os/run/claude", ".os/run", ".os"])
def test_linked_state_deletes_nothing_behind_it(tmp_path: Path, linked: str) -> None:
    other = tmp_path / "other"
    state = tmp_path / "workspace/.os/run/claude"
    link = tmp_path / "workspace" / linked
    precious = other / state.relative_to(link) / "precious"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine")
    link.parent.mkdir(parents=True)
    link.symlink_to(other)
    for delete in (partial(keep_cli_session, state, "session"), partial(clear_cli_files, state)):
        delete()
        assert precious.read_text() == "mine"
    with pytest.raises(OperatorError, match=r"is a link, but must be a folder of Sprite\."):
        make_folders(Settings(tmp_path / "workspace"))


def test_files_of_other_sessions_are_deleted(tmp_path: Path) -> None:
    state = tmp_path / ".os/run/claude"
    state.mkdir(parents=True)
    for name in ("session.jsonl", "other.jsonl"):
        (state / name).touch()
    keep_cli_session(state, "session")
    assert [path.name for path in state.iterdir()] == ["session.jsonl"]
