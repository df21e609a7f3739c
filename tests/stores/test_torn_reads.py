"""A content and its version come from one row, and a change names the version it was based on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sprite.errors import PeerError
from sprite.gateway.queries import act
from sprite.memory.actions import StaleActionError
from sprite.protocol.memory import ResolveActionRequest, ResolveActionResult, UpdateActionRequest
from sprite.protocol.messages import Error
from sprite.search.view import MemoryView
from tests.memory_stores import Stores, open_stores, rebuilt


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(tmp_path) as opened:
        await opened.projection.settle()
        yield opened


async def test_file_read_during_edits_has_its_own_version(stores: Stores) -> None:
    view = MemoryView(stores.transcript, stores.memory, stores.files)
    is_over = asyncio.Event()

    async def edit() -> None:
        for number in range(1, 16):
            await stores.projection.edit("user.md", f"# User\n\n- edit {number}\n")
        is_over.set()

    seen: list[int] = []

    async def read() -> None:
        while not is_over.is_set():
            content, version = await view.file("user.md")
            assert version == 0 or f"- edit {version}\n" in content
            seen.append(version)

    await asyncio.gather(edit(), *(read() for _ in range(3)))
    assert len(set(seen)) > 3


async def test_edit_based_on_read_reverts_nothing(stores: Stores) -> None:
    view = MemoryView(stores.transcript, stores.memory, stores.files)
    content, version = await view.file("user.md")
    await stores.projection.edit("user.md", content + "- one\n", version)
    # A manual edit that is not logged yet is not part of the read content.
    content, version = await view.file("user.md")
    stores.path("user.md").write_text(content + "- by hand\n")
    with pytest.raises(PeerError, match="has changed since you opened it"):
        await stores.projection.edit("user.md", content + "- two\n", version)
    content, version = await view.file("user.md")
    assert content.endswith("- one\n- by hand\n")


async def test_resolve_of_stale_version_returns_present_row(stores: Stores) -> None:
    view = MemoryView(stores.transcript, stores.memory, stores.files)
    seen = await stores.actions.add("Water the ficus", by="person")
    now = await stores.actions.update(seen.id, by="agent", content="Cut down the ficus")
    assert now.version > seen.version
    refused = await act(stores.actions, view, ResolveActionRequest(seen.id, "done", seen.version))
    assert isinstance(refused, Error)
    assert refused.action
    assert (refused.code, refused.action.content, refused.action.version) == ("conflict", now.content, now.version)
    refused = await act(stores.actions, view, UpdateActionRequest(seen.id, priority=3, version=seen.version))
    assert isinstance(refused, Error)
    assert await stores.actions.action(seen.id) == now
    done = await act(stores.actions, view, ResolveActionRequest(seen.id, "done", now.version))
    assert isinstance(done, ResolveActionResult)
    assert [action.status for action in done.actions] == ["done"]
    with pytest.raises(StaleActionError):
        await stores.actions.resolve(seen.id, "open", by="person", seen=now.version)


async def test_concurrent_resolves_of_one_version_apply_once(stores: Stores) -> None:
    seen = await stores.actions.add("Water the ficus", by="person")
    both = await asyncio.gather(
        *(stores.actions.resolve(seen.id, status, by="person", seen=seen.version) for status in ("done", "dismissed")),
        return_exceptions=True,
    )
    assert [isinstance(each, StaleActionError) for each in both] == [False, True]


async def test_action_versions_survive_rebuild(tmp_path: Path) -> None:
    async with open_stores(tmp_path) as stores:
        made = await stores.actions.add("Water the ficus", by="person")
        changed = await stores.actions.resolve(made.id, "done", by="person")
    await rebuilt(tmp_path, without_files=False)
    async with open_stores(tmp_path) as stores:
        assert await stores.actions.action(made.id) == changed
