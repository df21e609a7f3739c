"""Access for operators' commands: the running bridge of a data folder, or the folder itself if no bridge runs."""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from bridge.admin import control
from bridge.admin.control import ControlError, NoBridgeError
from bridge.config import Settings
from bridge.db import data_folder

#: A bridge that owns the folder but does not answer is starting or stopping.
_STARTING_SECONDS = 10.0
_POLL_SECONDS = 0.2


@asynccontextmanager
async def running_bridge(settings: Settings) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session with the running bridge, after waiting for one that is starting.

    Raises NoBridgeError if no bridge owns the data folder.
    """
    deadline = time.monotonic() + _STARTING_SECONDS
    async with AsyncExitStack() as stack:
        while True:
            try:
                session = await stack.enter_async_context(control.control_session(settings.run))
                break
            except NoBridgeError:
                if not data_folder.is_taken(settings) or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_POLL_SECONDS)
        yield session


@asynccontextmanager
async def bridge_or_folder(settings: Settings) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session with the running bridge or, if none runs, with its operators' handlers in this process."""
    async with AsyncExitStack() as stack:
        try:
            session = await stack.enter_async_context(running_bridge(settings))
        except NoBridgeError:
            from bridge.app import operated

            session = await stack.enter_async_context(operated(settings))
        yield session


async def ask(
    settings: Settings, method: str, path: str, body: object = None, *, type_: Any = Any, seconds: float = 30.0
) -> Any:
    """Send one request to the running bridge or, if none runs, handle it in this process. Return the answer.

    A request that only reads does not create the data folder, because `--data` may be mistyped.
    """
    if method == "GET" and settings.database_url is None and not settings.data.is_dir():
        raise ControlError(
            f"There is no data folder {settings.data}. Name it with --data DIR, or start a bridge on it."
        )
    async with bridge_or_folder(settings) as session:
        return msgspec.convert(await control.ask(session, method, path, body, seconds=seconds), type_)


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the option `--data`."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="default: SPRITE_DATA, else data/ in the checkout")


def day(at: float) -> str:
    """Return a time's date in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def say(*lines: str) -> None:
    """Print lines and flush."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def add_as_of(parser: argparse.ArgumentParser) -> None:
    """Add the option `--as-of`."""
    parser.add_argument(
        "--as-of",
        metavar="TIME",
        help="time of the replica to use: 2026-11-22T10:30 (in UTC unless it names a zone)",
    )


def moment(text: str, now: float) -> float:
    """Parse a typed time into Unix seconds, relative to `now`.

    Raises ControlError if it is invalid or in the future.
    """
    text = text.strip()
    try:
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ControlError(f"{text[:40]!r} is not a valid time. Write it like 2026-11-22T10:30.") from None
    if seconds > now:
        raise ControlError(f"{text[:40]} is in the future. Times without a zone are in UTC.")
    return seconds
