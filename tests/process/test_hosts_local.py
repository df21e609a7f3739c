"""Sprites as local processes: start on demand, restart, adoption of running ones, stop with the host."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bridge.providers.local import LocalHost
from bridge.providers.provider import HostError, HostState, ModelAccess, NoSuchFileError, Reached
from sprite.protocol.frames import FrameDecoder, decode_server, encode
from sprite.protocol.messages import Auth, AuthOk
from tests.forking import forking_python
from tests.harness import PATIENCE, running_sprite
from tests.inspection import eventually
from tests.vms import unguarded


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork sprites from a running process, so that a start takes milliseconds."""
    monkeypatch.setattr(sys, "executable", forking_python())


class Minted:
    """Issues access to a model that is never called, and records the sprites' names."""

    def __init__(self) -> None:
        self.sprites: list[str] = []

    async def __call__(self, sprite: str) -> ModelAccess:
        self.sprites.append(sprite)
        return ModelAccess("http://127.0.0.1:9", f"token-{len(self.sprites)}", "key")


class Heard:
    """Records the phases reported to waiting people."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def __call__(self, phase: str, words: str) -> None:
        assert words
        self.phases.append(phase)


@asynccontextmanager
async def local_host(folder: Path, minted: Minted | None = None, **environment: str) -> AsyncIterator[LocalHost]:
    base = {**{name: os.environ[name] for name in ("PATH", "HOME")}, "SPRITE_PREWARM_SECONDS": "0"}
    async with LocalHost(folder, minted or Minted(), environment=base | environment, guard=unguarded) as host:
        yield host


async def greeting(reached: Reached) -> AuthOk:
    """Authenticate over a channel and return the sprite's answer."""
    reached.channel.write(encode(Auth(reached.token, client="test")))
    await reached.channel.drain()
    decoder = FrameDecoder()
    async with asyncio.timeout(PATIENCE):
        while data := await reached.channel.read():
            decoder.feed(data)
            if (frame := decoder.next_frame()) is not None:
                payload = decode_server(frame).payload
                assert isinstance(payload, AuthOk)
                await reached.channel.close()
                return payload
    raise AssertionError("the sprite sent no answer")


def process_of(workspace: Path) -> int:
    return int((workspace / ".os" / "run" / "lock").read_text())


def environment_of(process: int) -> dict[str, str]:
    entries = Path(f"/proc/{process}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


async def test_sprite_starts_on_demand_stops_with_host(tmp_path: Path) -> None:
    heard, minted = Heard(), Minted()
    async with local_host(tmp_path, minted) as host:
        assert await host.state("ada") == HostState("absent")
        # Concurrent requests wait for a single start.
        for reached in await asyncio.gather(*(host.reach("ada", heard) for _ in range(5))):
            await greeting(reached)
        assert minted.sprites == ["ada"]
        assert set(heard.phases) == {"waking"}
        heard.phases.clear()
        assert await host.state("ada") == HostState("running")
        process = process_of(tmp_path / "ada")
        await greeting(await host.reach("ada", heard))
        assert heard.phases == []
        assert process_of(tmp_path / "ada") == process
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    async with local_host(tmp_path) as host:
        assert (await host.state("ada")).state == "stopped"


async def test_killed_sprite_restarts_without_request(tmp_path: Path) -> None:
    """The start deletes the leftovers of a killed restore, but not those of a running restore."""
    minted = Minted()
    left, others = tmp_path / ".ada.restoring-1", [tmp_path / ".ada-b.restoring-1", tmp_path / ".ada.restored-1"]
    for folder in (left, *others):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep/log").write_text("half")
    async with local_host(tmp_path, minted) as host:
        host._made_aside.add("ada")
        await greeting(await host.reach("ada", Heard()))
        assert left.exists()
        host._made_aside.discard("ada")
        killed = process_of(tmp_path / "ada")
        os.kill(killed, signal.SIGKILL)
        await eventually(lambda: not left.exists(), "the leftover of the killed restore stays")
        # No request triggers this start: queued missions must run anyway.
        await eventually(lambda: minted.sprites == ["ada", "ada"], "no second start")
        await greeting(await host.reach("ada", Heard()))
        assert process_of(tmp_path / "ada") != killed
        assert minted.sprites == ["ada", "ada"]
    assert all(folder.exists() for folder in others)


async def test_sprite_environment_holds_only_own_token(tmp_path: Path) -> None:
    planted = {
        "ANTHROPIC_API_KEY": "sk-ant-real",
        "ANTHROPIC_AUTH_TOKEN": "planted-auth",
        "ANTHROPIC_BASE_URL": "https://elsewhere.example",
        "SPRITES_TOKEN": "planted-sprites",
        "AWS_SECRET_ACCESS_KEY": "planted-aws",
        "SPRITE_TOKEN": "planted-shared",
    }
    settings = {"SPRITE_BATCH_TURNS": "7", "NO_PROXY": "inner.example"}
    async with local_host(tmp_path, None, **planted, **settings) as host:
        reached = await host.reach("ada", Heard())
        seen = environment_of(process_of(tmp_path / "ada"))
        await greeting(reached)
    assert seen["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9"
    assert seen["ANTHROPIC_API_KEY"] == "token-1"
    assert seen["SPRITE_BATCH_TURNS"] == "7"
    assert {"inner.example", "127.0.0.1"} <= set(seen["NO_PROXY"].split(","))
    assert not any(secret in value for secret in planted.values() for value in seen.values())


async def test_crash_loop_raises_error_with_signal(tmp_path: Path) -> None:
    async with local_host(tmp_path) as host:
        await greeting(await host.reach("ada", Heard()))
        for _ in range(3):
            await greeting(await host.reach("ada", Heard()))
            os.kill(process_of(tmp_path / "ada"), signal.SIGKILL)
            await eventually(lambda: "ada" not in host.running(), "the host does not detect the kill")
        with pytest.raises(HostError, match=r"3 times in a row.*signal 9") as caught:
            await host.reach("ada", Heard())
        assert caught.value.retryable
        assert "signal 9" in (await host.state("ada")).detail


async def test_running_sprite_is_adopted_and_not_stopped(tmp_path: Path) -> None:
    """A sprite started by another program keeps its model access."""
    minted = Minted()
    workspace = tmp_path / "ada"
    workspace.mkdir()
    async with running_sprite(workspace, None) as sprite:
        async with local_host(tmp_path, minted) as host:
            assert await host.state("ada") == HostState("running", detail="started elsewhere")
            await greeting(await host.reach("ada", Heard()))
            assert "ada" not in host.running()
        assert minted.sprites == []
        async with local_host(tmp_path, minted) as host:
            await greeting(await host.reach("ada", Heard()))
            await sprite.stop()
            await greeting(await host.reach("ada", Heard()))
            assert "ada" in host.running()
        assert minted.sprites == ["ada"]


async def test_hostile_token_path_is_refused_without_blocking(
    tmp_path: Path,
) -> None:
    """A compromised sprite replaces its token with a FIFO, a symlink or a folder; the bridge sends it no secret."""
    async with local_host(tmp_path / "workspaces") as host:
        await greeting(await host.reach("ada", Heard()))
        (tmp_path / "secret").write_text("another-persons")
        token = tmp_path / "workspaces/ada/.os/run/token"
        for put in (os.mkfifo, lambda path: path.symlink_to(tmp_path / "secret"), Path.mkdir):
            token.rename(token.with_name("kept"))
            put(token)
            with pytest.raises(HostError, match="does not answer"):
                await host.reach("ada", Heard())
            if token.is_dir():
                token.rmdir()
            token.with_name("kept").replace(token)
        await greeting(await host.reach("ada", Heard()))
        lock = tmp_path / "workspaces/bob/.os/run/lock"
        lock.parent.mkdir(parents=True)
        os.mkfifo(lock)
        assert (await host.state("bob")).state == "stopped"


async def test_failed_start_names_cause_and_recovers(
    tmp_path: Path,
) -> None:
    """The error carries the sprite's own message, and a repaired workspace starts."""
    memory = tmp_path / "ada" / ".os" / "memory"
    memory.mkdir(parents=True)
    (memory / "transcript.db").write_text("this is not a database, and long enough to be looked at " * 20)
    async with local_host(tmp_path) as host:
        with pytest.raises(HostError, match=r"transcript\.db") as caught:
            await host.reach("ada", Heard())
        assert not caught.value.retryable
        (memory / "transcript.db").unlink()
        await greeting(await host.reach("ada", Heard()))


async def test_uncreatable_workspace_raises_host_error() -> None:
    async with local_host(Path("/dev/null/workspaces")) as host:
        with pytest.raises(HostError, match=r"The workspace .* cannot be created"):
            await host.reach("ada", Heard())


@pytest.mark.parametrize("name", ["", "..", "Ada", "a/b", "-a", "a" * 40, "ada\n"])
async def test_unsafe_sprite_name_is_refused(tmp_path: Path, name: str) -> None:
    async with local_host(tmp_path) as host:
        with pytest.raises(HostError, match="not a valid name"):
            await host.reach(name, Heard())


async def test_fetch_is_limited_to_documents_and_artifacts(tmp_path: Path) -> None:
    workspace = tmp_path / "ada"
    (workspace / "documents" / "inner").mkdir(parents=True)
    (workspace / "artifacts").mkdir()
    (workspace / ".os").mkdir()
    content = os.urandom(200_000)
    (workspace / "documents" / "inner" / "a b.bin").write_bytes(content)
    (workspace / ".os" / "secret").write_text("secret")
    (workspace / "documents" / "link").symlink_to(workspace / ".os" / "secret")
    (workspace / "documents" / "out").symlink_to(workspace / ".os")
    os.mkfifo(workspace / "artifacts" / "pipe")
    async with local_host(tmp_path) as host:
        chunks = [chunk async for chunk in await host.fetch("ada", "documents/inner/a b.bin")]
        assert b"".join(chunks) == content
        assert len(chunks) > 1
        for path in (
            ".os/secret",
            "documents/../.os/secret",
            "/etc/passwd",
            "documents",
            "documents/",
            "documents/none",
            "documents/link",
            "documents/out/secret",
            "documents/inner",
            "artifacts/pipe",
            "documents\\..\\x",
            "documents/a\0b",
        ):
            with pytest.raises(NoSuchFileError):
                await host.fetch("ada", path)
