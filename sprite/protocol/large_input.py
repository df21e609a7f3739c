"""Work on large input is done beside the event loop, which serves everybody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Input up to here is worked on at once: a hop to a thread takes longer.
LARGE_BYTES = 64 * 1024
#: Looking for secrets in words costs so many times as much as parsing them: 4 us for a character at worst.
WORDS = 16


async def off_loop(size: int, work: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """Return what `work` makes of its arguments, in a thread where these are `size` bytes or characters and large."""
    if size <= LARGE_BYTES:
        return work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)
