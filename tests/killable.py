"""`python -m tests.killable sprite|bridge ...`: the unchanged program, until a signal ends one of its tasks.

SIGUSR1 cancels the task named by KILL_TASK, from outside and without notice to its owner, unlike any product code; the
program cannot distinguish it from a task that failed.
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
