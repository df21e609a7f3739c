"""Run a command of the sprite on this machine and stream its output."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from bridge.hosts.host import HostError
from bridge.hosts.output import last_lines

#: The folder from which `python -m sprite` imports the package.
_ROOT = Path(__file__).resolve().parents[2]
_CHUNK_BYTES = 1 << 18
_KEPT_BYTES = 8_000


async def program_output(arguments: Sequence[str], environment: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Yield the stdout of `python -m sprite ARGUMENTS`. Raise HostError with its last words if it fails.

    Closing the generator kills the process.
    """
    # A file takes any amount of stderr; a pipe would have to be drained.
    with tempfile.TemporaryFile() as said:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "sprite",
                *arguments,
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
