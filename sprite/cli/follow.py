"""`follow`: take each turn of Claude Code's sessions as it ends, only from their logs."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from sprite.cli.output import say
from sprite.common.locks import LockHeldError, held
from sprite.common.settings import claude_code_logs
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.imports.follower import Follower, Marks
from sprite.memory.folders import make_folders
from sprite.protocol.framing import one_line
from sprite.protocol.shapes import counted


async def follow(settings: Settings, arguments: argparse.Namespace) -> int:
    """Import turns from growing session logs until a signal ends it. Turns not delivered then stay in the logs."""
    # Made absolute without resolving links, so that a path is shown by the given name.
    roots = [Path(os.path.abspath(path)) for path in arguments.paths] or [claude_code_logs()]  # noqa: PTH100
    for root in arguments.paths:
        if not root.exists():
            raise OperatorError(f"{one_line(root)} does not exist: name a folder of session logs, or one log.")
    make_folders(settings)
    settings.follow.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(held(settings.follow / "lock", settings.follow))
        except LockHeldError as error:
            raise OperatorError(
                f"Another follower (process {error.owner}) already imports Claude Code's turns for {settings.follow}. "
                "One is enough: it sees every session. Stop it first to run this one."
            ) from error
        follower = Follower(settings, roots, Marks(settings.follow / "marks.json"), _told)
        _end_on_signals()
        try:
            sessions = await follower.look()
            _told(f"following {counted(sessions, 'session')} below {', '.join(map(one_line, roots))}")
            await follower.run()
        except asyncio.CancelledError:
            return 0
    return 0


def _told(line: str) -> None:
    say(line)
    sys.stdout.flush()


def _end_on_signals() -> None:
    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
