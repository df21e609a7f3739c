"""The replicator against a scripted sprite: storing, refusing and waiting for batches."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridge.hub.hub import Relay
from bridge.replicas.keys import Keyring
from bridge.replicas.replicator import Replicator, Standing, standing
from bridge.replicas.sealed_store import SealedStore
from sprite.protocol.messages import STORE, Error
from sprite.protocol.replication import Packer, Shipped
from tests.chat_stand_in import StandIn, Visitor, state_sync
from tests.inspection import eventually
from tests.relay_stage import Street, relaying
from tests.shipments import nothing_kept, shipped, store_at, turn, words

SPRITE = "ada"


@dataclass
class Followed:
    """A scripted sprite and its replicator; `link` is the established connection of the bridge."""

    sprite: StandIn
    store: SealedStore
    followers: Replicator
    relay: Relay
    link: Visitor

    async def asked(self) -> tuple[Visitor, dict[str, Any]]:
        """Accept the next replication connection and return it with its `ship` request."""
        visitor = await self.sprite.visitor()
        auth = await visitor.welcome()
        assert auth["client"] == STORE
        return visitor, await visitor.receive("ship")

    async def standing(self) -> Standing:
        return await self.followers.standing(SPRITE)

    async def trouble(self) -> str:
        return (await self.standing()).trouble


@asynccontextmanager
async def followed(folder: Path | str, quota: int = 2**30, keys: Keyring | None = None) -> AsyncIterator[Followed]:
    async with (
        StandIn() as sprite,
        store_at(folder, keys, quota) as store,
        Replicator(store, pytest.fail, nothing_kept, nothing_kept) as followers,
        relaying(Street(sprite.port), [followers], is_unshipped=followers.is_unshipped, linger_seconds=0.01) as relay,
    ):
        followers.follow(relay.room_of)
        with relay.held(SPRITE):
            link = await sprite.visitor()
            await link.welcome(sync=state_sync())
            yield Followed(sprite, store, followers, relay, link)


async def ship(visitor: Visitor, message: Shipped) -> int:
    """Send a batch and return the acknowledged position."""
    await visitor.send(message)
    through: int = (await visitor.receive("ship_ack"))["payload"]["through"]
    return through


async def test_batch_is_stored_before_acknowledgement(tmp_path: Path) -> None:
    """A new connection resumes after the acknowledged position."""
    async with followed(tmp_path) as it:
        visitor, asked = await it.asked()
        assert (asked["payload"]["after"], asked["payload"].get("log")) == (0, None)
        # The replicator ignores other messages of the sprite.
        await visitor.send(state_sync())
        assert await ship(visitor, Packer().pack(shipped(turn(1, "one" * 500, 5)))) == 5
        assert await words(it.store, SPRITE) == ["one" * 500]
        assert it.followers.is_unshipped(SPRITE)
        await ship(visitor, shipped(turn(2, "two", 9), whole=True))
        assert (await it.store.position(SPRITE)).is_whole
        await eventually(lambda: not it.followers.is_unshipped(SPRITE), "the replica never becomes complete")
        visitor.cut()
        visitor, asked = await it.asked()
        assert (asked["payload"]["after"], asked["payload"]["log"]) == (9, "log-1")
        assert it.followers.is_unshipped(SPRITE)


async def test_hub_stays_open_until_replica_is_complete(tmp_path: Path) -> None:
    async with (
        StandIn() as sprite,
        store_at(tmp_path) as store,
        Replicator(store, pytest.fail, nothing_kept, nothing_kept) as followers,
        relaying(Street(sprite.port), [followers], is_unshipped=followers.is_unshipped, linger_seconds=0.01) as relay,
    ):
        followers.follow(relay.room_of)
        with relay.held(SPRITE):
            link = await sprite.visitor()
            await link.welcome(sync=state_sync())
            visitor = await sprite.visitor()
            await visitor.welcome()
            await visitor.receive("ship")
        # No client is connected, and the replica is incomplete.
        assert await ship(visitor, shipped(turn(1, "one", 1))) == 1
        room = relay.room_of(SPRITE)
        assert room is not None
        assert room.is_needed
        assert not room.rests
        assert await ship(visitor, shipped(through=1, whole=True)) == 1
        await link.left()
        await visitor.left()
        await eventually(lambda: relay.room_of(SPRITE) is None, "the hub stays open")


async def test_older_disk_needs_operator_to_overwrite_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.replicas.replicator._ACCEPTED_SECONDS", 0.05)
    async with followed(tmp_path) as it:
        visitor, asked = await it.asked()
        await ship(visitor, shipped(turn(1, "one", 1), turn(2, "two", 2), whole=True))
        visitor.cut()
        visitor, asked = await it.asked()
        await visitor.send(Error("store_ahead", "An older disk came back."), reply_to=asked["id"])
        await visitor.left()
        assert "python -m bridge store accept ada" in await it.trouble()
        assert await words(it.store, SPRITE) == ["one", "two"]
        # The VM is not kept awake for this.
        assert not it.followers.is_unshipped(SPRITE)

        await it.store.accept(SPRITE)
        visitor, asked = await it.asked()
        assert (asked["payload"]["after"], asked["payload"].get("log")) == (0, None)
        await ship(visitor, shipped(turn(1, "one", 11), log="log-2", whole=True))
        assert await words(it.store, SPRITE) == ["one"]
        assert await it.trouble() == ""


async def test_files_seen_reflects_last_complete_batch(tmp_path: Path) -> None:
    async with followed(tmp_path) as it:
        visitor, _ = await it.asked()
        await ship(visitor, shipped(turn(1, "one", 1), whole=True))
        stored_at = (await it.store.position(SPRITE)).at
        first = await it.standing()
        assert first.files_seen is not None
        await ship(visitor, shipped(through=1, whole=True))
        # A batch without changes is not written to the database.
        assert (await it.store.position(SPRITE)).at == stored_at
        again = await it.standing()
        assert (again.behind, again.trouble) == (0.0, "")
        visitor.cut()
        await it.asked()
        assert (await it.standing()).files_seen is None


async def test_different_log_does_not_overwrite_replica(tmp_path: Path) -> None:
    async with followed(tmp_path) as it:
        visitor, _ = await it.asked()
        await ship(visitor, shipped(turn(1, "one", 1), whole=True))
        await visitor.send(shipped(turn(1, "another", 2), log="log-2", whole=True))
        await visitor.left()
        assert "store accept ada" in await it.trouble()
        assert await words(it.store, SPRITE) == ["one"]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (shipped(turn(1, "x" * 90_000, 1)), "has used up its"),
        (shipped(("../../etc", 1, {}, 1)), "invalid name"),
        (Shipped("log-1", 1, [], packed="%%%"), "invalid data"),
        (Error("unknown_type", "Not \x1b[2Jknown."), "does not ship its log: Not"),
    ],
)
async def test_refused_batch_is_reported_without_acknowledgement(
    tmp_path: Path, message: Shipped | Error, said: str
) -> None:
    """The sprite is not kept awake for a batch that cannot be stored."""
    async with followed(tmp_path, quota=50_000) as it:
        visitor, asked = await it.asked()
        await visitor.send(message, reply_to=asked["id"])
        await visitor.left()
        trouble = await it.trouble()
        assert said in trouble
        assert trouble.isprintable()
        assert not it.followers.is_unshipped(SPRITE)
        assert (await it.store.position(SPRITE)).log is None


async def test_full_replica_counts_as_behind(tmp_path: Path) -> None:
    """The delay counts from the first batch that did not fit."""
    async with followed(tmp_path, quota=50_000) as it:
        visitor, _ = await it.asked()
        await ship(visitor, shipped(turn(1, "one", 1), whole=True))
        before = await it.standing()
        assert (before.behind, before.trouble) == (0.0, "")
        await visitor.send(shipped(turn(2, secrets.token_hex(100_000), 2)))
        await visitor.left()
        seen = await it.followers.standing(SPRITE)
        assert "has used up its" in seen.trouble
        assert (seen.behind or 0.0) > 0
        # Without the refusal, as once there is room, the replica counts as complete.
        assert (await standing(it.store, SPRITE)).behind == 0


async def test_missing_chunks_restart_replication(tmp_path: Path) -> None:
    async with followed(tmp_path) as it:
        visitor, _ = await it.asked()
        await ship(visitor, shipped(turn(1, "one", 1)))
        await visitor.send(shipped(("files", "f", {"chunks": ["0" * 64]}, 2)))
        visitor, asked = await it.asked()
        assert (asked["payload"]["after"], asked["payload"]["log"]) == (0, "log-1")
        await ship(visitor, shipped(turn(1, "one", 11), ("manifest", "baseline", {"position": 10}, 12), whole=True))
        assert await words(it.store, SPRITE) == ["one"]


async def test_replication_runs_only_with_link(tmp_path: Path) -> None:
    async with followed(tmp_path) as it:
        visitor, _ = await it.asked()
        await ship(visitor, shipped(turn(1, "one", 1), whole=True))
        it.link.cut()
        await visitor.left()
        link = await it.sprite.visitor()
        await asyncio.sleep(0)
        assert (await link.welcome(sync=state_sync()))["client"] == "bridge"
        _, asked = await it.asked()
        assert asked["payload"]["after"] == 1
