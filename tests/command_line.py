"""The commands of `python -m sprite`, run by tests: in this process, as a process, or as one that can be killed."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path
from typing import Any

from bridge.fake_model.model import OfflineModel
from sprite.__main__ import run
from sprite.cli import change
from sprite.cli.rebuild import rebuild as rebuild_command
from sprite.config import Settings
from sprite.server import serve
from tests.forking import ForkedProcess, fork_module
from tests.harness import PATIENCE, sprite_environment
from tests.in_thread import call_main


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


async def command(workspace: Path, *arguments: str, model_url: str | None = None, **extra: str) -> tuple[int, str, str]:
    """`sprite ...` on a workspace, in a thread of this process: (exit code, stdout, stderr)."""
    variables = sprite_environment(model_url, **{"HOME": os.devnull, **extra})
    return await call_main(run, [*arguments, "--workspace", str(workspace)], variables)


async def started(workspace: Path, *arguments: str, model_url: str | None = None, **extra: str) -> ForkedProcess:
    """`python -m sprite ...` on a workspace, as a forked process with pipes for stdout and stderr."""
    return await fork_module(
        "sprite",
        *arguments,
        "--workspace",
        str(workspace),
        env=sprite_environment(model_url, **{"HOME": os.devnull, **extra}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def killed(
    workspace: Path,
    *arguments: str,
    model: OfflineModel | None = None,
    seconds: float | None = None,
    until: asyncio.Event | None = None,
    **extra: str,
) -> tuple[int, float]:
    """Run a command as a process, killed after so many seconds or at an event: exit code, seconds that it took."""
    began = time.monotonic()
    process = await fork_module(
        "sprite",
        *arguments,
        "--workspace",
        str(workspace),
        env=sprite_environment(model.url if model else None, **{"HOME": os.devnull, **extra}),
    )
    ended = asyncio.create_task(process.wait())
    waits = {ended} if until is None else {ended, asyncio.create_task(until.wait())}
    await asyncio.wait(waits, timeout=PATIENCE if seconds is None else seconds, return_when=asyncio.FIRST_COMPLETED)
    process.kill()
    code = await ended
    for wait in waits:
        wait.cancel()
    return code, time.monotonic() - began
