"""The way from a command to the bridge that runs on its data folder."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from bridge import data_folder
from bridge.config import Settings
from bridge.operating import control
from bridge.operating.control import NoBridgeError

#: A bridge that owns the folder but does not answer is just starting, or just stopping.
_STARTING_SECONDS = 10.0
_POLL_SECONDS = 0.2


def add_data(parser: argparse.ArgumentParser) -> None:
    """Adds the option that says which data folder."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="default: SPRITE_DATA, else data/ in the checkout")


@asynccontextmanager
async def running_bridge(settings: Settings) -> AsyncIterator[aiohttp.ClientSession]:
    """The running bridge; NoBridgeError when no bridge owns the data folder. One that is starting is waited for."""
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
