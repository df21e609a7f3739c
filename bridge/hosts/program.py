"""A command of the sprite's, run beside it on this machine: what it writes as it comes, and how it ended."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from bridge.hosts.host import HostError
from bridge.hosts.output import last_lines

#: Where the sprite's package stands beside ours.
_ROOT = Path(__file__).resolve().parents[2]
_CHUNK_BYTES = 1 << 18
_KEPT_BYTES = 8_000


async def program_output(arguments: Sequence[str], environment: Mapping[str, str]) -> AsyncIterator[bytes]:
    """What `python -m sprite ARGUMENTS` writes to stdout; HostError with its last words if it ends with an error.

    Who stops reading ends it.
    """
    # A file takes whatever it says, where a pipe would have to be kept empty.
    with tempfile.TemporaryFile() as said:
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sprite", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=said,
                env=dict(environment),
                cwd=_ROOT,
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(f"The sprite's command cannot be started ({error.strerror}).") from error
        try:
            while process.stdout is not None and (chunk := await process.stdout.read(_CHUNK_BYTES)):
                yield chunk
            if await process.wait():
                said.seek(max(0, said.tell() - _KEPT_BYTES))
                words = last_lines(said.read().decode(errors="replace"))
                raise HostError(f"It failed, and said:\n{words}", retryable=False)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
