"""Sprites as processes on this machine: started when asked for, started again, found running, stopped with the host."""

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


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sprites forked: a start takes milliseconds."""
    monkeypatch.setattr(sys, "executable", forking_python())


class Minted:
    """Hands out access to a model that is never asked, and remembers for whom."""

    def __init__(self) -> None:
        self.sprites: list[str] = []

    async def __call__(self, sprite: str) -> ModelAccess:
        self.sprites.append(sprite)
        return ModelAccess("http://127.0.0.1:9", f"token-{len(self.sprites)}")


class Heard:
    """What people who wait were told."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def __call__(self, phase: str, words: str) -> None:
        assert words
        self.phases.append(phase)


@asynccontextmanager
async def local_host(folder: Path, minted: Minted | None = None, **environment: str) -> AsyncIterator[LocalHost]:
    base = {**{name: os.environ[name] for name in ("PATH", "HOME")}, "SPRITE_PREWARM_SECONDS": "0"}
    async with LocalHost(folder, minted or Minted(), environment=base | environment) as host:
        yield host


async def greeting(reached: Reached) -> AuthOk:
    """Authenticates over a channel; the sprite's answer."""
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
    raise AssertionError("the sprite said nothing")


def process_of(workspace: Path) -> int:
    return int((workspace / ".os" / "run" / "lock").read_text())


def environment_of(process: int) -> dict[str, str]:
    entries = Path(f"/proc/{process}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


async def test_a_sprite_is_started_when_it_is_asked_for_and_stopped_with_the_host(tmp_path: Path) -> None:
    heard, minted = Heard(), Minted()
    async with local_host(tmp_path, minted) as host:
        assert await host.state("ada") == HostState("absent")
        # People who ask at once wait for one start.
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


async def test_killed_sprite_starts_again_by_itself(tmp_path: Path) -> None:
    """It has a new token. What a killed restore left beside its workspace goes with that start, but none under way."""
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
        await eventually(lambda: not left.exists(), "what nobody finishes is there for ever")
        # Nobody asks for it: missions that wait in it have to run all the same.
        await eventually(lambda: minted.sprites == ["ada", "ada"], "a second start")
        await greeting(await host.reach("ada", Heard()))
        assert process_of(tmp_path / "ada") != killed
        assert minted.sprites == ["ada", "ada"]
    assert all(folder.exists() for folder in others)


async def test_no_key_enters_a_sprite_but_its_own_token(tmp_path: Path) -> None:
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


async def test_a_sprite_that_dies_again_and_again_is_said_in_its_own_words(tmp_path: Path) -> None:
    async with local_host(tmp_path) as host:
        await greeting(await host.reach("ada", Heard()))
        for _ in range(3):
            await greeting(await host.reach("ada", Heard()))
            os.kill(process_of(tmp_path / "ada"), signal.SIGKILL)
            await eventually(lambda: not host.is_ours("ada"), "its death is noticed")
        with pytest.raises(HostError, match=r"3 times in a row.*signal 9") as caught:
            await host.reach("ada", Heard())
        assert caught.value.retryable
        assert "signal 9" in (await host.state("ada")).detail


async def test_a_sprite_that_runs_already_is_used_left_alone_and_keeps_its_access(tmp_path: Path) -> None:
    minted = Minted()
    workspace = tmp_path / "ada"
    workspace.mkdir()
    async with running_sprite(workspace, None) as sprite:
        async with local_host(tmp_path, minted) as host:
            assert await host.state("ada") == HostState("running", detail="started elsewhere")
            await greeting(await host.reach("ada", Heard()))
            assert not host.is_ours("ada")
        assert minted.sprites == []
        async with local_host(tmp_path, minted) as host:
            await greeting(await host.reach("ada", Heard()))
            await sprite.stop()
            await greeting(await host.reach("ada", Heard()))
            assert host.is_ours("ada")
        assert minted.sprites == ["ada"]


async def test_a_sprite_that_puts_a_pipe_or_a_link_for_its_token_holds_nothing_up_and_is_told_nothing(
    tmp_path: Path,
) -> None:
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


async def test_a_sprite_that_cannot_start_is_explained_in_its_own_words_and_can_be_had_once_repaired(
    tmp_path: Path,
) -> None:
    memory = tmp_path / "ada" / ".os" / "memory"
    memory.mkdir(parents=True)
    (memory / "transcript.db").write_text("this is not a database, and long enough to be looked at " * 20)
    async with local_host(tmp_path) as host:
        with pytest.raises(HostError, match=r"transcript\.db") as caught:
            await host.reach("ada", Heard())
        assert not caught.value.retryable
        (memory / "transcript.db").unlink()
        await greeting(await host.reach("ada", Heard()))


async def test_a_workspace_that_cannot_be_made_is_said() -> None:
    async with local_host(Path("/dev/null/workspaces")) as host:
        with pytest.raises(HostError, match=r"The workspace .* cannot be made"):
            await host.reach("ada", Heard())


@pytest.mark.parametrize("name", ["", "..", "Ada", "a/b", "-a", "a" * 40, "ada\n"])
async def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    async with local_host(tmp_path) as host:
        with pytest.raises(HostError, match="no name for a sprite"):
            await host.reach(name, Heard())


async def test_files_of_documents_and_artifacts_can_be_had_and_no_others(tmp_path: Path) -> None:
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
