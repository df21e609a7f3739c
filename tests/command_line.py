"""The commands of `python -m sprite`, run by tests: in this process, as a process, or as one that is killed."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path
from typing import Any

from sprite.__main__ import run
from sprite.cli import change
from sprite.cli.rebuild import rebuild as rebuild_command
from sprite.config import Settings
from sprite.server import serve
from tests.forking import ForkedProcess, fork_module
from tests.harness import PATIENCE, sprite_environment
from tests.in_thread import call_main
from tests.scripted_model import OfflineModel


def settings_of(workspace: Path, model: OfflineModel | None = None, **more: Any) -> Settings:
    """Return the settings that the command line makes from a workspace's flags and environment."""
    url = model.url if model else None
    return Settings(workspace, port=0, api_key="offline" if model else None, base_url=url, **more)


async def forget(workspace: Path, **target: Any) -> None:
    """Run `memory forget --yes` in this process."""
    given = {"text": None, "turn": None, "session": None, "learning": None, "yes": True, "json": True, **target}
    assert await change.forget(settings_of(workspace), argparse.Namespace(**given)) == 0


async def rebuild(workspace: Path, model: OfflineModel | None = None, **more: Any) -> None:
    """Run `rebuild` in this process, with a model `rebuild --re-extract`."""
    settings = settings_of(workspace, model, **more)
    arguments = argparse.Namespace(re_extract=model is not None, reapply=False, dry_run=False, json=True)
    assert await rebuild_command(settings, arguments) == 0


async def restart_server(workspace: Path, model: OfflineModel | None = None) -> None:
    """Start a server in this process, and stop it once it listens."""
    stop = asyncio.Event()
    async with asyncio.timeout(PATIENCE):
        await serve(settings_of(workspace, model), lambda _host, _port: stop.set(), stop)


async def command(workspace: Path, *arguments: str, model_url: str | None = None, **extra: str) -> tuple[int, str, str]:
    """Run `sprite ...` on a workspace in a thread of this process: (exit code, stdout, stderr)."""
    variables = sprite_environment(model_url, **{"HOME": os.devnull, **extra})
    return await call_main(run, [*arguments, "--workspace", str(workspace)], variables)


async def started(workspace: Path, *arguments: str, model_url: str | None = None, **extra: str) -> ForkedProcess:
    """Run `python -m sprite ...` on a workspace as a forked process with pipes for stdout and stderr."""
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
    """Run a command as a process, killed after a time or at an event; return its exit code and seconds."""
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
