"""Keep the VM awake while there is work, through the Tasks API on a socket inside the VM.

A Sprites VM sleeps without traffic; frozen, it loses its connections and stalls its turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sprite.common.tasks import owned_task

log = logging.getLogger(__name__)

TASK = "sprite"
#: A hold expires after this time if the program dies; it is renewed long before.
EXPIRE, EXPIRE_SECONDS = "5m", 300.0
RENEW_SECONDS = 60.0
#: A VM sleeps after about 30 s, so work is noticed far sooner. Holds are released just as soon.
LOOK_SECONDS = 2.0
ANSWER_SECONDS = 5.0
_DONE = frozenset({200, 201, 202, 204, 404})


@asynccontextmanager
async def kept_awake(path: Path, is_busy: Callable[[], bool], on_death: Callable[[], None]) -> AsyncIterator[None]:
    """Keep the VM awake whenever `is_busy` returns True, while the block runs and the API's socket `path` exists."""
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
                # If the release fails, retry at the next check; the hold also expires by itself.
                if held_at is not None and (await api.ask("DELETE") or time.monotonic() - held_at > EXPIRE_SECONDS):
                    held_at = None
            elif held_at is None or time.monotonic() - held_at > RENEW_SECONDS:
                # If only the answer was lost, the VM may be held, so release it later.
                held_at = time.monotonic() if await api.ask("PUT", {"expire": EXPIRE}) else float("-inf")
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        if held_at is not None:
            await api.ask("DELETE")


class _TasksApi:
    """Call the Tasks API. Each call returns whether it succeeded; a failure is logged once until it works again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_failing = False

    async def ask(self, method: str, body: dict[str, str] | None = None) -> bool:
        import httpx2

        # Without TLS, whose roots would take 25 ms of the event loop at each call.
        transport = httpx2.AsyncHTTPTransport(uds=str(self._path), verify=False)
        try:
            async with httpx2.AsyncClient(transport=transport, timeout=ANSWER_SECONDS) as client:
                answer = await client.request(method, f"http://sprite/v1/tasks/{TASK}", json=body)
            why = "" if answer.status_code in _DONE else f"its API answered {answer.status_code}"
        except (OSError, httpx2.HTTPError) as error:
            why = str(error) or type(error).__name__
        if why and not self._is_failing:
            log.warning("the VM cannot be held awake, or let go: %s", why)
        self._is_failing = bool(why)
        return not why
