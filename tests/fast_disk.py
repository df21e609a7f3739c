"""A folder in memory for the tests' databases: on a disk, SQLite's syncs take half of their time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - folders with random names are made in it
_ENOUGH_BYTES = 2**30

#: The `dir` argument for `tempfile`: None if the machine has no such folder, or a small one (containers).
FAST_DISK = (
    str(_SHARED_MEMORY)
    if os.access(_SHARED_MEMORY, os.W_OK) and shutil.disk_usage(_SHARED_MEMORY).free > _ENOUGH_BYTES
    else None
)
