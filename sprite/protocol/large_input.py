"""Process large input outside the event loop, so that other tasks are not blocked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Input up to this size is processed at once, because a hop to a thread takes longer.
LARGE_BYTES = 64 * 1024
#: Searching text for secrets costs this factor more than parsing it: 4 us per character at worst.
WORDS = 16


async def off_loop(size: int, work: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """Return the result of `work`, run in a thread if its input of `size` bytes or characters is large."""
    if size <= LARGE_BYTES:
        return work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)
