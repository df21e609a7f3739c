"""Operator commands `python -m bridge store ...`: list, verify, accept, delete and rotate keys of replicas."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bridge.config import Settings
from bridge.db.open import open_database
from bridge.replicas.keys import FixedKeys
from bridge.replicas.sealed_store import SealedStore, open_store
from bridge.replicas.upkeep import pieces_of_other_keys, sealed_anew
from tests.bridge_harness import bridge_environment, run_bridge, running_bridge
from tests.shipments import bytes_in, chunk, new_keys, shipped, store_at, turn, words


@asynccontextmanager
async def the_store(data: Path) -> AsyncIterator[SealedStore]:
    async with open_store(Settings(data=data), None) as store:
        yield store


async def filled(data: Path) -> None:
    async with the_store(data) as store:
        await store.append("ada", shipped(turn(1, "one", 1), turn(2, "two", 2), chunks=[chunk(b"x")], whole=True))
        await store.append("ada", shipped(turn(1, "one, changed", 3)))
        await store.append("eve", shipped(turn(1, "of eve", 1), whole=True))


async def test_store_commands_list_verify_accept_and_delete(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    status, out, _ = await run_bridge("store", "list", *data)
    assert (status, out.split(":")[0]) == (0, "Nothing is stored yet")
    assert list(tmp_path.iterdir()) == []

    await filled(tmp_path)
    status, out, _ = await run_bridge("store", "list", *data)
    ada, eve = out.splitlines()
    assert "2 rows, 1 older versions, 1 chunks" in ada
    assert "more was on its way" in ada
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
    assert (status, "Nothing is stored of nobody" in err) == (2, True)
    status, out, _ = await run_bridge("store", "accept", "ada", *data)
    assert (status, "followed anew" in out) == (0, True)

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
        "store accept ada (outcome done)",
        "store delete eve",
        "store delete eve (outcome done)",
    ]


async def test_interrupted_key_rotation_is_finished(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    await filled(tmp_path)
    before = (tmp_path / "store.key").read_text()
    status, out, _ = await run_bridge("store", "rotate-key", *data)
    assert status == 0
    assert "ada (1 of 2): 5 pieces sealed anew" in out
    after = (tmp_path / "store.key").read_text()
    assert before not in after
    assert len(after.splitlines()) == 1

    # The state after a killed rotation: two keys, and pieces sealed with each.
    async with the_store(tmp_path) as store:
        store.keyring.add()  # type: ignore[attr-defined]
        await anext(sealed_anew(store, "ada"))
    status, out, _ = await run_bridge("store", "rotate-key", *data)
    assert "Going on where a rotation ended" in out
    assert len((tmp_path / "store.key").read_text().splitlines()) == 1
    async with the_store(tmp_path) as store:
        assert await words(store, "ada") == ["one, changed", "two"]
        assert await words(store, "eve") == ["of eve"]

    # With a running bridge, the command writes the audit line through it.
    async with running_bridge(tmp_path) as bridge:
        status, _, err = await bridge.run("store", "rotate-key")
        assert status == 0, err
        _, log, _ = await bridge.run("audit")
        assert [line.split("  ")[-1].strip() for line in log.splitlines() if "store" in line] == [
            "store rotate-key all",
            "store rotate-key all (outcome done)",
        ] * 3


def keyed(*keys: bytes, **environment: str) -> dict[str, str]:
    """Return an environment with these replica keys."""
    return bridge_environment(BRIDGE_STORE_KEY=" ".join(base64.b64encode(key).decode() for key in keys), **environment)


async def test_key_rotation_requires_new_key_on_every_bridge(tmp_path: Path) -> None:
    old, new = new_keys(2)
    data = tmp_path / "data"
    async with open_store(Settings(data, store_keys=(old,)), None) as store:
        await store.append("ada", shipped(turn(1, "one", 1), whole=True))
    status, out, _ = await run_bridge("store", "rotate-key", "--data", str(data), environment=keyed(old))
    assert (status, "There was nothing to do" in out, "give every bridge both" in out) == (0, True, True)
    for theirs, why in (
        ((old,), "does not have the key that is first here"),
        ((old, new), "still seals with another"),
    ):
        async with running_bridge(data, BRIDGE_STORE_KEY=keyed(*theirs)["BRIDGE_STORE_KEY"]) as bridge:
            status, _, err = await bridge.run("store", "rotate-key", environment=keyed(new, old))
            assert (status, why in err, "Nothing was changed" in err) == (2, True, True)
    async with running_bridge(data, BRIDGE_STORE_KEY=keyed(new, old)["BRIDGE_STORE_KEY"]) as bridge:
        status, out, err = await bridge.run("store", "rotate-key", environment=keyed(new, old))
        assert (status, "pieces sealed anew" in out) == (0, True), err
        _, log, _ = await bridge.run("audit")
        # The audit log omits rejected commands and rotations without work.
        acts = [line.endswith("(outcome done)") for line in log.splitlines() if "rotate-key" in line]
        assert acts == [False, True]


async def test_key_missing_on_other_bridge_is_not_used(tmp_path: Path, postgres_url: str) -> None:
    old, new = new_keys(2)
    key = FixedKeys((old,)).current().id
    async with store_at(postgres_url, FixedKeys((old,))) as store:
        await store.append("ada", shipped(turn(1, "one", 1), whole=True))
    async with open_database(postgres_url) as database:
        row = (
            "INSERT INTO bridges (name, address, store_keys, seen_at) VALUES ('b', 'http://10.0.0.3:8080', ?, db_now())"
        )
        await database.statement(row, (key,))
    environment = keyed(new, old, BRIDGE_DATABASE_URL=postgres_url)
    status, _, err = await run_bridge("store", "rotate-key", "--data", str(tmp_path), environment=environment)
    assert status == 2
    assert "The bridge at http://10.0.0.3:8080 does not have the key" in err
    environment = bridge_environment(BRIDGE_DATABASE_URL=postgres_url)
    (tmp_path / "store.key").write_text(base64.b64encode(old).decode())
    (tmp_path / "store.key").chmod(0o600)
    status, _, err = await run_bridge("store", "rotate-key", "--data", str(tmp_path), environment=environment)
    assert (status, "Set BRIDGE_STORE_KEY for all of them" in err) == (2, True)
    async with store_at(postgres_url, FixedKeys((old,))) as store:
        assert await pieces_of_other_keys(store, "ada") == 0


async def test_offline_status_shows_replicas_and_owners(tmp_path: Path, postgres_url: str) -> None:
    data, environment = ("--data", str(tmp_path)), bridge_environment(BRIDGE_DATABASE_URL=postgres_url)
    for name in ("ada", "eve"):
        await run_bridge("users", "add", name, *data, environment=environment)
    async with store_at(postgres_url) as store, open_database(postgres_url) as database:
        await store.append("ada", shipped(turn(1, "one", 1), whole=True))
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
    assert (status, "Nobody here is called bob" in err) == (2, True)


async def test_wrong_replica_key_is_reported_without_changes(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    await filled(tmp_path)
    stored = bytes_in(tmp_path / "store")
    (tmp_path / "store.key").rename(tmp_path / "elsewhere")
    status, _, err = await run_bridge("store", "verify", *data)
    assert (status, "Put it back from your copy" in err) == (2, True)
    wrong = bridge_environment(BRIDGE_STORE_KEY="A" * 43 + "=")
    status, out, _ = await run_bridge("store", "verify", *data, environment=wrong)
    assert (status, "is not in BRIDGE_STORE_KEY" in out) == (1, True)
    status, _, err = await run_bridge("store", "list", *data, environment=bridge_environment(BRIDGE_STORE_KEY="short"))
    assert (status, "32 random bytes in base64" in err, "short" in err) == (2, True, False)
    status, _, err = await run_bridge("serve", "--port", "0", *data)
    assert (status, "Put it back from your copy" in err) == (2, True)
    assert bytes_in(tmp_path / "store") == stored
