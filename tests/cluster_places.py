"""Locations of the sprites of several bridges: processes of this machine, or VMs of the emulated API.

Either way they survive a bridge: no bridge started the processes, and VMs are independent. The bridges' messages to
each sprite are recorded.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from bridge.cluster.ownership import this_machine
from bridge.providers.provider import ADDRESS, SYSTEM
from tests.emulator import Emulator, Machine
from tests.emulator.api import TOKEN
from tests.harness import running_sprite
from tests.wiretap import Wiretap, forwarding

if TYPE_CHECKING:
    from types import TracebackType

    from bridge.db.database import Database
    from bridge.proxy.sprite_tokens import SpriteTokens

#: Number of processes that start concurrently.
_AT_ONCE = os.cpu_count() or 1
#: A killed bridge ends the model calls that go through it.
_RETRIES = {"CLAUDE_CODE_MAX_RETRIES": "8"}
#: More than there are sprites: a test does not wait for the next minute.
_CREATIONS_A_MINUTE = 1000
_REST_SECONDS = 2


class Place(Protocol):
    """`async with place:` before the bridges start; then `settle`."""

    #: The messages from bridges to each sprite.
    taps: dict[str, Wiretap]
    #: The workspaces of lost machines, by sprite, oldest first.
    lost: dict[str, list[Path]]

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def settings(self, model_url: str) -> dict[str, Any]:
        """Return the environment settings of a bridge; sprites reach the bridges' model proxy at this address."""
        ...

    @property
    def flags(self) -> Sequence[str]:
        """Return the flags of a bridge."""
        ...

    def workspace(self, sprite: str) -> Path:
        """Return the path of the sprite's workspace on this machine's disk."""
        ...

    async def settle(self, sprites: Sequence[str], database: Database, keys: SpriteTokens, model_url: str) -> None:
        """Make these sprites available where the bridges look for them."""
        ...


class Processes:
    """Each sprite is a process on a machine that bridges find in the table `homes`: this one."""

    def __init__(self, folder: Path) -> None:
        self.taps: dict[str, Wiretap] = {}
        # Processes are never destroyed here.
        self.lost: dict[str, list[Path]] = {}
        self._folder = folder
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def settings(self, model_url: str) -> dict[str, Any]:
        """See Place."""
        del model_url
        return {}

    @property
    def flags(self) -> Sequence[str]:
        """See Place."""
        return ()

    def workspace(self, sprite: str) -> Path:
        """See Place."""
        return self._folder / sprite / "workspace"

    async def settle(self, sprites: Sequence[str], database: Database, keys: SpriteTokens, model_url: str) -> None:
        """See Place. The sprites run when it returns, without any client."""
        for some in (sprites[at : at + _AT_ONCE] for at in range(0, len(sprites), _AT_ONCE)):
            for name in some:
                self.workspace(name).mkdir(parents=True)
                home = (name, this_machine(), str(self.workspace(name)))
                await database.statement("INSERT INTO homes (sprite, machine, path) VALUES (?, ?, ?)", home)
            started = [
                running_sprite(self.workspace(name), model_url, ANTHROPIC_API_KEY=await keys.rotate(name), **_RETRIES)
                for name in some
            ]
            running = await asyncio.gather(*map(self._stack.enter_async_context, started))
            for name, sprite in zip(some, running, strict=True):
                tap = self.taps[name] = Wiretap()
                port = await self._stack.enter_async_context(forwarding(tap, sprite.port))
                # Bridges on this machine look for it here.
                (self.workspace(name) / SYSTEM / ADDRESS).write_text(f"127.0.0.1:{port}\n")


class Vms:
    """Each sprite has a VM of its name, made by a bridge at the first visit; `emulator` runs them.

    `packages` is the content of a VM image beside Python: a disk whose virtual environments are reused, since creating
    them dominates a deploy.
    """

    def __init__(self, folder: Path, packages: Path) -> None:
        self.taps: dict[str, Wiretap] = {}
        self.emulator = Emulator(folder / "vms", creations_a_minute=_CREATIONS_A_MINUTE)
        self.lost: dict[str, list[Path]] = {}
        self._folder = folder
        self._packages = packages

    async def __aenter__(self) -> Self:
        system = Path("workspace") / SYSTEM
        image = self._folder / "image"
        shutil.copytree(self._packages / system / "venvs", image / system / "venvs", symlinks=True)
        self.emulator.image = image
        self.emulator.on_added = self._added
        await self.emulator.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.emulator.__aexit__(kind, error, trace)

    def settings(self, model_url: str) -> dict[str, Any]:
        """See Place."""
        # A VM is kept awake until the last turns are curated, and the tests do not wait ten minutes for that.
        rest = {"SPRITE_IDLE_FLUSH_SECONDS": str(_REST_SECONDS)}
        return {"TESTS_SPRITES_URL": self.emulator.url, "SPRITES_TOKEN": TOKEN, "BRIDGE_PUBLIC_URL": model_url, **rest}

    @property
    def flags(self) -> Sequence[str]:
        """See Place."""
        return ("--provider", "sprites")

    def workspace(self, sprite: str) -> Path:
        """See Place."""
        return self.emulator.folder / sprite / "workspace"

    async def settle(self, sprites: Sequence[str], database: Database, keys: SpriteTokens, model_url: str) -> None:
        """See Place. A VM is made at the first visit."""

    async def lose(self, sprite: str) -> Path:
        """Destroy the machine at any moment; return its former workspace."""
        lost = self.lost.setdefault(sprite, [])
        disk = self._folder / f"lost/{sprite}-{len(lost)}"
        await self.emulator.lose(sprite, disk)
        lost.append(disk / "workspace")
        return lost[-1]

    def _added(self, machine: Machine) -> None:
        # Every turn is curated at once: a VM may stay awake for ten minutes to wait for more than a few.
        machine.environment = {**_RETRIES, "SPRITE_PREWARM_SECONDS": "0", "SPRITE_BATCH_TURNS": "1"}
        # A machine that is made again is the same sprite.
        machine.overheard = self.taps.setdefault(machine.name, Wiretap()).conversation
