"""Show the steps of a deploy, a line each."""

import asyncio
import sys
from collections.abc import Mapping
from typing import TextIO

import aiohttp
import msgspec

from bridge.admin.control import ControlError

_MARKS = {"done": "✓", "failed": "✗"}
#: Separates a step from its details, such as the package being downloaded.
_DETAIL = ": "


class Steps:
    """`show(phase, message)` prints each step once; the last phase is "done" or "failed"."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._step = ""

    def __call__(self, phase: str, message: str) -> None:
        """Show the next step or the outcome."""
        step = message.partition(_DETAIL)[0].rstrip(".")
        if phase in _MARKS or step != self._step:
            self._stream.write(f"{_MARKS.get(phase, ' ')} {message}\n")
            self._stream.flush()
        self._step = step


_FAILED = 1
#: A first deploy creates a machine and installs packages. A restore also transfers all of the agent's files.
_LONGEST_SECONDS = 3600.0


class _Step(msgspec.Struct):
    phase: str
    words: str


async def follow_steps(session: aiohttp.ClientSession, path: str, query: Mapping[str, str] | None = None) -> int:
    """Start the work and show its steps. Return the exit status. Raises ControlError if it is refused or cut off."""
    last = _Step("failed", "The bridge stopped before this was finished.")
    try:
        async with asyncio.timeout(_LONGEST_SECONDS), session.post(path, params=query) as response:
            if not response.ok:
                raise ControlError((await response.json())["error"]["message"])
            show = Steps()
            async for line in response.content:
                last = msgspec.json.decode(line, type=_Step)
                show(last.phase, last.words)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ControlError(last.words) from error
    return 0 if last.phase == "done" else _FAILED
