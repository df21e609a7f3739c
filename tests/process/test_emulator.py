"""The emulated Sprites API through the official SDK: answers, stored state and sleep."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from io import BytesIO

import pytest
import sprites
import websockets
from sprites.exceptions import APIError, FileNotFoundError_, IsADirectoryError_
from websockets.asyncio.client import ClientConnection, connect

from tests.emulator import Emulator, Fault
from tests.emulator.api import TOKEN
from tests.harness import PATIENCE
from tests.inspection import eventually


@pytest.fixture
async def client(emulator: Emulator) -> AsyncIterator[sprites.AsyncSpritesClient]:
    async with sprites.AsyncSpritesClient(TOKEN, base_url=emulator.url) as client:
        yield client


def dialled(emulator: Emulator, name: str) -> connect:
    url = f"{emulator.url.replace('http', 'ws')}/v1/sprites/{name}/proxy"
    return connect(url, additional_headers={"Authorization": f"Bearer {TOKEN}"}, proxy=None)


async def test_vm_create_list_get_and_delete(emulator: Emulator, client: sprites.AsyncSpritesClient) -> None:
    sprite = await client.create_sprite("ada")
    assert (sprite.name, sprite.status) == ("ada", "cold")
    await client.create_sprite("grace")
    assert [s.name for s in await client.list_all_sprites(prefix="g")] == ["grace"]
    assert (await client.get_sprite("ada")).id == sprite.id
    with pytest.raises(sprites.SpriteError, match=r"status 400.*already been taken"):
        await client.create_sprite("ada")
    await client.destroy_sprite("ada")
    with pytest.raises(sprites.NotFoundError):
        await client.get_sprite("ada")
    assert emulator.counted("GET", "/v1/sprites/ada") == 2


async def test_vm_creation_rate_limit_returns_json(
    client: sprites.AsyncSpritesClient,
) -> None:
    """The SDK raises a plain `SpriteError` for the eleventh VM of a minute."""
    for number in range(10):
        await client.create_sprite(f"s{number}")
    with pytest.raises(sprites.SpriteError) as caught:
        await client.create_sprite("one-more")
    assert type(caught.value) is sprites.SpriteError
    body = json.loads(str(caught.value).split(": ", 1)[1])
    assert body["error"] == "sprite_creation_rate_limited"


async def test_wrong_api_token_is_refused(emulator: Emulator) -> None:
    async with sprites.AsyncSpritesClient("wrong", base_url=emulator.url) as client:
        with pytest.raises(sprites.AuthenticationError):
            await client.create_sprite("ada")


async def test_vm_files_are_real_with_named_errors(emulator: Emulator, client: sprites.AsyncSpritesClient) -> None:
    files = (await client.create_sprite("ada")).filesystem()
    secret = files / "/workspace/.os/run/token"
    await secret.write_bytes(b"\0word", mode=0o600)
    on_disk = emulator.machines["ada"].workspace / ".os/run/token"
    assert on_disk.read_bytes() == await secret.read_bytes() == b"\0word"
    assert on_disk.stat().st_mode & 0o777 == 0o600
    await secret.chmod(0o640)
    assert on_disk.stat().st_mode & 0o777 == 0o640
    assert await (files / "/workspace/.os").listdir() == ["run"]
    await secret.rename("/workspace/moved")
    with pytest.raises(FileNotFoundError_):
        await secret.read_bytes()
    with pytest.raises(IsADirectoryError_):
        await (files / "/workspace").read_bytes()
    await (files / "/workspace/moved").unlink()
    await (files / "/workspace/.os").rmtree()
    assert list(emulator.machines["ada"].workspace.iterdir()) == []
    await (files / "/../../etc/outside").write_bytes(b"x")
    assert (emulator.machines["ada"].root / "etc/outside").exists()


async def test_vm_commands_run_real_processes(
    client: sprites.AsyncSpritesClient,
) -> None:
    """Stdin, stdout, stderr, environment and exit code pass through."""
    sprite = await client.create_sprite("ada")
    done = await sprite.run("sh", "-c", "echo out; echo err >&2; exit 3", capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert await sprite.command("tr", "a-z", "A-Z", stdin=BytesIO(b"loud")).output() == b"LOUD"
    assert await sprite.command("sh", "-c", "echo $WORD", env={"WORD": "hello"}).output() == b"hello\n"
    large = await sprite.command("head", "-c", "3000000", "/dev/zero").output()
    assert len(large) == 3_000_000


async def test_crashed_service_restarts_stopped_one_does_not(
    emulator: Emulator, client: sprites.AsyncSpritesClient
) -> None:
    sprite = await client.create_sprite("ada")
    events = list(await sprite.create_service("web", "sh", ["-c", "echo up; exec sleep 60"], duration=5.0))
    assert [event.type for event in events] == ["started", "stdout", "complete"]
    service = await sprite.get_service("web")
    assert service.state is not None
    assert service.state.pid is not None
    os.kill(service.state.pid, 9)
    machine = emulator.machines["ada"].services["web"]
    await eventually(lambda: machine.restarts == 1 and machine.runs, "the service does not restart")
    with pytest.raises(APIError) as caught:
        await sprite.start_service("web")
    assert caught.value.status_code == 409
    await sprite.stop_service("web", timeout=5.0)
    assert not machine.runs
    with pytest.raises(APIError):
        await sprite.stop_service("web")
    assert [e.type for e in await sprite.start_service("web", duration=5.0)] == ["started", "stdout", "complete"]
    dying = list(await sprite.create_service("dies", "sh", ["-c", "echo oh >&2; exit 7"], duration=5.0))
    assert [(e.type, e.exit_code) for e in dying if e.type in {"stderr", "exit"}] == [("stderr", None), ("exit", 7)]


async def test_checkpoint_is_listed_and_restored(client: sprites.AsyncSpritesClient) -> None:
    sprite = await client.create_sprite("ada")
    note = sprite.filesystem() / "/workspace/note"
    await note.write_text("before")
    assert [m.type for m in await sprite.create_checkpoint("a comment")] == ["info", "complete"]
    await note.write_text("after")
    (kept,) = await sprite.list_checkpoints()
    assert kept.comment == "a comment"
    list(await sprite.restore_checkpoint(kept.id))
    assert await note.read_text() == "before"


async def test_network_policy_is_stored(client: sprites.AsyncSpritesClient) -> None:
    sprite = await client.create_sprite("ada")
    policy = sprites.NetworkPolicy([sprites.PolicyRule(domain="*", action="deny")])
    await sprite.update_network_policy(policy)
    assert (await sprite.get_network_policy()).rules == policy.rules
    with pytest.raises(sprites.SpriteError, match="400"):
        await sprite.update_network_policy(sprites.NetworkPolicy([sprites.PolicyRule(action="allow")]))


#: A server on the VM's port 8765 that answers each line with the number of lines so far.
COUNTER = """
import socketserver
class Handler(socketserver.StreamRequestHandler):
    asked = 0
    def handle(self):
        for line in self.rfile:
            Handler.asked += 1
            self.wfile.write(b"%d\\n" % Handler.asked)
socketserver.ThreadingTCPServer.allow_reuse_address = True
with socketserver.ThreadingTCPServer(("0.0.0.0", 8765), Handler) as server:
    print("up", flush=True)
    server.serve_forever()
"""


async def opened(socket: ClientConnection) -> dict[str, str]:
    await socket.send(json.dumps({"host": "localhost", "port": 8765}))
    answer: dict[str, str] = json.loads(await socket.recv())
    return answer


async def asked(socket: ClientConnection) -> bytes:
    await socket.send(b"how of")
    await socket.send(b"ten?\n")
    said = b""
    async with asyncio.timeout(PATIENCE):
        while not said.endswith(b"\n"):
            said += await socket.recv(decode=False)
    return said


async def test_sleep_cuts_connections_cold_restarts_service(
    emulator: Emulator, client: sprites.AsyncSpritesClient
) -> None:
    """A warm sleep keeps the process, and a cold one starts the service again."""
    sprite = await client.create_sprite("ada")
    machine = emulator.machines["ada"]
    await sprite.create_service("counter", "python3", ["-c", COUNTER], duration=5.0)
    async with dialled(emulator, "ada") as socket:
        assert (await opened(socket))["status"] == "connected"
        assert await asked(socket) == b"1\n"
        await machine.sleep("warm")
        with pytest.raises(websockets.ConnectionClosedError):
            await socket.recv()
    assert (await client.get_sprite("ada")).status == "warm"
    async with dialled(emulator, "ada") as socket:
        await opened(socket)
        assert await asked(socket) == b"2\n"
        assert (await client.get_sprite("ada")).status == "running"
        await machine.sleep("cold")
    assert machine.processes() == []

    async def counted() -> bytes | None:
        async with dialled(emulator, "ada") as socket:
            return await asked(socket) if (await opened(socket))["status"] == "connected" else None

    async with asyncio.timeout(PATIENCE):
        while (count := await counted()) is None:  # noqa: ASYNC110 - another process boots
            await asyncio.sleep(0.05)
    assert count == b"1\n"


async def test_vm_task_prevents_sleep(emulator: Emulator, client: sprites.AsyncSpritesClient) -> None:
    sprite = await client.create_sprite("ada")
    machine = emulator.machines["ada"]
    ask = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "s.sendall(sys.argv[2].encode()); "
        "print(s.recv(100).decode().split()[1])"
    )
    body = '{"expire": "5m"}'
    put = f"PUT /v1/tasks/work HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    assert await sprite.command("python3", "-c", ask, str(machine.socket), put).output() == b"200\n"
    assert not await machine.doze()
    delete = "DELETE /v1/tasks/work HTTP/1.1\r\nHost: x\r\n\r\n"
    assert await sprite.command("python3", "-c", ask, str(machine.socket), delete).output() == b"204\n"
    assert await machine.doze()


async def test_faults_fail_delay_or_cut_calls(emulator: Emulator, client: sprites.AsyncSpritesClient) -> None:
    await client.create_sprite("ada")
    emulator.faults += [
        Fault("GET", "/v1/sprites/ada$", status=503, body="later"),
        Fault("GET", "/v1/sprites/ada$", cut=True),
    ]
    with pytest.raises(sprites.SpriteError, match="503"):
        await client.get_sprite("ada")
    with pytest.raises(sprites.NetworkError):
        await client.get_sprite("ada")
    assert (await client.get_sprite("ada")).status == "cold"
    emulator.faults.append(Fault("GET", "/v1/sprites/ada$", delay=PATIENCE))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await client.get_sprite("ada")
