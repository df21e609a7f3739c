"""`python -m tests.undo_child WORKSPACE turn|undo N`: end a turn or undo it, and die by SIGKILL at the Nth step.

A step is a change of the disk, as Python's audit events report it, or the begin or end of a transaction. With N = 0 it
runs to its end and prints the kinds of all steps.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from pathlib import Path
from typing import Any

from sprite.log.curations import Curations
from sprite.workspace.file_changes import FileChanges
from tests.undo_stage import opened

_EVENTS = {"os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.symlink", "os.utime", "open"}


class Steps:
    def __init__(self, workspace: str, last: int) -> None:
        self.workspace = workspace
        self.last = last
        self.seen: list[str] = []
        self.counts = False

    def step(self, kind: str) -> None:
        if self.counts:
            self.seen.append(kind)
            if len(self.seen) == self.last:
                os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or (event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        self.step(event)

    def watch(self, owner: type, name: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        async def stepping(*arguments: Any, **named: Any) -> Any:
            self.step(f"before {name}")
            result = await original(*arguments, **named)
            self.step(f"after {name}")
            return result

        setattr(owner, name, stepping)


async def main(folder: Path, action: str, steps: Steps) -> None:
    async with opened(folder) as stage:
        steps.counts = True
        await (stage.turn("m1") if action == "turn" else stage.undo("m1"))
        steps.counts = False


if __name__ == "__main__":
    steps = Steps(sys.argv[1], int(sys.argv[3]))
    steps.watch(FileChanges, "record")
    steps.watch(Curations, "append_event")
    sys.addaudithook(steps.audit)
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], steps))
    print("\n".join(steps.seen))  # noqa: T201 - for the test
