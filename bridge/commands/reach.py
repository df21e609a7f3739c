"""Access for operators' commands: the running bridge of a data folder, or the folder itself if no bridge runs."""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import aiohttp
import msgspec

from bridge.admin import control
from bridge.admin.control import ControlError, NoBridgeError
from bridge.config import Settings
from bridge.db import data_folder
from bridge.providers.provider import person_name

#: A bridge that owns the folder but does not answer is starting or stopping.
_STARTING_SECONDS = 10.0
_POLL_SECONDS = 0.2


@asynccontextmanager
async def bridge_or_folder(settings: Settings) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session with the running bridge or, if none runs or starts, with its handlers in this process."""
    deadline = time.monotonic() + _STARTING_SECONDS
    async with AsyncExitStack() as stack:
        session = None
        while session is None:
            try:
                session = await stack.enter_async_context(control.control_session(settings.run))
            except NoBridgeError:
                if data_folder.is_taken(settings) and time.monotonic() <= deadline:
                    await asyncio.sleep(_POLL_SECONDS)
                    continue
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
        words = f"There is no data folder {settings.data}. Name it with --data DIR, or start a bridge on it."
        raise ControlError(words)
    async with bridge_or_folder(settings) as session:
        return msgspec.convert(await control.ask(session, method, path, body, seconds=seconds), type_)


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the option `--data`."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="default: SPRITE_DATA, else data/ in the checkout")


def add_person(parser: argparse.ArgumentParser, words: str, *, nargs: Literal["?"] | None = None) -> None:
    """Add the argument NAME, a person, and the option `--data`."""
    parser.add_argument("name", metavar="NAME", type=person_name, nargs=nargs, help=words)
    add_data(parser)


def add_provider(parser: argparse.ArgumentParser) -> None:
    """Add the option `--provider`."""
    words = "provider of the agent, used if no bridge runs here"
    parser.add_argument("--provider", choices=("local", "sprites"), default="local", help=words)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option `--json`."""
    parser.add_argument("--json", action="store_true", help="for programs")


def day(at: float) -> str:
    """Return a time's date in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def say(*lines: str) -> None:
    """Print lines and flush."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def say_json(value: object) -> int:
    """Print a value as JSON. Return the exit status."""
    say(msgspec.json.encode(value).decode())
    return 0


def moment(text: str) -> float:
    """Parse the time of an option into Unix seconds. Raises ArgumentTypeError if it is invalid or in the future."""
    text = text.strip()
    try:
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        words = f"{text[:40]!r} is not a valid time. Write it like 2026-11-22T10:30."
        raise argparse.ArgumentTypeError(words) from None
    if seconds > time.time():
        raise argparse.ArgumentTypeError(f"{text[:40]} is in the future. Times without a zone are in UTC.")
    return seconds
