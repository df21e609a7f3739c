"""`python -m tests.killable sprite|bridge ...`: the program as it is, until a signal ends one of its tasks.

SIGUSR1 cancels the task that KILL_TASK names, from outside and without a word to whoever owns it, as no code of ours
does; the program cannot tell it from a task that ended by a fault.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import sys


def _kill(_number: int, _frame: object) -> None:
    for task in asyncio.all_tasks():
        if task.get_name() == os.environ["KILL_TASK"]:
            task.cancel()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _kill)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
