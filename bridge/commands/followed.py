"""Work of the running bridge that reports its steps as they happen: a deploy or a restore."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp
import msgspec

from bridge.hosts.steps import Steps
from bridge.operating.control import ControlError

_FAILED = 1
#: A first deploy creates a machine and installs packages. A restore also transfers all of the agent's files.
_LONGEST_SECONDS = 3600.0


class _Step(msgspec.Struct):
    phase: str
    words: str


async def follow_steps(session: aiohttp.ClientSession, path: str, query: Mapping[str, str] | None = None) -> int:
    """Start the work and show its steps. Return the exit status. Raises ControlError if it is refused or cut off."""
    last = _Step("failed", "The bridge ended in the middle of it.")
    try:
        async with asyncio.timeout(_LONGEST_SECONDS), session.post(path, params=query) as response:
            if not response.ok:
                raise ControlError((await response.json())["error"]["message"])
            with Steps() as show:
                async for line in response.content:
                    last = msgspec.json.decode(line, type=_Step)
                    show(last.phase, last.words)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ControlError(last.words) from error
    return 0 if last.phase == "done" else _FAILED
