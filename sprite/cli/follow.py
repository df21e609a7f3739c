"""`follow`: take each turn of Claude Code's sessions as it ends, only from their logs.

A signal cancels it: undelivered turns are still in the logs, and their keys prevent duplicates.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sprite.cli.output import say
from sprite.common.locks import LockHeldError, held
from sprite.common.settings import claude_code_logs
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.imports.follower import Follower, Marks
from sprite.memory.folders import make_folders
from sprite.protocol.framing import one_line


async def follow(settings: Settings, arguments: argparse.Namespace) -> int:
    """Import turns from growing session logs until a signal ends it, which is no error."""
    # Made absolute without resolving links, so that a path is shown by the given name.
    roots = [Path(os.path.abspath(path)) for path in arguments.paths] or [claude_code_logs()]  # noqa: PTH100
    for root in arguments.paths:
        if not root.exists():
            raise OperatorError(f"{one_line(root)} does not exist: name a folder of session logs, or one log.")
    make_folders(settings)
    settings.follow.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _only_one(settings.follow / "lock"):
        follower = Follower(settings, roots, Marks(settings.follow / "marks.json"), _told)
        _end_on_signals()
        try:
            sessions = await follower.look()
            below = ", ".join(one_line(root) for root in roots)
            _told(f"following {sessions} session{'' if sessions == 1 else 's'} below {below}")
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


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold the lock file of `follow` while the block runs, so that only one `follow` runs.

    Raise OperatorError if another process holds it. The kernel releases it with the process.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(held(path, path.parent))
        except LockHeldError as error:
            raise OperatorError(
                f"Another follower (process {error.owner}) already imports Claude Code's turns for {path.parent}. "
                "One is enough: it sees every session. Stop it first to run this one."
            ) from error
        yield
