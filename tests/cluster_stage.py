"""Three real bridges over a Postgres, sprites in a separate place, and the failures that may hit each of the bridges.

Sprites' model calls go through a balancer to any running bridge. Bridges talk to each other through cuttable
connections (`ChaosProxy`), and their messages to a sprite are recorded (see cluster_places.py).
"""

from __future__ import annotations

import asyncio
import base64
import random
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from bridge.auth.people import People
from bridge.db.open import open_database
from bridge.proxy.sprite_tokens import SpriteTokens
from tests.bridge_harness import BridgeProcess, bridge_process
from tests.chaos_proxy import ChaosProxy
from tests.cluster_places import Place, Processes
from tests.connections import connections, until_one_ends
from tests.faithful_page import FaithfulPage
from tests.harness import Message
from tests.inspection import eventually
from tests.ports import free_port
from tests.postgres import Server
from tests.scripted_model import OfflineModel

BRIDGES = ("a", "b", "c")
#: Seals the replicas.
STORE_KEY = base64.b64encode(bytes(range(32))).decode()
#: Owners of additional model calls, beside those of the sprites: these tokens have no sprites.
SPENDERS = tuple(f"spender-{number}" for number in range(6))
#: Every lease ever granted, as recorded by the database itself.
_HISTORY = """
CREATE TABLE lease_history (
    number BIGSERIAL, sprite TEXT, owner TEXT, epoch BIGINT, at DOUBLE PRECISION, expires_at DOUBLE PRECISION
);
CREATE FUNCTION note_lease() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO lease_history (sprite, owner, epoch, at, expires_at)
    VALUES (NEW.sprite, NEW.owner, NEW.epoch, extract(epoch FROM clock_timestamp()), NEW.expires_at);
    RETURN NULL;
END $$;
CREATE TRIGGER note_lease AFTER INSERT OR UPDATE ON leases FOR EACH ROW EXECUTE FUNCTION note_lease();
"""


@dataclass
class Slot:
    """The place of a bridge, which stops and starts again there; its address and data stay."""

    name: str
    port: int
    bridge: BridgeProcess
    stack: AsyncExitStack
    is_up: bool = True


@dataclass
class Cluster:
    """All parts of one test."""

    folder: Path
    server: Server
    url: str
    model: OfflineModel
    place: Place
    flags: tuple[str, ...] = ()
    slots: dict[str, Slot] = field(default_factory=dict)
    wires: dict[str, ChaosProxy] = field(default_factory=dict)
    #: The person's token of each sprite.
    tokens: dict[str, str] = field(default_factory=dict)
    spender_tokens: dict[str, str] = field(default_factory=dict)
    balancer: Balancer = field(init=False)

    def __post_init__(self) -> None:
        self.balancer = Balancer(self)

    def workspace(self, sprite: str) -> Path:
        """Return the workspace on the sprite's own machine."""
        return self.place.workspace(sprite)

    def up(self) -> list[Slot]:
        """Return the bridges that run and answer."""
        return [slot for slot in self.slots.values() if slot.is_up]

    def page(self, sprite: str, preferred: str) -> FaithfulPage:
        """Open a page at this bridge, or at another one while that one is down."""

        def connect(resume: Message) -> Any:
            slot = self.slots[preferred]
            # A paused bridge still accepts TCP connections: a new client would wait there.
            runs = slot.bridge.process.returncode is None
            at = slot if runs or not self.up() else random.choice(self.up())  # noqa: S311 - no secret
            return at.bridge.page(token=self.tokens[sprite], resume=resume)

        return FaithfulPage(connect)

    def ask(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        """Query the database that the bridges share."""
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(sql.encode(), parameters).fetchall()

    def owners(self) -> dict[str, str]:
        """Return the current owner of each sprite, by the bridge's address."""
        found = self.ask("SELECT sprite, address FROM leases WHERE expires_at > db_now()")
        return {row["sprite"]: row["address"] for row in found}

    def busiest(self) -> str:
        """Return the bridge that owns most sprites."""
        return max((slot.name for slot in self.up()), key=lambda name: len(self._owned_by(name)))

    def address(self, name: str) -> str:
        """Return the address at which other bridges reach this one."""
        return f"http://127.0.0.1:{self.wires[name].port}"

    async def start(self, name: str, port: int) -> None:
        """Start a bridge in its place."""
        stack = AsyncExitStack()
        bridge = await stack.enter_async_context(
            bridge_process(
                self.folder / f"bridge-{name}/data",
                *self.flags,
                *self.place.flags,
                port=port,
                BRIDGE_DATABASE_URL=self.url,
                BRIDGE_CLUSTER_SECRET="what these three bridges share",
                BRIDGE_STORE_KEY=STORE_KEY,
                BRIDGE_ADDRESS=self.address(name),
                ANTHROPIC_BASE_URL=self.model.url,
                ANTHROPIC_API_KEY="offline",
                **self.place.settings(self.balancer.url),
            )
        )
        self.slots[name] = Slot(name, port, bridge, stack)

    # --- failures ---

    async def kill(self, name: str) -> None:
        """Run `kill -9`; return when others own all its sprites. It is not restarted."""
        slot = self.slots[name]
        had = self._owned_by(name)
        slot.is_up = False
        await slot.bridge.kill()
        await eventually(lambda: not had & self._owned_by(name), f"nobody takes the sprites of {name}")

    async def start_again(self, name: str) -> None:
        """Restart a killed bridge in its place."""
        slot = self.slots[name]
        with suppress(AssertionError):
            await slot.stack.aclose()
        await self.start(name, slot.port)

    async def pause(self, name: str, seconds: float = 0) -> None:
        """Send SIGSTOP for the given time, and until its leases have expired and passed to others, then SIGCONT."""
        slot = self.slots[name]
        had = self._owned_by(name)
        slot.is_up = False
        slot.bridge.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
            await eventually(lambda: not had & self._owned_by(name), f"nobody takes the sprites of {name}")
        finally:
            slot.bridge.process.send_signal(signal.SIGCONT)
            slot.is_up = True

    async def cut_off(self, name: str, seconds: float) -> None:
        """Cut the network between this bridge and the others for a time; people and the database still reach it."""
        with self.wires[name].silent():
            await asyncio.sleep(seconds)

    def restart_postgres(self) -> None:
        """Restart Postgres: every connection is cut, and for a moment it does not answer."""
        self.server.stop()
        self.server.start()

    def _owned_by(self, name: str) -> set[str]:
        address = self.address(name)
        return {sprite for sprite, at in self.owners().items() if at == address}


class Balancer:
    """Balances the sprites' model calls: each connection goes to a running bridge."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turn = 0
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen while the block runs."""
        async with connections(self._arrive) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield

    async def _arrive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._turn += 1
        up = self._cluster.up()
        try:
            with suppress(OSError, IndexError, ZeroDivisionError):
                port = up[self._turn % len(up)].port
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    await until_one_ends(_pass(reader, far_writer), _pass(far_reader, writer))
                finally:
                    far_writer.transport.abort()
        finally:
            writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def cluster(
    folder: Path,
    server: Server,
    model: OfflineModel,
    sprites: int,
    *flags: str,
    place: Place | None = None,
    bridges: Sequence[str] = BRIDGES,
    cuts: int = 0,
    seed: int = 0,
) -> AsyncIterator[Cluster]:
    """Run listening bridges, and sprites without clients: as processes, unless a place is given.

    The first `cuts` connections to each bridge from the others are cut somewhere.
    """
    made = Cluster(folder, server, server.create(), model, place or Processes(folder / "machines"), flags)
    async with AsyncExitStack() as stack:
        ports = {name: free_port() for name in bridges}
        for number, (name, port) in enumerate(ports.items()):
            made.wires[name] = await stack.enter_async_context(ChaosProxy(port, cuts, seed + number))
        await stack.enter_async_context(made.balancer.serving())
        await stack.enter_async_context(made.place)
        try:
            await asyncio.gather(*(made.start(name, port) for name, port in ports.items()))
            server.run(_HISTORY, made.url.rpartition("/")[2])
            await _people(made, [f"s{number}" for number in range(sprites)])
            yield made
        finally:
            await asyncio.gather(*(slot.stack.aclose() for slot in made.slots.values()), return_exceptions=True)


async def _people(made: Cluster, names: list[str]) -> None:
    """Make a person for each sprite, and the sprite in its place."""
    async with open_database(made.url) as database:
        people, keys = People(database), SpriteTokens(database)
        made.spender_tokens = {name: await keys.rotate(name) for name in SPENDERS}
        for name in names:
            _, made.tokens[name] = await people.add(name)
        await made.place.settle(names, database, keys, made.balancer.url)
