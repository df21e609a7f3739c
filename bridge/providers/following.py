"""Supervise the follower of Claude Code's session logs, a process beside the local user's sprite.

It starts and stops with the bridge and is restarted when it dies. It uses nothing of the bridge: it sends what it
reads to the sprite of its workspace, or writes it straight into that sprite's log. It catches up on everything it
missed.

The sprite is started with it, even if no page is ever opened: only a sprite learns from sessions, and prepares the
memory for the next one.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from bridge.providers.local import passed_on
from bridge.providers.provider import HostError
from bridge.providers.vm_scripts import printable
from sprite.common.tasks import TaskSet, backoff

log = logging.getLogger(__name__)

#: The folder from which `python -m sprite` imports the package.
_ROOT = Path(__file__).resolve().parents[2]
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 60.0
#: A follower that ran this long was healthy: its death counts as the first.
_WELL_SECONDS = 60.0
#: It ends by itself within a second.
_STOP_SECONDS = 5.0


class Following:
    """`async with Following(workspace, logs, environment, start_sprite):` keeps one follower running."""

    def __init__(
        self, workspace: Path, logs: Path, environment: Mapping[str, str], start_sprite: Callable[[], Awaitable[None]]
    ) -> None:
        self._command = [sys.executable, "-m", "sprite", "follow", str(logs), "--workspace", str(workspace)]
        self._environment = passed_on(environment)
        self._start_sprite = start_sprite
        self._process: asyncio.subprocess.Process | None = None
        self._tasks = TaskSet()

    async def __aenter__(self) -> Self:
        self._tasks.start(self._keep(), "follower")
        self._tasks.start(self._wake(), "sprite of the follower")
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._tasks.close()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()

    async def _wake(self) -> None:
        try:
            await self._start_sprite()
        except HostError as error:
            # The next client triggers another try; meanwhile the follower writes straight into the log.
            log.warning("the sprite that learns from followed sessions does not run: %s", error)

    async def _keep(self) -> None:
        deaths = 0
        while True:
            began = time.monotonic()
            try:
                code = await self._run()
            except OSError as error:
                log.warning("the follower of session logs cannot be started (%s)", error.strerror)
            else:
                how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
                log.warning("the follower of session logs %s, and is started again; it misses nothing", how)
            deaths = 1 if time.monotonic() - began > _WELL_SECONDS else deaths + 1
            await asyncio.sleep(backoff(deaths - 1, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS))

    async def _run(self) -> int:
        # setpriv, if installed, ends the follower even when the bridge is killed.
        lifeline = [found, "--pdeathsig", "TERM"] if (found := shutil.which("setpriv")) else []
        self._process = await asyncio.create_subprocess_exec(
            *lifeline,
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
            cwd=_ROOT,
            start_new_session=True,
        )
        said = self._process.stdout
        while said is not None and (line := await said.readline()):
            log.info("follower: %s", printable(line.decode(errors="replace").rstrip()))
        return await self._process.wait()
