"""One emulated VM: a folder for its disk, real processes for its processes, and the three states it can be in.

What a VM would see as /workspace is a folder here, and its port a free one of this machine: both are put into every
command that names them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import sys
import sysconfig
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from tests.forking import ROOT, forking_address
from tests.ports import free_port

Status = Literal["cold", "warm", "running"]

#: Every process of a VM inherits it; so they are all found, however they were started.
_MARK = "EMULATED_SPRITE"
#: Where its Python has itself forked, see fork_client.py; "" for processes that are started anew.
_FORKS = "EMULATED_SPRITE_FORKS"
_LONGEST_RESTART_SECONDS = 5.0
#: The image has Python; its packages are those of the tests, so that pip finds all it would have to download, and is
#: there itself: to install it takes longer than all else of a deploy.
_PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
  "{python}" "$@" --without-pip || exit
  for folder; do :; done
  for packages in "$folder"/lib/python3.*/site-packages; do echo "{packages}" > "$packages/image.pth"; done
  mv "$folder/bin/python" "$folder/bin/image-python"
  cp "{forking}" "$folder/bin/python"
  exit
fi
exec "{python}" "$@"
"""
#: The `python` of an environment. A sprite of its whole packages is forked from a process that has them imported; any
#: other program, and a sprite for which FORKS is empty, is started anew.
_FORKING = """#!/bin/sh
packages="${{0%/bin/*}}/lib/python{version}/site-packages/image.pth"
if [ -n "$EMULATED_SPRITE_FORKS" ] && [ "$1 $2" = "-m sprite" ] && [ -e "$packages" ]; then
  shift
  exec "{python}" -I -S "{client}" "$EMULATED_SPRITE_FORKS" "$@"
fi
exec "${{0%/*}}/image-python" "$@"
"""

Event = dict[str, Any]


class Overhearing(Protocol):
    """Hears one connection through the TCP proxy, each piece before it is passed on."""

    def to_sprite(self, data: bytes) -> None: ...

    def from_sprite(self, data: bytes) -> None: ...


@dataclass(slots=True)
class Service:
    """A process the VM keeps running while it is wanted."""

    name: str
    definition: dict[str, Any]
    wanted: bool = False
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    listeners: list[Callable[[Event], None]] = field(default_factory=list)
    keeper: asyncio.Task[None] | None = None

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def tell(self, event: Event) -> None:
        for listener in self.listeners:
            listener({"timestamp": int(time.time() * 1000), **event})


class Machine:
    """A VM. `root` is its disk; `wake` is called by every request that needs it to run."""

    def __init__(self, name: str, root: Path, sockets: Path) -> None:
        self.id = str(uuid.uuid4())
        self.name = name
        self.root = root
        self.status: Status = "cold"
        self.port = free_port()
        self.services: dict[str, Service] = {}
        self.tasks: dict[str, float] = {}
        #: Every hold that was ever asked for, with what it asked.
        self.task_calls: list[tuple[str, str]] = []
        #: The methods of calls for holds that are answered with 503 instead, one each.
        self.refusals: list[str] = []
        self.policy: list[dict[str, str]] = []
        self.checkpoints: list[dict[str, Any]] = []
        self.socket = sockets / f"{self.id[:8]}.sock"
        #: What the image's environment says beside what every one does.
        self.environment: dict[str, str] = {}
        #: Who hears what passes through the TCP proxy, made anew for each connection.
        self.overheard: Callable[[], Overhearing] | None = None
        self.is_disk_full = False
        self.has_services = True
        self.wakes = 0
        self._cuts: set[Callable[[], None]] = set()
        self._spawned: list[asyncio.subprocess.Process] = []
        for folder in ("bin", "home", "tmp"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
        forking = self.root / "bin/forking-python"
        client, version = ROOT / "tests/fork_client.py", f"3.{sys.version_info.minor}"
        self.put_tool(forking.name, _FORKING.format(python=python, client=client, version=version))
        packages = sysconfig.get_paths()["purelib"]
        self.put_tool("python3", _PYTHON.format(python=python, packages=packages, forking=forking))

    # --- the disk ---

    def put_tool(self, name: str, script: str) -> None:
        """A program of the image, before those of this machine in its PATH."""
        path = self.root / "bin" / name
        path.write_text(script)
        path.chmod(0o755)

    def on_disk(self, path: str, working_directory: str = "/") -> Path:
        """Where a path of the VM is here; an absolute one, or one below a directory of the VM."""
        joined = os.path.normpath(Path("/") / working_directory / path)
        return self.root / joined.lstrip("/")

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    # --- states ---

    async def wake(self) -> None:
        """Whatever it did, it runs."""
        if self.status == "running":
            return
        was, self.status = self.status, "running"
        self.wakes += 1
        if was == "warm":
            self._signal(signal.SIGCONT)
        else:
            for service in self.services.values():
                if service.wanted:
                    await self._spawn(service)

    async def sleep(self, kind: Literal["warm", "cold"]) -> None:
        """Freezes it, or takes its memory away; every connection is cut either way."""
        self.status = kind
        if kind == "warm":
            self._signal(signal.SIGSTOP)
        else:
            await self._end_processes()
        self.cut()

    @property
    def is_held(self) -> bool:
        """Whether a task keeps it from falling asleep."""
        return any(ends > time.monotonic() for ends in self.tasks.values())

    async def doze(self, kind: Literal["warm", "cold"] = "warm") -> bool:
        """Sleeps as an idle VM does: not while a task holds it. Whether it sleeps now."""
        if self.is_held:
            return False
        await self.sleep(kind)
        return True

    def cut(self) -> None:
        """Cuts every connection from outside."""
        for cut in list(self._cuts):
            cut()

    def on_cut(self, cut: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """Calls it when connections are cut, while the block runs."""

        @contextlib.contextmanager
        def registered() -> Any:
            self._cuts.add(cut)
            try:
                yield
            finally:
                self._cuts.discard(cut)

        return registered()

    async def close(self) -> None:
        self.status = "cold"
        self.cut()
        await self._end_processes()

    # --- processes ---

    def translated(self, text: str) -> str:
        """A command's words with this VM's folder and port in place of the ones it names."""
        for there, here in (
            ("/workspace", str(self.workspace)),
            ("8765", str(self.port)),
            ("0.0.0.0", "127.0.0.1"),  # noqa: S104 - what is never listened on here
        ):
            text = text.replace(there, here)
        return text

    async def spawn(
        self, command: Sequence[str], environment: Mapping[str, str], directory: str | None
    ) -> asyncio.subprocess.Process:
        """Starts a process of the VM, in a group of its own."""
        base = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "tmp"),
            "LANG": "C.UTF-8",
            "IS_SANDBOX": "1",
            "SSL_CERT_FILE": os.environ["SSL_CERT_FILE"],
            "CLAUDE_CODE_MAX_RETRIES": "0",
            # An agent that is started ahead takes seconds of a core, and few tests have it do anything.
            "SPRITE_PREWARM_SECONDS": "0",
            "TESTS_VM_SOCKET": str(self.socket),
            _MARK: self.id,
            _FORKS: await asyncio.to_thread(forking_address),
        }
        process = await asyncio.create_subprocess_exec(
            *(self.translated(word) for word in command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**base, **self.environment, **{k: self.translated(v) for k, v in environment.items()}},
            cwd=self.translated(directory) if directory else self.root,
            start_new_session=True,
        )
        self._spawned = [*(other for other in self._spawned if other.returncode is None), process]
        return process

    def processes(self) -> list[int]:
        """Every process of this VM, by its mark."""
        mark = f"{_MARK}={self.id}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def _signal(self, number: int) -> None:
        # Twice: what was started while the first round went on.
        for _ in range(2):
            for process in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)

    async def _end_processes(self) -> None:
        for service in self.services.values():
            if service.keeper is not None:
                service.keeper.cancel()
                await asyncio.gather(service.keeper, return_exceptions=True)
                service.keeper = None
        self._signal(signal.SIGKILL)
        # Services, and commands whose caller is gone.
        for process in self._spawned:
            await process.wait()
        while self.processes():  # noqa: ASYNC110 - they are children of somebody else
            await asyncio.sleep(0.01)

    # --- services ---

    async def start(self, service: Service) -> None:
        service.wanted, service.restarts = True, 0
        if not service.runs:
            await self._spawn(service)
        service.tell({"type": "started"})

    async def stop(self, service: Service, seconds: float) -> None:
        service.wanted = False
        if service.runs and service.process is not None:
            service.process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await service.process.wait()
            if service.process.returncode is None:
                os.killpg(service.process.pid, signal.SIGKILL)
                await service.process.wait()
        service.tell({"type": "stopped"})

    async def _spawn(self, service: Service) -> None:
        if service.keeper is not None:
            service.keeper.cancel()
            await asyncio.gather(service.keeper, return_exceptions=True)
        definition = service.definition
        command = [definition["cmd"], *definition.get("args", [])]
        service.process = await self.spawn(command, definition.get("env") or {}, definition.get("dir"))
        service.keeper = asyncio.create_task(self._keep(service, service.process), name=f"service {service.name}")

    async def _keep(self, service: Service, process: asyncio.subprocess.Process) -> None:
        async def listen(kind: str, stream: asyncio.StreamReader | None) -> None:
            while stream is not None and (line := await stream.readline()):
                service.tell({"type": kind, "data": line.decode(errors="replace")})

        await asyncio.gather(listen("stdout", process.stdout), listen("stderr", process.stderr))
        code = await process.wait()
        service.tell({"type": "exit", "exit_code": code if code >= 0 else 128 - code})
        if service.wanted and self.status == "running":
            service.restarts += 1
            await asyncio.sleep(min(_LONGEST_RESTART_SECONDS, 0.25 * 2**service.restarts))
            if service.wanted and self.status == "running":
                # This task ends with the process that follows.
                service.keeper = None
                await self._spawn(service)

    @contextlib.asynccontextmanager
    async def listening(self, service: Service) -> AsyncIterator[asyncio.Queue[Event]]:
        events: asyncio.Queue[Event] = asyncio.Queue()
        service.listeners.append(events.put_nowait)
        try:
            yield events
        finally:
            service.listeners.remove(events.put_nowait)

    # --- checkpoints ---

    def keep(self, comment: str) -> str:
        name = f"v{len(self.checkpoints) + 1}"
        shutil.copytree(self.workspace, self.root / "checkpoints" / name, symlinks=True, ignore=no_sockets)
        self.checkpoints.append({"id": name, "create_time": "2026-11-20T12:00:00Z", "comment": comment})
        return name

    async def restore(self, name: str) -> None:
        await self.sleep("cold")
        shutil.rmtree(self.workspace)
        shutil.copytree(self.root / "checkpoints" / name, self.workspace, symlinks=True)
        await self.wake()


def no_sockets(folder: str, names: list[str]) -> list[str]:
    """Return the names of sockets, which cannot be copied, for `shutil.copytree`."""
    return [name for name in names if stat.S_ISSOCK((Path(folder) / name).lstat().st_mode)]
