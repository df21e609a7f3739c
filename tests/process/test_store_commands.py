"""Operator commands `python -m bridge store ...`: list, verify, accept and delete replicas."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bridge.config import Settings
from bridge.db.open import open_database
from bridge.replicas.sealed_store import SealedStore, open_store
from tests.bridge_harness import bridge_environment, run_bridge
from tests.shipments import append, bytes_in, chunk, shipped, store_at, turn, words


@asynccontextmanager
async def the_store(data: Path) -> AsyncIterator[SealedStore]:
    async with open_store(Settings(data=data), None) as store:
        yield store


async def filled(data: Path) -> None:
    async with the_store(data) as store:
        await append(store, "ada", shipped(turn(1, "one", 1), turn(2, "two", 2), chunks=[chunk(b"x")], whole=True))
        await append(store, "ada", shipped(turn(1, "one, changed", 3)))
        await append(store, "eve", shipped(turn(1, "of eve", 1), whole=True))


async def test_store_commands_list_verify_accept_and_delete(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    status, out, _ = await run_bridge("store", "list", *data)
    assert (status, out.split(":")[0]) == (0, "There are no replicas yet")
    assert list(tmp_path.iterdir()) == []

    await filled(tmp_path)
    status, out, _ = await run_bridge("store", "list", *data)
    ada, eve = out.splitlines()
    assert "2 rows, 1 older versions, 1 chunks" in ada
    assert "not complete" in ada
    assert eve.startswith("eve  ")
    _, out, _ = await run_bridge("store", "list", "--json", *data)
    assert [one["sprite"] for one in json.loads(out)] == ["ada", "eve"]

    status, out, _ = await run_bridge("store", "verify", *data)
    assert status == 0
    assert "ada: 3 versions of rows, 1 chunks: all as they were stored" in out
    async with the_store(tmp_path) as store:
        await store.shelf.write("eve", lambda tx: tx.execute("UPDATE stored_rows SET position = 9"))
    status, out, _ = await run_bridge("store", "verify", *data)
    assert status == 1
    assert "eve: 1 versions of rows, 0 chunks: NOT as they were stored" in out
    assert "row 1 of log/observations.jsonl" in out

    status, _, err = await run_bridge("store", "accept", "nobody", *data)
    assert (status, "There is no replica of nobody" in err) == (2, True)
    status, out, _ = await run_bridge("store", "accept", "ada", *data)
    assert (status, "replicated from the beginning" in out) == (0, True)

    status, _, err = await run_bridge("store", "delete", "eve", *data)
    assert (status, "--yes" in err) == (2, True)
    status, _, _ = await run_bridge("store", "delete", "eve", "--yes", *data)
    assert status == 0
    assert not (tmp_path / "store/eve").exists()
    async with the_store(tmp_path) as store:
        assert await store.sprites() == ["ada"]
        assert await words(store, "ada") == ["one, changed", "two"]
    _, log, _ = await run_bridge("audit", *data)
    # The audit log omits rejected commands.
    assert [line.split("  ")[-1].strip() for line in log.splitlines()] == [
        "store accept ada",
        "store delete eve",
    ]


async def test_offline_status_shows_replicas_and_owners(tmp_path: Path, postgres_url: str) -> None:
    data, environment = ("--data", str(tmp_path)), bridge_environment(BRIDGE_DATABASE_URL=postgres_url)
    for name in ("ada", "eve"):
        await run_bridge("users", "add", name, *data, environment=environment)
    async with store_at(postgres_url) as store, open_database(postgres_url) as database:
        await append(store, "ada", shipped(turn(1, "one", 1), whole=True))
        await store.accept("ada")
        lease = "INSERT INTO leases VALUES ('ada', 'a', 'http://10.0.0.2:8080', 1, db_now() + 1000)"
        await database.statement(lease)
    _, out, _ = await run_bridge("status", *data, environment=environment)
    head, ada, eve = out.splitlines()
    assert head.split()[-1] == "bridge"
    assert "http://10.0.0.2:8080, " in ada
    assert "behind" in ada
    assert "nobody" in eve
    _, out, _ = await run_bridge("status", "ada", "--json", *data, environment=environment)
    (row,) = json.loads(out)
    assert (row["sprite"], row["bridge"]) == ("ada", "http://10.0.0.2:8080")
    assert row["store_behind"] > 0
    status, _, err = await run_bridge("status", "bob", *data, environment=environment)
    assert (status, "No person called bob" in err) == (2, True)


async def test_wrong_replica_key_is_reported_without_changes(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    await filled(tmp_path)
    stored = bytes_in(tmp_path / "store")
    (tmp_path / "store.key").rename(tmp_path / "elsewhere")
    status, _, err = await run_bridge("store", "verify", *data)
    assert (status, "Restore it from your copy" in err) == (2, True)
    wrong = bridge_environment(BRIDGE_STORE_KEY="A" * 43 + "=")
    status, out, _ = await run_bridge("store", "verify", *data, environment=wrong)
    assert (status, "is not in BRIDGE_STORE_KEY" in out) == (1, True)
    status, _, err = await run_bridge("store", "list", *data, environment=bridge_environment(BRIDGE_STORE_KEY="short"))
    assert (status, "32 random bytes in base64" in err, "short" in err) == (2, True, False)
    status, _, err = await run_bridge("serve", "--port", "0", *data)
    assert (status, "Restore it from your copy" in err) == (2, True)
    assert bytes_in(tmp_path / "store") == stored
