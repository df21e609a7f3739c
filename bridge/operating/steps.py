"""Report the steps of long work: phase and words, the last one "done" or "failed"."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from bridge.cluster.ownership import NotOwnedError
from bridge.errors import BridgeError
from bridge.hosts.host import HostError, Report

Work = Callable[[Report], Awaitable[str]]


async def steps_told(name: str, work: Work, tell: Callable[[str, str], Awaitable[None]]) -> None:
    """Do the work and report its steps; its result is the text of the last one.

    If reporting fails, cancel the work as far as possible.
    """
    steps: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()

    async def run() -> None:
        try:
            steps.put_nowait(("done", await work(lambda phase, words: steps.put_nowait((phase, words)))))
        except NotOwnedError as error:
            steps.put_nowait(("failed", error.for_operators))
        except (HostError, BridgeError) as error:
            steps.put_nowait(("failed", str(error)))
        finally:
            steps.put_nowait(None)

    async with asyncio.TaskGroup() as group:
        group.create_task(run(), name=name)
        while (step := await steps.get()) is not None:
            await tell(*step)


async def told_in_steps(request: web.Request, name: str, work: Work) -> web.StreamResponse:
    """Stream the steps as the response, a line of JSON each: {"phase", "words"}."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)

    async def tell(phase: str, words: str) -> None:
        await response.write(msgspec.json.encode({"phase": phase, "words": words}) + b"\n")

    await steps_told(name, work, tell)
    return response
