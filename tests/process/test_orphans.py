"""A process adopts its orphans, and collects those that have ended."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.forking import fork_code
from tests.harness import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="adoption is Linux's")
#: Prints the exit status of its own child, and the number of orphans before and after their end.
ADOPTING = """
import asyncio, os, sys
from sprite.common import orphans
from tests.inspection import descendants

orphans._LOOK_SECONDS = 0.3

async def main(pipe):
    os.mkfifo(pipe)
    async with orphans.adopting():
        line = f"for i in 1 2 3 4 5; do setsid -f cat '{pipe}'; done; exit 7"
        process = await asyncio.create_subprocess_exec("sh", "-c", line)
        print(await process.wait(), len(descendants(os.getpid())))
        while descendants(os.getpid()):
            # Each that waits for a writer reads the end.
            os.close(os.open(pipe, os.O_RDWR))
            await asyncio.sleep(0.05)

asyncio.run(main(sys.argv[1]))
"""


async def test_ended_orphans_are_collected(tmp_path: Path) -> None:
    """What the process itself started keeps its exit status."""
    process = await fork_code(ADOPTING, str(tmp_path / "pipe"), stdout=PIPE)
    async with asyncio.timeout(PATIENCE):
        out, _ = await process.communicate()
    assert (await process.wait(), out.split()) == (0, [b"7", b"5"])
