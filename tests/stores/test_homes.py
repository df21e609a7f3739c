"""Where a local sprite's workspace is: bridges on one machine find it, and one elsewhere is told where it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge.cluster.ownership import Homes, this_machine
from bridge.db.open import Database, open_database
from bridge.providers.provider import HostError


@pytest.fixture
async def database(database_at: Path | str) -> AsyncIterator[Database]:
    async with open_database(database_at) as opened:
        yield opened


async def test_the_first_folder_is_the_home_for_every_bridge_on_that_machine(
    database: Database, tmp_path: Path
) -> None:
    first, second = tmp_path / "a/ada", tmp_path / "b/ada"
    assert await Homes(database, "here").path("ada", first, True) == first
    first.mkdir(parents=True)
    assert await Homes(database, "here").path("ada", second, True) == first
    assert await Homes(database, "here").path("bob", tmp_path / "b/bob", True) == tmp_path / "b/bob"


async def test_who_only_looks_decides_nothing(database: Database, tmp_path: Path) -> None:
    assert await Homes(database, "here").path("ada", tmp_path / "a/ada", False) == tmp_path / "a/ada"
    assert await Homes(database, "there").path("ada", tmp_path / "b/ada", True) == tmp_path / "b/ada"


async def test_a_lost_folder_of_another_bridges_is_made_again_where_it_was(database: Database, tmp_path: Path) -> None:
    (tmp_path / "a/ada").mkdir(parents=True)
    await Homes(database, "here").path("ada", tmp_path / "a/ada", True)
    (tmp_path / "a/ada").rmdir()
    assert await Homes(database, "here").path("ada", tmp_path / "b/ada", True) == tmp_path / "a/ada"


async def test_a_bridge_on_another_machine_is_told_where_it_is(database: Database, tmp_path: Path) -> None:
    await Homes(database, "here").path("ada", tmp_path / "ada", True)
    with pytest.raises(HostError, match=r"on another machine \(here\)") as refused:
        await Homes(database, "there").path("ada", tmp_path / "ada", True)
    assert not refused.value.retryable


async def test_a_folder_that_was_moved_is_found_again_and_a_data_folder_that_is_gone_is_not_made_anew(
    database: Database, tmp_path: Path
) -> None:
    homes = Homes(database, "here")
    await homes.path("ada", tmp_path / "old/ada", True)
    with pytest.raises(HostError, match="is not there any more: put it back, or make"):
        await homes.path("ada", tmp_path / "new/ada", True)
    (tmp_path / "new/ada").mkdir(parents=True)
    assert await homes.path("ada", tmp_path / "new/ada", True) == tmp_path / "new/ada"
    (tmp_path / "old/ada").mkdir(parents=True)
    assert await homes.path("ada", tmp_path / "old/ada", True) == tmp_path / "new/ada"


def test_a_machine_has_a_name() -> None:
    assert this_machine() == this_machine() != ""
