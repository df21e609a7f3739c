"""Lease epochs at a sprite: the highest epoch wins, also after kills, and older bridges are told why."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sprite.workspace.database import open_workspace
from tests.forking import fork_code
from tests.harness import Client, Message, Sprite, SpriteProcess, running_sprite, sprite_process
from tests.inspection import eventually, workspace_db

#: The tests that do not kill the sprite share it; each one uses higher epochs.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sprite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SpriteProcess]:
    workspace = tmp_path_factory.mktemp("leases") / "workspace"
    workspace.mkdir()
    async with sprite_process(workspace, None) as running:
        yield running


@asynccontextmanager
async def bridge(sprite: Sprite, lease: Any) -> AsyncIterator[tuple[Client, Message]]:
    """Connect with this lease. Yield the client and the sprite's first answer."""
    async with sprite.raw() as client:
        client.send("auth", {"token": sprite.token, "protocol": 1, "client": "bridge", "lease": lease})
        answer = await client.next()
        assert answer is not None
        yield client, answer


def of(owner: str, epoch: int) -> Message:
    return {"owner": owner, "epoch": epoch}


def refusal(message: Message) -> tuple[str, str]:
    assert message["type"] == "error", message
    return message["payload"]["code"], message["payload"]["message"]


async def test_stale_or_duplicate_epoch_is_rejected(sprite: SpriteProcess) -> None:
    """The same epoch from the same owner is accepted."""
    async with bridge(sprite, of("a", 10)) as (_, welcome):
        assert welcome["type"] == "auth_ok"
    async with bridge(sprite, of("b", 9)) as (client, answer):
        code, words = refusal(answer)
        assert code == "stale_owner"
        assert "epoch 9" in words
        assert "epoch 10" in words
        assert await client.next() is None
    async with bridge(sprite, of("b", 10)) as (client, answer):
        assert refusal(answer)[0] == "stale_owner"
        assert await client.next() is None
    async with bridge(sprite, of("a", 10)) as (_, welcome):
        assert welcome["type"] == "auth_ok"


async def test_lease_with_wrong_token_is_not_stored(sprite: SpriteProcess) -> None:
    async with sprite.raw() as client:
        client.send("auth", {"token": "wrong", "protocol": 1, "lease": of("a", 2**62)})
        answer = await client.next()
        assert answer is not None
        assert refusal(answer)[0] == "unauthorized"
    async with bridge(sprite, of("a", 11)) as (_, welcome):
        assert welcome["type"] == "auth_ok"


@pytest.mark.parametrize(
    "lease",
    [
        *(of("a", epoch) for epoch in (-1, 0, 2**40, 2**63 - 1, 2**63, 2**64, 10**300)),
        {"owner": "a", "epoch": "12"},
        {"owner": "a", "epoch": True},
        {"owner": "a", "epoch": 12.5},
        {"owner": "a"},
        {"epoch": 12},
        of("", 12),
        of("x" * 201, 12),
        of("x" * 3000, 12),
        of("a\x00b", 12),
        of("a\nb", 12),
        of("\x1b[31m", 12),
        of("\ud800", 12),
        [],
        "a:12",
    ],
)
async def test_invalid_lease_is_rejected(sprite: SpriteProcess, lease: Any) -> None:
    async with bridge(sprite, lease) as (client, answer):
        code, words = refusal(answer)
        assert code in {"bad_payload", "unauthorized", "bad_frame", "frame_too_large"}
        assert words.endswith(".")
        assert await client.next() is None


async def test_newer_epoch_closes_older_connections(
    sprite: SpriteProcess,
) -> None:
    """Acknowledged missions of the old owner run; later ones are dropped."""
    async with bridge(sprite, of("old", 20)) as (old, _), bridge(sprite, of("old", 20)) as (beside, _):
        kept = await old.ask("mission", {"text": "acknowledged before"})
        assert kept["payload"]["status"] in {"accepted", "queued"}
        async with bridge(sprite, of("new", 21)) as (new, welcome):
            assert welcome["type"] == "auth_ok"
            unheard = old.send("mission", {"text": "said after another one took over"})
            for client in (old, beside):
                ended = await client.until(lambda m: m["type"] == "error" and m["payload"]["code"] == "stale_owner")
                assert "epoch 20, now 21" in ended["payload"]["message"]
                while await client.next() is not None:
                    pass
            assert (await new.ask("system", {"action": "status"}))["type"] == "status"
        ids = [row["id"] for row in workspace_db(sprite.workspace, "SELECT id FROM missions")]
        assert kept["reply_to"] in ids
        assert unheard not in ids


async def test_terminal_without_lease_stays_connected(sprite: SpriteProcess) -> None:
    one, next_one = of("next", 30), of("over next", 31)
    async with sprite.client() as terminal, bridge(sprite, one), bridge(sprite, next_one) as (_, welcome):
        assert welcome["type"] == "auth_ok"
        assert (await terminal.ask("system", {"action": "status"}))["type"] == "status"
    async with sprite.client() as again:
        assert (await again.ask("system", {"action": "status"}))["type"] == "status"


async def test_killed_sprite_remembers_highest_epoch(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with sprite_process(workspace, None) as running, bridge(running, of("a", 7)) as (_, welcome):
        assert welcome["type"] == "auth_ok"
        await running.kill()
    async with running_sprite(workspace, None) as again:
        async with bridge(again, of("b", 6)) as (_, answer):
            assert refusal(answer)[0] == "stale_owner"
        async with bridge(again, of("a", 7)) as (_, welcome):
            assert welcome["type"] == "auth_ok"


_TAKING_OVER = """
import asyncio, itertools, sys
from pathlib import Path
from sprite.gateway.connection import Leases
from sprite.workspace.database import open_workspace
from sprite.protocol.replication import Lease

async def main():
    async with open_workspace(Path(sys.argv[1])) as workspace:
        newest = await workspace.lease()
        leases = Leases(workspace, newest)
        for epoch in itertools.count(newest.epoch + 1 if newest else 1):
            await leases.enter(Lease("a", epoch), lambda error: None)
            print(epoch, flush=True)

asyncio.run(main())
"""


async def test_killed_write_never_lowers_epoch(tmp_path: Path) -> None:
    database = tmp_path / "workspace.db"
    welcomed = 0
    for lines in (1, 20):
        process = await fork_code(_TAKING_OVER, str(database), stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(lines):
            welcomed = int(await process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        welcomed = max([welcomed, *map(int, (await process.stdout.read()).split())])
        await process.wait()
        async with open_workspace(database) as workspace:
            lease = await workspace.lease()
            assert lease is not None
            assert welcomed <= lease.epoch <= welcomed + 1


async def test_resent_mission_of_older_owner_is_duplicate(sprite: SpriteProcess) -> None:
    async with bridge(sprite, of("first", 40)) as (old, _):
        mission = old.send("mission", {"text": "the same words"}, "one-id")
        query = "SELECT id FROM missions WHERE id = 'one-id'"
        await eventually(lambda: workspace_db(sprite.workspace, query) != [], "the mission is not stored")
        async with bridge(sprite, of("second", 41)) as (new, _):
            new.send("mission", {"text": "the same words"}, mission)
            answer = await new.reply(mission)
            assert answer["payload"]["status"] == "duplicate"
