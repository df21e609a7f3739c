"""Access for operators' commands: the running bridge of a data folder, or the folder itself if no bridge runs."""

from __future__ import annotations

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

from bridge import data_folder
from bridge.config import Settings
from bridge.operating import control
from bridge.operating.alone import people_alone
from bridge.operating.control import NoBridgeError

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
