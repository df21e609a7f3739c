"""The commands of `python -m sprite`, run by tests: in this process, as a process, or as one that can be killed."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bridge.offline.model import OfflineModel
from sprite.commands import change
from sprite.commands.rebuild import rebuild as rebuild_command
from sprite.config import Settings
from sprite.server import serve
from tests.harness import PATIENCE, ROOT, sprite_environment


def settings_of(workspace: Path, model: OfflineModel | None = None, **more: Any) -> Settings:
    """What the command line would make of a workspace's flags and environment."""
    url = model.url if model else None
    return Settings(workspace, port=0, api_key="offline" if model else None, base_url=url, **more)


async def forget(workspace: Path, **target: Any) -> None:
    """`memory forget --yes`, in this process."""
    given = {"text": None, "turn": None, "session": None, "learning": None, "yes": True, "json": True, **target}
    assert await change.forget(settings_of(workspace), argparse.Namespace(**given)) == 0


async def rebuild(workspace: Path, model: OfflineModel | None = None, **more: Any) -> None:
    """`rebuild`, or with a model `rebuild --re-extract`, in this process."""
    settings = settings_of(workspace, model, **more)
    assert await rebuild_command(settings, re_extract=model is not None, dry_run=False, as_json=True) == 0


async def restart_server(workspace: Path, model: OfflineModel | None = None) -> None:
    """Starts a server, and stops it once it listens, in this process."""
    stop = asyncio.Event()
    async with asyncio.timeout(PATIENCE):
        await serve(settings_of(workspace, model), lambda _host, _port: stop.set(), stop)


async def command(
    workspace: Path, *arguments: str, model_url: str | None = None, within: Sequence[str] = (), **extra: str
) -> tuple[int, str, str]:
    """`python -m sprite ...` on a workspace: (exit code, stdout, stderr). `within`: a command that becomes it."""
    process = await started(workspace, *arguments, model_url=model_url, within=within, **extra)
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def started(
    workspace: Path, *arguments: str, model_url: str | None = None, within: Sequence[str] = (), **extra: str
) -> asyncio.subprocess.Process:
    """The same, as it runs."""
    return await asyncio.create_subprocess_exec(
        *(*within, sys.executable),
        *("-m", "sprite", *arguments, "--workspace", str(workspace)),
        cwd=ROOT,
        env=sprite_environment(model_url, **{"HOME": os.devnull, **extra}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


class KillableCommands:
    """Commands that can be killed in the middle of their work: each is forked from a process that has imported all."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(
        self, workspace: Path, *arguments: str, seconds: float | None = None, until: asyncio.Event | None = None
    ) -> tuple[int, float]:
        """Runs a command, killed after so many seconds or when something happens; (exit code, how long it took)."""
        assert self._process.stdin is not None
        self._process.stdin.write("\0".join((*arguments, "--workspace", str(workspace))).encode() + b"\n")
        pid = await self._answer()
        began = time.monotonic()
        ended = asyncio.create_task(self._answer())
        waits = {ended} if until is None else {ended, asyncio.create_task(until.wait())}
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if ended not in done:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return await ended, time.monotonic() - began

    async def _answer(self) -> int:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return int(await self._process.stdout.readline())


_FORKING = """
import os, sys
from sprite.__main__ import main
from sprite.commands import change, import_logs, rebuild
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        os.dup2(2, 1)
        os._exit(main(line.rstrip().split(chr(0))))
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@asynccontextmanager
async def killable_commands(model: OfflineModel | None = None, **extra: str) -> AsyncIterator[KillableCommands]:
    """A process that forks commands, for killing them."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", _FORKING),
        cwd=ROOT,
        env=sprite_environment(model.url if model else None, **{"HOME": os.devnull, "PYTHONPATH": str(ROOT), **extra}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield KillableCommands(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
