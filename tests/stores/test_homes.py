"""Location of a local sprite's workspace: bridges on one machine share it, and other machines get its location."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge.cluster.ownership import Homes, this_machine
from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.providers.provider import HostError


@pytest.fixture
async def database(database_at: Path | str) -> AsyncIterator[Database]:
    async with open_database(database_at) as opened:
        yield opened


async def test_first_folder_is_home_for_all_local_bridges(database: Database, tmp_path: Path) -> None:
    first, second = tmp_path / "a/ada", tmp_path / "b/ada"
    assert await Homes(database, "here").path("ada", first, True) == first
    first.mkdir(parents=True)
    assert await Homes(database, "here").path("ada", second, True) == first
    assert await Homes(database, "here").path("bob", tmp_path / "b/bob", True) == tmp_path / "b/bob"


async def test_lookup_does_not_assign_home(database: Database, tmp_path: Path) -> None:
    assert await Homes(database, "here").path("ada", tmp_path / "a/ada", False) == tmp_path / "a/ada"
    assert await Homes(database, "there").path("ada", tmp_path / "b/ada", True) == tmp_path / "b/ada"


async def test_other_bridges_lost_folder_is_recreated_in_place(database: Database, tmp_path: Path) -> None:
    (tmp_path / "a/ada").mkdir(parents=True)
    await Homes(database, "here").path("ada", tmp_path / "a/ada", True)
    (tmp_path / "a/ada").rmdir()
    assert await Homes(database, "here").path("ada", tmp_path / "b/ada", True) == tmp_path / "a/ada"


async def test_bridge_on_other_machine_gets_home_location(database: Database, tmp_path: Path) -> None:
    await Homes(database, "here").path("ada", tmp_path / "ada", True)
    with pytest.raises(HostError, match=r"on another machine \(here\)") as refused:
        await Homes(database, "there").path("ada", tmp_path / "ada", True)
    assert not refused.value.retryable


async def test_moved_folder_is_found_but_missing_not_recreated(database: Database, tmp_path: Path) -> None:
    homes = Homes(database, "here")
    await homes.path("ada", tmp_path / "old/ada", True)
    with pytest.raises(HostError, match="does not exist any more"):
        await homes.path("ada", tmp_path / "new/ada", True)
    (tmp_path / "new/ada").mkdir(parents=True)
    assert await homes.path("ada", tmp_path / "new/ada", True) == tmp_path / "new/ada"
    (tmp_path / "old/ada").mkdir(parents=True)
    assert await homes.path("ada", tmp_path / "old/ada", True) == tmp_path / "new/ada"


def test_machine_has_name() -> None:
    assert this_machine() == this_machine() != ""
