"""A forget is done once the bridge's replica has dropped the words, so that a restore cannot bring them back."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bridge.config import Settings
from bridge.notify.notice import SHORT_TITLE
from bridge.replicas.sealed_store import open_store
from bridge.replicas.store import StoreError
from sprite.gateway import dispatch
from tests.bridge_harness import running_bridge
from tests.in_thread import PATIENCE
from tests.memory_stores import seed_turns

WORD = "Quibblewort"
#: Every kind of file of a bridge: databases whose columns `test_text_stores` lists, and files without people's text.
FILES = ("bridge.db*", "store/local/log.db*", "store.key", "data-version", "run/*")


async def rows_kept(data: Path, aside: Path) -> str:
    """Return all rows of the bridge's replica at this moment, read from a copy of its files."""
    kept, copy = data / "store/local/log.db", aside / "store/local/log.db"
    if not kept.exists():
        return ""
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.unlink(missing_ok=True)
    shutil.copy(data / "store.key", aside)
    with closing(sqlite3.connect(kept)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    async with open_store(Settings(aside), None) as store:
        try:
            return repr([row async for row in store.rows("local")])
        except StoreError:  # the replica is still empty
            return ""


def queue_notices(data: Path) -> None:
    """Queue a notice that quotes the word, and one of another agent."""
    rows = [(sprite, "m", "ended", f"About {WORD}", WORD, None, 1.0, 0, 1.0) for sprite in ("local", "other")]
    with closing(sqlite3.connect(data / "bridge.db", isolation_level=None)) as bridge:
        bridge.executemany("INSERT INTO notices VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def queued(data: Path) -> list[str]:
    """Return the texts of all queued notices."""
    with closing(sqlite3.connect(data / "bridge.db")) as bridge:
        return [row[0] for row in bridge.execute("SELECT title || body FROM notices ORDER BY sprite")]


async def test_forget_is_done_after_replica_confirms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A locked replica leaves the forget unfinished and is named in the answer."""
    data, aside = tmp_path / "data", tmp_path / "aside"
    kept = data / "store/local/log.db"
    await seed_turns(data / "workspaces/local", f"My codename is {WORD}.", "My parrot is Zebedee.")
    async with running_bridge(data) as bridge, bridge.page(await bridge.login(), resume={}) as page:
        await page.link("ready")
        async with asyncio.timeout(PATIENCE):
            while WORD not in await rows_kept(data, aside):  # noqa: ASYNC110 - the replica has no event
                await asyncio.sleep(0.2)
        with closing(sqlite3.connect(kept, isolation_level=None)) as store:
            store.execute("BEGIN IMMEDIATE")
            with monkeypatch.context() as shorter:
                shorter.setattr(dispatch, "CONFIRM_SECONDS", 1.0)
                done = (await page.ask("memory", {"op": "forget", "text": "Zebedee"}))["payload"]
            store.execute("ROLLBACK")
        assert done["done"] is False
        assert [place["where"] for place in done["forgotten"]["still"]] == ["the bridge's replica"]
        queue_notices(data)
        done = (await page.ask("memory", {"op": "forget", "text": WORD}))["payload"]
        assert WORD not in await rows_kept(data, aside)
        own, others = queued(data)
        assert (own, WORD in others) == (SHORT_TITLE, True)
        assert (done["done"], done["forgotten"]["still"]) == (True, [])
    files = [path.relative_to(data) for path in data.rglob("*") if path.is_file()]
    assert [path for path in files if path.parts[0] != "workspaces" and not any(map(path.match, FILES))] == []
