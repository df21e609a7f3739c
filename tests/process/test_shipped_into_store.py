"""Replication from a sprite to its bridge: complete and sealed before the sprite's machine may sleep."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from bridge.config import LOCAL_PERSON, Settings
from bridge.db.database import Transaction
from bridge.replicas import upkeep
from bridge.replicas.sealed_store import SealedStore, open_store
from bridge.replicas.sprite_log import SpriteLog, chunk_place
from bridge.replicas.upkeep import checked, verified
from sprite.config import LEAST_TURNS
from sprite.protocol.replication import whole_row
from tests.bridge_harness import Bridge, bridge_process, run_bridge, running_bridge
from tests.forking import forking_python
from tests.harness import PATIENCE, observations
from tests.memory_stores import seed_turns
from tests.shipments import bytes_in
from tests.shipping_stage import archived


@pytest.fixture(autouse=True)
def sprites_programs_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", forking_python())


@asynccontextmanager
async def the_store(data: Path) -> AsyncIterator[SealedStore]:
    """Open the replicas of a bridge, which may be running."""
    async with open_store(Settings(data=data), None) as store:
        yield store


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while not await condition():  # noqa: ASYNC110 - another process cannot set an event of ours
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(what) from None


async def tables(store: SealedStore) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each table of the local person's replica, in order."""
    found: dict[str, list[dict[str, Any]]] = {}
    async for stored in store.rows(LOCAL_PERSON):
        chunks = {name: await store.chunk(LOCAL_PERSON, name) for name in stored.row.get("chunks", [])}
        found.setdefault(stored.table, []).append(whole_row(stored.row, chunks.__getitem__))
    return found


async def until_stored(bridge: Bridge, store: SealedStore, turns: int) -> None:
    """Wait until the replica has every turn and is complete."""

    async def is_stored() -> bool:
        written = [row["id"] for row in observations(bridge.workspace)]
        if len(written) < turns or not (await store.position(LOCAL_PERSON)).is_whole:
            return False
        return written == [row["id"] for row in (await tables(store)).get("log/observations.jsonl", [])]

    try:
        await until(is_stored, "the turns are not replicated")
    except AssertionError as error:
        said = (await bridge.run("status"))[1]
        raise AssertionError(f"{error}: {await store.position(LOCAL_PERSON)}\n{said}\n{bridge.log[-2000:]}") from None


async def test_replica_follows_killed_bridge_and_forgets(tmp_path: Path) -> None:
    """The replica has the rows of an archive, sealed; it continues after a kill."""
    async with (
        bridge_process(tmp_path / "data", forks_sprites=True) as killed,
        killed.page(await killed.login()) as page,
    ):
        await page.link("ready")
        (killed.workspace / "projects").mkdir(exist_ok=True)
        (killed.workspace / "projects/plan.txt").write_bytes(b"the plan of pears " * 30_000)
        card = {"action": "create_card", "title": "x", "blocks": [{"type": "text", "data": {"content": "pears"}}]}
        assert (await page.ask("canvas_interaction", card))["type"] == "ack"
        killed.process.send_signal(signal.SIGKILL)
        await killed.ended()
    async with running_bridge(tmp_path / "data") as bridge, the_store(bridge.data) as store:
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            await page.mission("remember the word Quibblewort")
            await until_stored(bridge, store, 1)

            async def is_current() -> bool:
                (row,) = json.loads((await bridge.run("status", "--json"))[1])
                return (row["store_behind"], row["store_trouble"]) == (0.0, "")

            await until(is_current, "the replica is behind")
            assert (await bridge.run("export", LOCAL_PERSON, str(tmp_path / "ada.zip")))[0] == 0
            expected = archived(tmp_path / "ada.zip")
            found = await tables(store)
            for name, rows in expected.items():
                assert sorted(found.get(name, []), key=repr) == sorted(rows, key=repr), name
            (plan,) = [row for row in found["files"] if row["path"] == "projects/plan.txt"]
            content = b"".join([await store.chunk(LOCAL_PERSON, name) for name in plan["chunks"]])
            assert content == b"the plan of pears " * 30_000
            assert (await verified(store, LOCAL_PERSON)).wrong == []
            assert b"pears" not in bytes_in(bridge.data / "store")
            assert b"plan" not in bytes_in(bridge.data / "store")

            assert b"Quibblewort" in await everything(store)
            answer = await page.ask("memory", {"op": "forget", "text": "Quibblewort", "yes": True})
            assert answer["payload"]["done"], answer

            async def is_forgotten() -> bool:
                is_whole = (await store.position(LOCAL_PERSON)).is_whole
                return is_whole and b"Quibblewort" not in await everything(store)

            await until(is_forgotten, "the replica still has the forgotten text")
        kept = await store.kept(LOCAL_PERSON)
        assert kept.rows > 0
        assert (await verified(store, LOCAL_PERSON)).wrong == []


async def everything(store: SealedStore) -> bytes:
    """Return all versions and chunks of the local person's replica, unsealed."""

    def unseal(log: SpriteLog, tx: Transaction) -> bytes:
        rows = [log.row(row).row for row in tx.execute("SELECT * FROM stored_rows").fetchall()]
        chunks = [
            log.unsealed(row, chunk_place(bytes(row["name"])), "chunk")
            for row in tx.execute("SELECT * FROM stored_chunks").fetchall()
        ]
        return json.dumps(rows).encode() + b"".join(chunks) + b"".join(map(decoded, rows))

    return await store.shelf.read(LOCAL_PERSON, lambda tx: unseal(SpriteLog(tx, LOCAL_PERSON, store.keyring), tx))


def decoded(row: dict[str, Any]) -> bytes:
    """Return the decoded base64 values of a row."""
    return b"".join(base64.b64decode(value["base64"]) for value in row.values() if isinstance(value, dict))


async def test_damaged_replica_is_repaired_by_running_sprite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The default of a minute would take longer.
    monkeypatch.setattr(upkeep, "_FIRST_SECONDS", 0.0)
    data = tmp_path / "data"

    def damage(tx: Transaction) -> None:
        tx.execute("UPDATE stored_rows SET sealed = zeroblob(40) WHERE part = 'log/observations.jsonl'")
        tx.execute("DELETE FROM stored_chunks")
        tx.execute("DELETE FROM stored_rows WHERE part = 'log/sessions.jsonl'")

    await seed_turns(data / "workspaces/local", "one")
    async with running_bridge(data) as bridge, the_store(data) as store, bridge.page(await bridge.login()) as page:
        await page.link("ready")
        (bridge.workspace / "documents/note.txt").write_text("a note")
        await until_stored(bridge, store, 1)
    async with the_store(data) as store:
        before, intact = await tables(store), await positions(store, "log/identity.jsonl")
        await store.shelf.write(LOCAL_PERSON, damage)
    status, said, _ = await run_bridge("store", "verify", "--data", str(data))
    assert status == 1, said
    assert "lacks" in said
    async with running_bridge(data) as bridge, the_store(data) as store:
        assert "damaged or missing" in (await bridge.run("status"))[1]

        async def is_measured() -> bool:
            async with bridge.http() as session, session.get("/metrics", headers=bridge.operator) as response:
                return 'bridge_store_damaged_pieces{sprite="local"}' in await response.text()

        await until(is_measured, "the damage is not in the metrics")
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            await until(is_healed(store), "the replica is not repaired")
            assert (await verified(store, LOCAL_PERSON)).wrong == []
            after = await tables(store)
            for table in ("log/sessions.jsonl", "log/observations.jsonl"):
                assert after[table][: len(before[table])] == before[table]
            # Intact rows are not shipped again.
            assert await positions(store, "log/identity.jsonl") == intact != []
            assert "damaged or missing" in (await bridge.run("status"))[1]
            await checked(store, LOCAL_PERSON)
            assert "damaged or missing" not in (await bridge.run("status"))[1]


async def positions(store: SealedStore, part: str) -> list[int]:
    """Return the positions of a part's rows."""
    sql = "SELECT position FROM stored_rows WHERE part = ?"
    return await store.shelf.read(LOCAL_PERSON, lambda tx: [row["position"] for row in tx.execute(sql, (part,))])


def is_healed(store: SealedStore) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        position = await store.position(LOCAL_PERSON)
        return position.is_whole and not (await verified(store, LOCAL_PERSON)).wrong

    return is_so


@pytest.mark.parametrize("is_open", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["page open", "no page"])
async def test_clean_stop_replicates_last_curation(is_open: bool, tmp_path: Path) -> None:
    """Stopping a sprite causes a final curation."""
    data = tmp_path / "data"
    await seed_turns(data / "workspaces/local", *(f"My name is Ada the {number}." for number in range(LEAST_TURNS)))
    async with running_bridge(data) as bridge, bridge.page(await bridge.login()) as page:
        await page.link("ready")
        if is_open:
            await bridge.stop()
    async with the_store(data) as store:
        assert {row["processed"] for row in observations(bridge.workspace)} == {1}
        found = await tables(store)
        with closing(sqlite3.connect(bridge.workspace / ".os/memory/transcript.db")) as log:
            curations = [row[0] for row in log.execute("SELECT id FROM curations ORDER BY id")]
        assert curations
        assert [row["id"] for row in found["log/curations.jsonl"]] == curations
        assert (await store.position(LOCAL_PERSON)).is_whole


@pytest.mark.soak
async def test_restored_replica_backup_catches_up_silently(tmp_path: Path) -> None:
    """A backup from before a restore has another log id; pages show no offer."""
    data = tmp_path / "data"
    async with running_bridge(data) as bridge, the_store(data) as store, bridge.page(await bridge.login()) as page:
        await page.link("ready")
        await page.mission("one")
        await until_stored(bridge, store, 1)
    shutil.copytree(data / "store", tmp_path / "backup")
    status, said, error = await run_bridge("restore", LOCAL_PERSON, "--over", "--data", str(data))
    assert status == 0, said + error
    async with running_bridge(data) as bridge, the_store(data) as store, bridge.page(await bridge.login()) as page:
        await page.link("ready")
        await page.mission("two")
        await until_stored(bridge, store, 2)
    shutil.rmtree(data / "store")
    shutil.copytree(tmp_path / "backup", data / "store")
    async with running_bridge(data) as bridge, the_store(data) as store, bridge.page(await bridge.login()) as page:
        assert not (await page.link("ready"))["payload"].get("offer")
        await page.mission("three")
        await until_stored(bridge, store, 3)
        links = [each["payload"] for each in page.received if each["type"] == "link"]
        assert not any(link.get("offer") for link in links), links
