"""Holds the VM awake while there is work: a frozen VM loses its connections, and a turn would stall in it.

Sprites VMs go to sleep without traffic; the Tasks API on a socket inside the VM puts that off. Where there
is no such socket this machine does not go to sleep, and nothing is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sprite.common.tasks import owned_task

log = logging.getLogger(__name__)

TASK = "sprite"
#: A hold ends by itself after this, should we die; it is renewed long before.
EXPIRE, EXPIRE_SECONDS = "5m", 300.0
RENEW_SECONDS = 60.0
#: A VM sleeps after some 30 s; work is noticed far sooner, and its end lets go as soon.
LOOK_SECONDS = 2.0
ANSWER_SECONDS = 5.0
_DONE = frozenset({200, 201, 202, 204, 404})


@asynccontextmanager
async def kept_awake(path: Path, is_busy: Callable[[], bool], on_death: Callable[[], None]) -> AsyncIterator[None]:
    """Holds the VM while `is_busy` says so and the block runs. `path` is the API's socket."""
    if not path.exists():
        yield
        return
    async with owned_task(_hold_while(path, is_busy), name="awake", on_death=on_death):
        yield


async def _hold_while(path: Path, is_busy: Callable[[], bool]) -> None:
    api = _TasksApi(path)
    held_at: float | None = None
    try:
        while True:
            if not is_busy():
                # One that could not be ended is ended at the next look, or ends by itself.
                if held_at is not None and (await api.release() or time.monotonic() - held_at > EXPIRE_SECONDS):
                    held_at = None
            elif held_at is None or time.monotonic() - held_at > RENEW_SECONDS:
                # What could not be held may be held all the same, if only the answer was lost.
                held_at = time.monotonic() if await api.hold() else float("-inf")
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        if held_at is not None:
            await api.release()


class _TasksApi:
    """Each call says whether it was done. What is wrong is logged once, until it works again.

    The work goes on all the same: at worst the VM sleeps, and it is taken up at the next wake.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_failing = False

    async def hold(self) -> bool:
        return await self._ask("PUT", {"expire": EXPIRE})

    async def release(self) -> bool:
        return await self._ask("DELETE", None)

    async def _ask(self, method: str, body: dict[str, str] | None) -> bool:
        try:
            status = await asyncio.to_thread(_request, self._path, method, body)
        except (OSError, http.client.HTTPException) as error:
            return self._noted(str(error))
        return self._noted(None if status in _DONE else f"its API answered {status}")

    def _noted(self, why: str | None) -> bool:
        if why is not None and not self._is_failing:
            log.warning("the VM cannot be held awake, or let go: %s", why)
        self._is_failing = why is not None
        return not self._is_failing


def _request(path: Path, method: str, body: dict[str, str] | None) -> int:
    with contextlib.closing(_UnixConnection(path)) as connection:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, f"/v1/tasks/{TASK}", json.dumps(body) if body is not None else None, headers)
        return connection.getresponse().status


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("sprite", timeout=ANSWER_SECONDS)
        self._path = path

    def connect(self) -> None:
        """See HTTPConnection."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
