"""`follow`: take each turn of Claude Code's sessions as it ends, only from their logs.

A signal cancels it: undelivered turns are still in the logs, and their keys prevent duplicates.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import hashlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sprite.cli.output import say, say_json, warn
from sprite.common.settings import claude_code_logs
from sprite.config import Settings, state_home
from sprite.errors import OperatorError
from sprite.imports.follow.delivery import Delivery, LocalDelivery, RemoteDelivery, Spool, checked_url, token_from
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
    url = None if arguments.to is None else checked_url(arguments.to)
    token = _token(settings, arguments, url)
    folder = _folder(settings, url)
    with _only_one(folder / "lock"):
        async with _delivery(settings, folder, url, token) as delivery:
            tell = _untold if arguments.once else _told
            follower = Follower(settings, roots, delivery, Marks(folder / "marks.json"), tell)
            _end_on_signals()
            try:
                if arguments.once:
                    return await _once(follower, roots, delivery, as_json=arguments.json)
                return await _on(follower, roots)
            except asyncio.CancelledError:
                return 0


def _token(settings: Settings, arguments: argparse.Namespace, url: str | None) -> Callable[[], str]:
    if url is None and arguments.token_file is not None:
        raise OperatorError("--token-file is for --to: the sprite on this machine needs no token of yours.")
    token = token_from(arguments.token_file, settings.bridge_token)
    if url is not None:
        # Check the token now, not when the first turn ends.
        token()
    return token


def _folder(settings: Settings, url: str | None) -> Path:
    """Create the folder for a follower's state: of a workspace, or of a remote bridge."""
    if url is None:
        make_folders(settings)
        folder = settings.follow
    else:
        folder = state_home() / "sprite-follow" / hashlib.sha256(url.encode()).hexdigest()[:16]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@asynccontextmanager
async def _delivery(
    settings: Settings, folder: Path, url: str | None, token: Callable[[], str]
) -> AsyncIterator[Delivery]:
    if url is None:
        yield LocalDelivery(settings)
    else:
        async with RemoteDelivery(url, token, Spool(folder / "spool")) as remote:
            yield remote


async def _on(follower: Follower, roots: list[Path]) -> int:
    sessions, waiting = await follower.look()
    below = ", ".join(one_line(root) for root in roots)
    _told(f"following {sessions} session{'' if sessions == 1 else 's'} below {below}")
    with _progress(follower, waiting):
        await follower.catch_up()
    await follower.run()
    return 0


async def _once(follower: Follower, roots: list[Path], delivery: Delivery, *, as_json: bool) -> int:
    for root in roots:
        if not root.exists():
            raise OperatorError(
                f"There is nothing at {one_line(root)}: say where Claude Code keeps its sessions' logs."
            )
    sessions, waiting = await follower.look()
    with _progress(follower, waiting):
        await follower.catch_up_whole()
    tally = follower.tally
    tally.delivered.add(await delivery.work())
    if as_json:
        say_json(_facts(follower, sessions, delivery.waiting))
    else:
        _print(follower, sessions, delivery.waiting)
    if delivery.waiting:
        return EXIT_SOME_REFUSED
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
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = file.read(32).strip() or "unknown"
            raise OperatorError(
                f"Another follower (process {owner}) already takes Claude Code's turns for {path.parent}. "
                "One is enough: it sees every session. Stop it first to run this one."
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


# --- output ---


def _facts(follower: Follower, sessions: int, waiting: int) -> dict[str, Any]:
    tally = follower.tally
    return {
        "followed": sessions,
        "sessions": len(tally.sessions),
        "turns": tally.delivered.stored,
        "already_known": tally.delivered.known,
        "still_open": follower.open_turns,
        "damaged_lines": tally.damaged,
        "calls_waiting": waiting,
        "refused_turns": [{"external_id": key, "why": why} for key, why in tally.delivered.refused],
        "refused": [{"path": str(path), "reason": reason} for path, reason in tally.refused.items()],
    }


def _print(follower: Follower, sessions: int, waiting: int) -> None:
    tally: Tally = follower.tally
    say(
        f"Took {tally.delivered.stored} turn(s) of {len(tally.sessions)} session(s); {tally.delivered.known} were in "
        f"the log already. {sessions} session(s) are there."
    )
    if waiting:
        warn("the bridge has not taken everything: the rest waits on this disk, and goes with the next call")
    if tally.damaged:
        warn(f"{tally.damaged} damaged line(s) were skipped")
    if follower.open_turns:
        say(f"{follower.open_turns} turn(s) still go on and are left for the next time.")
