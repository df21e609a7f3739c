"""Restart bridges one after the other: every page receives every event once, in order."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.bridge_harness import BridgeProcess, bridge_process
from tests.faithful_page import FaithfulPage, staying
from tests.inspection import durable_events, eventually

pytestmark = pytest.mark.soak


async def test_rolling_restart_delivers_events_once_in_order(tmp_path: Path, postgres_url: str) -> None:
    shared: dict[str, Any] = {"BRIDGE_DATABASE_URL": postgres_url, "BRIDGE_CLUSTER_SECRET": "what these two share"}
    bridges: dict[str, tuple[BridgeProcess, AsyncExitStack]] = {}

    async def start(name: str) -> BridgeProcess:
        stack = AsyncExitStack()
        bridge = await stack.enter_async_context(
            bridge_process(tmp_path / name / "data", port=0, program=("bridge",), **shared)
        )
        bridges[name] = (bridge, stack)
        return bridge

    async def said(name: str, text: str, cookie: str) -> str:
        """Send a mission at one bridge, from a page that leaves after the acknowledgment."""
        async with bridges[name][0].page(cookie) as page:
            await page.link("ready")
            mission_id = await page.send("mission", {"text": text})
            await page.reply(mission_id)
            return mission_id

    a = await start("a")
    try:
        _, out, _ = await a.run("users", "add", "ada")
        cookie = await a.login(next(word for word in out.split() if "/login?token=" in word))
        await start("b")
        pages = [
            FaithfulPage(lambda resume, name=name: bridges[name][0].page(cookie, resume=resume))  # type: ignore[misc]
            for name in "ab"
        ]
        missions: list[str] = []
        async with staying(*pages):
            for turn, name in enumerate("ab"):
                missions.append(await said(name, f"Before restart {turn}", cookie))
                await eventually(lambda: _have(pages, missions), "a page missed the end of a mission")
                before = [page.connections for page in pages]
                await bridges[name][1].aclose()
                # The mission is sent while one bridge is down.
                other = "b" if name == "a" else "a"
                missions.append(await said(other, f"During restart {turn}", cookie))
                await start(name)
                await eventually(lambda: _have(pages, missions), "a page missed the end of a mission")
                assert any(page.connections > count for page, count in zip(pages, before, strict=True))
        # Either bridge may have been the first owner.
        (workspace,) = tmp_path.glob("*/data/workspaces/ada")
        every = [event["seq"] for event in durable_events(workspace)]
        for page in pages:
            assert page.began_anew == 1
            assert page.completed == missions
            # The first event is the page's starting point.
            assert page.seqs == list(range(page.seqs[0], page.seqs[-1] + 1))
            assert page.seqs[-1] == every[-1]
    finally:
        for _, stack in bridges.values():
            await stack.aclose()


def _have(pages: list[FaithfulPage], missions: list[Any]) -> bool:
    return all(page.completed == missions for page in pages)
