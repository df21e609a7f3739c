"""Show the steps of a deploy: on a terminal with durations and a spinner, otherwise as plain lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Self

import aiohttp
import msgspec
from rich.console import Console
from rich.status import Status
from rich.text import Text

from bridge.admin.control import ControlError

_MARKS = {"done": ("✓", "green"), "failed": ("✗", "red")}
#: Separates a step from its details (such as the package being downloaded): only the details change in place.
_DETAIL = ": "


class Steps:
    """`with Steps() as show:` then `show(phase, message)` at each step; the last phase is "done" or "failed"."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._stack = ExitStack()
        self._status: Status | None = None
        self._step = ""
        self._began = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._stack.enter_context(self._console.status(""))
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def __call__(self, phase: str, message: str) -> None:
        """Show the next step or the outcome."""
        step = message.partition(_DETAIL)[0].rstrip(".")
        if phase in _MARKS:
            self._finish(is_well=phase == "done")
            mark, colour = _MARKS[phase]
            self._console.print(Text.assemble((f"{mark} ", colour), message))
        elif step != self._step:
            self._finish(is_well=True)
            self._step, self._began = step, time.monotonic()
            if self._status is None:
                self._console.print(Text(f"  {message}"))
        if self._status is not None:
            self._status.update(Text(message))

    def _finish(self, *, is_well: bool) -> None:
        if self._step and self._status is not None:
            mark, colour = _MARKS["done" if is_well else "failed"]
            seconds = f"  {time.monotonic() - self._began:.1f} s"
            self._console.print(Text.assemble((f"{mark} ", colour), self._step, (seconds, "dim")))
        self._step = ""


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
