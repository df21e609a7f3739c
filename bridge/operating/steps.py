"""Work whose steps are told as they come: phase and words, the last one "done" or "failed"."""

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
    """Does the work and tells its steps; its words are the last one's.

    Where they cannot be told any more, it is not done any further, as far as it can be ended.
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
    """The same as an answer, a line of JSON for each step: {"phase", "words"}."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)

    async def tell(phase: str, words: str) -> None:
        await response.write(msgspec.json.encode({"phase": phase, "words": words}) + b"\n")

    await steps_told(name, work, tell)
    return response
