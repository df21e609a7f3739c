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

from sprite.tasks import owned_task

log = logging.getLogger(__name__)

TASK = "sprite"
#: A hold ends by itself after this, should we die; it is renewed long before.
EXPIRE = "5m"
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
    held_at: float | None = None
    try:
        while True:
            if not is_busy():
                if held_at is not None:
                    await _ask(path, "DELETE", None)
                    held_at = None
            elif held_at is None or time.monotonic() - held_at > RENEW_SECONDS:
                await _ask(path, "PUT", {"expire": EXPIRE})
                held_at = time.monotonic()
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        if held_at is not None:
            await _ask(path, "DELETE", None)


async def _ask(path: Path, method: str, body: dict[str, str] | None) -> None:
    try:
        status = await asyncio.to_thread(_request, path, method, body)
    except (OSError, http.client.HTTPException) as error:
        # The work goes on all the same; at worst the VM sleeps and it is taken up at the next wake.
        log.warning("the VM cannot be held awake: %s", error)
        return
    if status not in _DONE:
        log.warning("the VM cannot be held awake: its API answered %d", status)


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
