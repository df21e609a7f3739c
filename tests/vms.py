"""Shared by the tests of VMs: an emulator with a host that deploys to it, and a VM that was deployed before."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from bridge.providers.bootstrap import Archive
from bridge.providers.provider import SYSTEM, Channel, Guard, HostError, ModelAccess, Reached
from bridge.providers.sprites import SpritesHost, plan_of
from sprite.protocol.frames import FrameDecoder, decode_server, encode
from sprite.protocol.messages import Auth, AuthOk
from tests.emulator import Emulator, Fault, Machine
from tests.emulator.api import TOKEN
from tests.emulator.machine import Service
from tests.harness import PATIENCE, ROOT

MODEL_TOKEN = "planted-model-token"


class Tokens:
    """Model tokens as the bridge stores them: the newest of each sprite, and the sprite of each."""

    def __init__(self, base_url: str = "http://127.0.0.1:9") -> None:
        self.base_url = base_url
        self.minted = 0
        self.owners: dict[str, str] = {}

    async def owner(self, token: str) -> str | None:
        return self.owners.get(token)

    async def access(self, sprite: str) -> ModelAccess:
        self.minted += 1
        self.owners = {token: owner for token, owner in self.owners.items() if owner != sprite}
        token = f"{MODEL_TOKEN}-{self.minted}"
        self.owners[token] = sprite
        return ModelAccess(self.base_url, token, f"{token}.key")


@dataclass
class Heard:
    """The messages sent to waiting people."""

    steps: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, phase: str, words: str) -> None:
        self.steps.append((phase, words))

    @property
    def phases(self) -> list[str]:
        return list(dict.fromkeys(phase for phase, _ in self.steps))

    @property
    def words(self) -> str:
        return "\n".join(words for _, words in self.steps)


async def unguarded(_sprite: str, _is_there: bool) -> None:
    """Allow any sprite to be created."""


@asynccontextmanager
async def host_of(
    emulator: Emulator,
    archive: Archive,
    tokens: Tokens,
    *,
    egress: str = "open",
    guard: Guard = unguarded,
    epoch: Callable[[str], int | None] = lambda _: None,
    **environment: str,
) -> AsyncIterator[SpritesHost]:
    async with SpritesHost(
        TOKEN,
        plan_of(archive, tokens.base_url, egress, environment),
        tokens.access,
        tokens.owner,
        api_url=emulator.url,
        guard=guard,
        epoch=epoch,
    ) as host:
        yield host


def checkout(folder: Path, *changes: tuple[str, Callable[[str], str]]) -> Archive:
    """Return the archive of this checkout with some changed files."""
    if not (folder / "sprite").exists():
        shutil.copytree(ROOT / "sprite", folder / "sprite", ignore=shutil.ignore_patterns("__pycache__"))
    for name, change in changes:
        path = folder / name
        path.write_text(change(path.read_text()))
    return Archive.of(folder)


@cache
def this_archive() -> Archive:
    """Return the archive of this checkout."""
    return Archive.of(ROOT)


@cache
def newer_archive() -> Archive:
    """Return the archive of this checkout as version 0.2.0, whose soul.md ends with another line."""
    with TemporaryDirectory(prefix="checkout-") as folder:
        soul = "sprite/memory/templates/soul.md"
        return checkout(Path(folder), another_version(), (soul, lambda text: text + "New.\n"))


def another_version(version: str = "0.2.0") -> tuple[str, Callable[[str], str]]:
    return "sprite/__init__.py", lambda text: text.replace("0.1.0", version)


@dataclass(frozen=True)
class FirstDeploy:
    """Facts about the deploy that made a disk: it failed once, and succeeded at the second attempt."""

    #: The method, path and query of each call.
    calls: list[tuple[str, str, str]]
    #: All messages to people.
    words: str
    policy: list[dict[str, str]]
    #: The sprite's token, with which the test authenticated.
    token: str
    #: The version that the host reported to operators.
    version: str | None


@dataclass(frozen=True)
class Disk:
    """A VM with this checkout's code deployed, as stored on disk."""

    root: Path
    definition: dict[str, Any]
    owners: dict[str, str]
    #: Optional content of a VM's image: the virtual environment, whose creation dominates a deploy.
    packages: Path
    deploy: FirstDeploy

    async def put_into(self, emulator: Emulator, tokens: Tokens, name: str = "ada") -> Machine:
        """Make a sleeping VM with that content."""
        emulator.image = self.root
        machine = await emulator.add(name)
        emulator.image = None
        machine.services["sprite"] = Service("sprite", dict(self.definition), wanted=True)
        tokens.owners.update(self.owners)
        tokens.minted = max(tokens.minted, 1)
        return machine


def deployed_disk(folder: Path) -> Disk:
    """Deploy to a new VM (7 s); call it where no event loop runs."""

    async def make() -> Disk:
        tokens = Tokens()
        async with Emulator(folder / "vms") as emulator:
            emulator.faults.append(Fault("POST", "/policy/", status=400, body="planted"))
            heard = Heard()
            async with host_of(emulator, this_archive(), tokens) as host:
                with pytest.raises(HostError, match="planted"):
                    await host.deploy("ada", Heard())
                await host.deploy("ada", heard)
                reached = await host.reach("ada", heard)
                await greeting(reached)
                version = (await host.state("ada")).version
            machine = emulator.machines["ada"]
            definition = machine.services["sprite"].definition
            await machine.sleep("cold")
            calls = [(call.method, call.path, str(call.query)) for call in emulator.calls]
            deploy = FirstDeploy(calls, heard.words, machine.policy, reached.token, version)
            packages = folder / "packages"
            venvs = Path("workspace") / SYSTEM / "venvs"
            shutil.copytree(machine.root / venvs, packages / venvs, symlinks=True)
            return Disk(machine.root, definition, dict(tokens.owners), packages, deploy)

    return asyncio.run(make())


async def greeting(reached: Reached) -> AuthOk:
    """Authenticate over a channel and close it; return the sprite's answer."""
    reached.channel.write(encode(Auth(reached.token, client="test")))
    await reached.channel.drain()
    decoder = FrameDecoder()
    try:
        async with asyncio.timeout(PATIENCE):
            while data := await reached.channel.read():
                decoder.feed(data)
                if (frame := decoder.next_frame()) is not None:
                    payload = decode_server(frame).payload
                    assert isinstance(payload, AuthOk)
                    return payload
    finally:
        await reached.channel.close()
    raise AssertionError("the sprite said nothing")


class Talk:
    """A conversation over a channel, message by message."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._decoder = FrameDecoder(16 * 2**20)

    async def say(self, type_: str, payload: dict[str, Any]) -> str:
        message_id = str(uuid.uuid4())
        frame = {"type": type_, "id": message_id, "timestamp": 0, "payload": payload}
        self._channel.write(json.dumps(frame).encode() + b"\n")
        await self._channel.drain()
        return message_id

    async def until(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while True:
                while (frame := self._decoder.next_frame()) is not None:
                    message: dict[str, Any] = json.loads(frame)
                    if fits(message):
                        return message
                data = await self._channel.read()
                assert data, "the connection ended"
                self._decoder.feed(data)


@asynccontextmanager
async def talking(reached: Reached) -> AsyncIterator[Talk]:
    """Open a conversation with a sprite that has admitted the test."""
    talk = Talk(reached.channel)
    await talk.say("auth", {"token": reached.token, "protocol": 1, "client": "test"})
    await talk.until(lambda message: message["type"] == "auth_ok")
    try:
        yield talk
    finally:
        await reached.channel.close()


def version_of(machine: Machine) -> str:
    return (machine.workspace / ".os/VERSION").read_text().strip()
