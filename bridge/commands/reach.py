"""Access for operators' commands: the running bridge of a data folder, or the folder itself if no bridge runs."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from bridge.admin import control
from bridge.admin.control import ControlError, NoBridgeError
from bridge.admin.operator_actions import Acts, people_alone
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
async def bridge_or_acts(settings: Settings) -> AsyncIterator[tuple[aiohttp.ClientSession | None, Any]]:
    """Yield a session with the running bridge and None, or None and the acts on the data folder, owned meanwhile."""
    async with AsyncExitStack() as stack:
        session = acts = None
        try:
            session = await stack.enter_async_context(running_bridge(settings))
        except NoBridgeError:
            acts = await stack.enter_async_context(people_alone(settings))
        yield session, acts


async def ask_or_act(
    settings: Settings,
    method: str,
    path: str,
    act: Callable[[Acts], Awaitable[Any]],
    *,
    body: object = None,
    field: str | None = None,
    type_: Any = Any,
) -> Any:
    """Ask the running bridge, or do `act` on the data folder if none runs. Return the answer, or one field of it."""
    async with bridge_or_acts(settings) as (session, acts):
        if session is None:
            return await act(acts)
        answer = await control.ask(session, method, path, body)
    return msgspec.convert(answer if field is None else answer[field], type_)


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add `--data`."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="default: SPRITE_DATA, else data/ in the checkout")


def day(at: float) -> str:
    """Return the date in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def say(*lines: str) -> None:
    """Print lines and flush."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


_UNITS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_AGO: Final = re.compile(rf"(\d{{1,6}}) ({'|'.join(_UNITS)})s? ago", re.IGNORECASE | re.ASCII)


def add_as_of(parser: argparse.ArgumentParser) -> None:
    """Add `--as-of`."""
    parser.add_argument(
        "--as-of",
        metavar="TIME",
        help="what is kept, as it was then: 2026-11-22T10:30 (in UTC, unless it says another zone) or '2 hours ago'",
    )


def moment(text: str, now: float) -> float:
    """Parse a typed time into Unix seconds, relative to `now`.

    Raises ControlError if it is invalid or in the future.
    """
    text = text.strip()
    if (found := _AGO.fullmatch(text)) is not None:
        return now - int(found[1]) * _UNITS[found[2].lower()]
    try:
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ControlError(f"{text[:40]!r} is no time: say 2026-11-22T10:30, or '2 hours ago'.") from None
    if seconds > now:
        raise ControlError(f"{text[:40]} is yet to come. Times without a zone are in UTC.")
    return seconds


def ago(seconds: float) -> str:
    """Return an age in the largest unit that fits."""
    name, size = next(((name, size) for name, size in reversed(_UNITS.items()) if seconds >= size), ("second", 1))
    count = max(0, int(seconds / size))
    return "just now" if count == 0 else f"{count} {name}{'' if count == 1 else 's'} ago"
