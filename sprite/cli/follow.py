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
from typing import Any

from tqdm import tqdm

from sprite.cli.output import say, say_json, warn
from sprite.common.locks import LockHeldError, held
from sprite.common.settings import claude_code_logs
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.imports.follow.files import Marks
from sprite.imports.follow.follower import Follower, Tally
from sprite.memory.folders import make_folders
from sprite.protocol.framing import one_line

EXIT_SOME_REFUSED = 1
EXIT_NOTHING_READ = 2


async def follow(settings: Settings, arguments: argparse.Namespace) -> int:
    """Follow until a signal ends it, which is no error; with `--once` catch up and print the result."""
    if arguments.json and not arguments.once:
        raise OperatorError("--json is for --once: it says what was taken when all of it was.")
    # Made absolute without resolving links, so that a path is shown by the given name.
    roots = [Path(os.path.abspath(path)) for path in arguments.paths] or [claude_code_logs()]  # noqa: PTH100
    make_folders(settings)
    settings.follow.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _only_one(settings.follow / "lock"):
        tell = _untold if arguments.once else _told
        follower = Follower(settings, roots, Marks(settings.follow / "marks.json"), tell)
        _end_on_signals()
        try:
            if arguments.once:
                return await _once(follower, roots, as_json=arguments.json)
            return await _on(follower, roots)
        except asyncio.CancelledError:
            return 0


async def _on(follower: Follower, roots: list[Path]) -> int:
    sessions, waiting = await follower.look()
    below = ", ".join(one_line(root) for root in roots)
    _told(f"following {sessions} session{'' if sessions == 1 else 's'} below {below}")
    with _progress(follower, waiting):
        await follower.catch_up()
    await follower.run()
    return 0


async def _once(follower: Follower, roots: list[Path], *, as_json: bool) -> int:
    for root in roots:
        if not root.exists():
            raise OperatorError(
                f"There is nothing at {one_line(root)}: say where Claude Code keeps its sessions' logs."
            )
    sessions, waiting = await follower.look()
    with _progress(follower, waiting):
        await follower.catch_up_whole()
    tally = follower.tally
    if as_json:
        say_json(_facts(follower, sessions))
    else:
        _print(follower, sessions)
    if tally.refused and not sessions:
        return EXIT_NOTHING_READ
    return EXIT_SOME_REFUSED if tally.refused or tally.delivered.refused else 0


@contextmanager
def _progress(follower: Follower, waiting: int) -> Iterator[None]:
    with tqdm(total=waiting, unit="B", unit_scale=True, desc="catching up", disable=None, leave=False) as bar:
        follower.on_bytes = bar.update
        yield
    follower.on_bytes = lambda _count: None


def _untold(_line: str) -> None:
    """Ignore progress lines, because `--once` prints a summary."""


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
    """Hold the lock of followers, which the kernel releases with the process. Raises OperatorError if it is taken."""
    with ExitStack() as stack:
        try:
            stack.enter_context(held(path, path.parent))
        except LockHeldError as error:
            raise OperatorError(
                f"Another follower (process {error.owner}) already takes Claude Code's turns for {path.parent}. "
                "One is enough: it sees every session. Stop it first to run this one."
            ) from error
        yield


# --- output ---


def _facts(follower: Follower, sessions: int) -> dict[str, Any]:
    tally = follower.tally
    return {
        "followed": sessions,
        "sessions": len(tally.sessions),
        "turns": tally.delivered.stored,
        "already_known": tally.delivered.known,
        "still_open": follower.open_turns,
        "damaged_lines": tally.damaged,
        "refused_turns": [{"external_id": key, "why": why} for key, why in tally.delivered.refused],
        "refused": [{"path": str(path), "reason": reason} for path, reason in tally.refused.items()],
    }


def _print(follower: Follower, sessions: int) -> None:
    tally: Tally = follower.tally
    say(
        f"Took {tally.delivered.stored} turn(s) of {len(tally.sessions)} session(s); {tally.delivered.known} were in "
        f"the log already. {sessions} session(s) are there."
    )
    if tally.damaged:
        warn(f"{tally.damaged} damaged line(s) were skipped")
    if follower.open_turns:
        say(f"{follower.open_turns} turn(s) still go on and are left for the next time.")
