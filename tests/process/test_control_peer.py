"""The control socket answers its owner's programs, but none that an agent started: with real processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from bridge.admin import control
from bridge.admin import control as peer
from tests.bridge_harness import BridgeProcess, bridge_process
from tests.harness import PATIENCE, ROOT
from tests.inspection import descendants, eventually
from tests.scripted_model import OfflineModel

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(sys.platform != "linux", reason="the check needs Linux's /proc"),
]
ROOT_ONLY = pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root and unshare")
#: Connects and passes the connection to a child, which writes only after its parent has exited.
INHERITED = """
import os, socket, sys, time
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.01)
connection.sendall(b"GET /users HTTP/1.1\\r\\nHost: bridge\\r\\nConnection: close\\r\\n\\r\\n")
print(b"".join(iter(lambda: connection.recv(65536), b"")).decode())
"""


#: Detaches a program with an empty environment, which calls the socket once a file exists, and keeps the answer.
DETACHED = """
env -i setsid -f sh -c 'until [ -e {go} ]; do sleep 0.05; done;
curl -sS --unix-socket {socket} http://bridge/users > {end}.new 2>&1; mv {end}.new {end}' > /dev/null 2>&1
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="bridge")
async def _bridge(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgeProcess]:
    async with bridge_process(tmp_path_factory.mktemp("peer") / "data") as bridge:
        yield bridge


def socket_of(bridge: BridgeProcess) -> str:
    return str(control.socket_of(bridge.data / "run"))


async def output(*line: str) -> str:
    """Return a program's output."""
    process = await asyncio.create_subprocess_exec(*line, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    async with asyncio.timeout(PATIENCE):
        out, _ = await process.communicate()
    return out.decode()


def curl(path: str) -> tuple[str, ...]:
    return ("curl", "-sS", "--unix-socket", path, "http://bridge/users")


async def test_owner_terminal_gets_answer(bridge: BridgeProcess) -> None:
    assert '"local"' in await output(*curl(socket_of(bridge)))
    assert '"local"' in await output("setsid", "--wait", *curl(socket_of(bridge)))
    code, out, err = await bridge.run("users", "list")
    assert (code, err) == (0, ""), out


@ROOT_ONLY
async def test_other_namespace_is_refused(bridge: BridgeProcess) -> None:
    user = ["--user", "--map-root-user"]
    for namespace in (user, [*user, "--pid", "--fork"]):
        shown = await output("unshare", *namespace, *curl(socket_of(bridge)))
        assert "does not answer programs of an agent" in shown, namespace
    command = (sys.executable, "-m", "bridge", "users", "list", "--data", str(bridge.data))
    process = await asyncio.create_subprocess_exec("unshare", *user, *command, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(PATIENCE):
        _, err = await process.communicate()
    assert process.returncode
    assert "does not answer programs of an agent" in err.decode()


@pytest.mark.parametrize(
    "mark",
    [["env", "CLAUDE_CONFIG_DIR=/home/ada/work/.os/run/claude"], ["setpriv", "--no-new-privs"]],
    ids=["environment", "privileges"],
)
async def test_agent_mark_is_refused(bridge: BridgeProcess, mark: list[str]) -> None:
    """A detached program without a namespace still carries one of these marks."""
    assert "does not answer programs of an agent" in await output("setsid", "--wait", *mark, *curl(socket_of(bridge)))


async def test_connection_of_ended_process_is_refused(bridge: BridgeProcess) -> None:
    shown = await output(sys.executable, "-c", INHERITED, socket_of(bridge))
    assert shown.startswith("HTTP/1.1 403")


async def test_descendant_of_sprite_is_refused(bridge: BridgeProcess, tmp_path: Path) -> None:
    """The program runs below a process started like a sprite, in the bridge's namespace."""
    package = tmp_path / "sprite"
    package.mkdir()
    (package / "__main__.py").write_text("import subprocess, sys\nsubprocess.run(sys.argv[2:])\n")
    for between in ((), ("sh", "-c", '"$@"; true', "sh"), ("env", "-i", "PATH=/usr/bin:/bin")):
        shown = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sprite",
            "serve",
            *between,
            *curl(socket_of(bridge)),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE):
            out, _ = await shown.communicate()
        assert "does not answer programs of an agent" in out.decode(), between


async def test_detached_program_without_sandbox_is_refused(tmp_path: Path) -> None:
    """It has no mark of an agent, and no parent in it. Neither its own end nor that of its sprite helps."""
    ends = [tmp_path / name for name in ("while the sprite runs", "afterwards")]
    async with (
        OfflineModel() as model,
        bridge_process(
            tmp_path / "data",
            *("--permissions", "bypass"),
            SPRITE_SANDBOX="off",
            ANTHROPIC_API_KEY="sk-ant-planted-key",
            ANTHROPIC_BASE_URL=model.url,
        ) as bridge,
        bridge.page(await bridge.login()) as page,
    ):
        await page.link("ready")
        for number, end in enumerate(ends):
            line = DETACHED.format(go=f"{tmp_path}/go{number}", socket=socket_of(bridge), end=f'"{end}"')
            model.script.agent({"match": f"Begin {number}", "tool": "Bash", "input": {"command": line}})
            await page.mission(f"Begin {number}")
        for number, end in enumerate(ends):
            if number:
                sprite = next(pid for pid in descendants(bridge.process.pid) if _is_sprite(pid))
                os.kill(sprite, signal.SIGKILL)
            (tmp_path / f"go{number}").touch()
            await eventually(end.exists, "the program did not end")
            assert "does not answer programs of an agent" in end.read_text(), end.name


def _is_sprite(pid: int) -> bool:
    return b"\0-m\0sprite\0serve\0" in Path(f"/proc/{pid}/cmdline").read_bytes()


def as_other(user: int) -> None:
    os.setgroups([])
    os.setresuid(user, user, user)


@ROOT_ONLY
@pytest.mark.parametrize(("prepare", "words"), [(lambda: None, None), (lambda: as_other(12345), peer.OTHERS)])
async def test_other_user_is_refused(prepare: Callable[[], None], words: str | None) -> None:
    """The refusal also holds when the socket's mode allows the connection."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        Path(folder).chmod(0o755)
        path = f"{folder}/s"
        listener.bind(path)
        Path(path).chmod(0o666)
        listener.listen()
        child = os.fork()
        if child == 0:
            try:
                prepare()
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(path)
                    client.recv(1)
            finally:
                os._exit(0)
        try:
            connection, _ = await asyncio.to_thread(listener.accept)
            with connection:
                assert peer.refusal(connection) == words
        finally:
            await asyncio.to_thread(os.waitpid, child, 0)
