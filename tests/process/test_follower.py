"""The follower of sprites' logs against a sprite that says what a test wants: what is stored, refused, waited for."""

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
from bridge.hub.room import RoomTimes
from bridge.replicas.keys import Keyring
from bridge.replicas.replicator import Replicator, Standing, standing
from bridge.replicas.sealed_store import SealedStore
from sprite.protocol.messages import STORE, Error
from sprite.protocol.replication import Packer, Shipped
from tests.chat_stand_in import StandIn, Visitor, state_sync
from tests.inspection import eventually
from tests.relay_stage import Street
from tests.shipments import shipped, store_at, turn, words

SPRITE = "ada"


@dataclass
class Followed:
    """A sprite that a test speaks for; `link` is the bridge's link to it, which stands."""

    sprite: StandIn
    store: SealedStore
    followers: Replicator
    relay: Relay
    link: Visitor

    async def asked(self) -> tuple[Visitor, dict[str, Any]]:
        """The next connection that is to be shipped to, and what it asks for."""
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
        Replicator(store, pytest.fail) as followers,
        Relay(
            Street(sprite.port), [followers], is_unshipped=followers.is_unshipped, times=RoomTimes(linger_seconds=0.01)
        ) as relay,
    ):
        followers.follow(relay.room_of)
        with relay.held(SPRITE):
            link = await sprite.visitor()
            await link.welcome(sync=state_sync())
            yield Followed(sprite, store, followers, relay, link)


async def ship(visitor: Visitor, message: Shipped) -> int:
    """Ships a message; up to where it was acknowledged."""
    await visitor.send(message)
    through: int = (await visitor.receive("ship_ack"))["payload"]["through"]
    return through


async def test_what_is_shipped_is_stored_before_it_is_acknowledged_and_resumed_there(tmp_path: Path) -> None:
    async with followed(tmp_path) as it:
        visitor, asked = await it.asked()
        assert (asked["payload"]["after"], asked["payload"].get("log")) == (0, None)
        # What else the sprite says there is nothing to a store.
        await visitor.send(state_sync())
        assert await ship(visitor, Packer().pack(shipped(turn(1, "one" * 500, 5)))) == 5
        assert await words(it.store, SPRITE) == ["one" * 500]
        assert it.followers.is_unshipped(SPRITE)
        await ship(visitor, shipped(turn(2, "two", 9), whole=True))
        assert (await it.store.position(SPRITE)).is_whole
        await eventually(lambda: not it.followers.is_unshipped(SPRITE), "it is never whole")
        visitor.cut()
        visitor, asked = await it.asked()
        assert (asked["payload"]["after"], asked["payload"]["log"]) == (9, "log-1")
        assert it.followers.is_unshipped(SPRITE)


async def test_a_room_stays_open_until_all_of_its_sprite_is_stored(tmp_path: Path) -> None:
    async with (
        StandIn() as sprite,
        store_at(tmp_path) as store,
        Replicator(store, pytest.fail) as followers,
        Relay(
            Street(sprite.port), [followers], is_unshipped=followers.is_unshipped, times=RoomTimes(linger_seconds=0.01)
        ) as relay,
    ):
        followers.follow(relay.room_of)
        with relay.held(SPRITE):
            link = await sprite.visitor()
            await link.welcome(sync=state_sync())
            visitor = await sprite.visitor()
            await visitor.welcome()
            await visitor.receive("ship")
        # Nobody is here any more, and the store lacks something.
        assert await ship(visitor, shipped(turn(1, "one", 1))) == 1
        room = relay.room_of(SPRITE)
        assert room is not None
        assert room.is_needed
        assert not room.rests
        assert await ship(visitor, shipped(through=1, whole=True)) == 1
        await link.left()
        await visitor.left()
        await eventually(lambda: relay.room_of(SPRITE) is None, "the room stays open")


async def test_an_older_disk_overwrites_nothing_until_an_operator_accepts_it(tmp_path: Path) -> None:
    async with followed(tmp_path) as it:
        visitor, asked = await it.asked()
        await ship(visitor, shipped(turn(1, "one", 1), turn(2, "two", 2), whole=True))
        visitor.cut()
        visitor, asked = await it.asked()
        await visitor.send(Error("store_ahead", "An older disk came back."), reply_to=asked["id"])
        await visitor.left()
        assert "python -m bridge store accept ada" in await it.trouble()
        assert await words(it.store, SPRITE) == ["one", "two"]
        # A VM is not kept awake for that.
        assert not it.followers.is_unshipped(SPRITE)

        await it.store.accept(SPRITE)
        visitor, asked = await it.asked()
        assert (asked["payload"]["after"], asked["payload"].get("log")) == (0, None)
        await ship(visitor, shipped(turn(1, "one", 11), log="log-2", whole=True))
        assert await words(it.store, SPRITE) == ["one"]
        assert await it.trouble() == ""


async def test_what_is_said_of_files_is_as_of_the_last_look_at_them(tmp_path: Path) -> None:
    async with followed(tmp_path) as it:
        visitor, _ = await it.asked()
        await ship(visitor, shipped(turn(1, "one", 1), whole=True))
        stored_at = (await it.store.position(SPRITE)).at
        first = await it.standing()
        assert first.files_seen is not None
        await ship(visitor, shipped(through=1, whole=True))
        # That nothing changed is known, and not written down each time.
        assert (await it.store.position(SPRITE)).at == stored_at
        again = await it.standing()
        assert (again.behind, again.trouble) == (0.0, "")
        visitor.cut()
        await it.asked()
        assert (await it.standing()).files_seen is None


async def test_another_log_is_not_stored_over_the_one_that_is_there(tmp_path: Path) -> None:
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
        (shipped(turn(1, "x" * 90_000, 1)), "has filled the"),
        (shipped(("../../etc", 1, {}, 1)), "makes no sense"),
        (Shipped("log-1", 1, [], packed="%%%"), "cannot be read"),
        (Error("unknown_type", "Not \x1b[2Jknown."), "does not ship its log: Not"),
    ],
)
async def test_what_is_refused_is_said_and_neither_acknowledged_nor_waited_for(
    tmp_path: Path, message: Shipped | Error, said: str
) -> None:
    async with followed(tmp_path, quota=50_000) as it:
        visitor, asked = await it.asked()
        await visitor.send(message, reply_to=asked["id"])
        await visitor.left()
        trouble = await it.trouble()
        assert said in trouble
        assert trouble.isprintable()
        assert not it.followers.is_unshipped(SPRITE)
        assert (await it.store.position(SPRITE)).log is None


async def test_what_was_whole_is_behind_from_when_it_cannot_be_stored_any_more(tmp_path: Path) -> None:
    async with followed(tmp_path, quota=50_000) as it:
        visitor, _ = await it.asked()
        await ship(visitor, shipped(turn(1, "one", 1), whole=True))
        before = await it.standing()
        assert (before.behind, before.trouble) == (0.0, "")
        await visitor.send(shipped(turn(2, secrets.token_hex(100_000), 2)))
        await visitor.left()
        seen = await it.followers.standing(SPRITE)
        assert "has filled the" in seen.trouble
        assert (seen.behind or 0.0) > 0
        # The same, once there is room.
        assert (await standing(it.store, SPRITE)).behind == 0


async def test_a_row_without_its_chunks_has_everything_shipped_once_more(tmp_path: Path) -> None:
    async with followed(tmp_path) as it:
        visitor, _ = await it.asked()
        await ship(visitor, shipped(turn(1, "one", 1)))
        await visitor.send(shipped(("files", "f", {"chunks": ["0" * 64]}, 2)))
        visitor, asked = await it.asked()
        assert (asked["payload"]["after"], asked["payload"]["log"]) == (0, "log-1")
        await ship(visitor, shipped(turn(1, "one", 11), ("manifest", "baseline", {"position": 10}, 12), whole=True))
        assert await words(it.store, SPRITE) == ["one"]


async def test_it_is_followed_only_while_there_is_a_link(tmp_path: Path) -> None:
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
