"""Quarantined files in the memory folder: their names and their descriptions for people.

The sprite never reads them again. Only a person or a forget deletes them.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

Reason = Literal["bad", "of-another-log", "of-a-newer-log", "too-large", "no-file"]
_WORDS: Final[dict[Reason, str]] = {
    "bad": "could not be read",
    "of-another-log": "was of another log",
    "of-a-newer-log": "was of a newer state of the log",
    "too-large": "was too large for a memory file",
    "no-file": "was no file",
}


def name_aside(path: Path, reason: Reason, at: float | None = None) -> Path:
    """Return a free quarantine name: `memory.db.bad-20261122T010254Z`. `at` is in Unix seconds, by default now."""
    moment = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    stem = f"{path.name}.{reason}-{moment:%Y%m%dT%H%M%SZ}"
    names = (stem, *(f"{stem}-{number}" for number in range(2, 1000)))
    free = (path.with_name(name) for name in names if not os.path.lexists(path.with_name(name)))
    return next(free, path.with_name(f"{stem}-{time.time_ns()}"))


def set_aside(folder: Path) -> list[str]:
    """Describe the quarantined files in the folder, sorted by name."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
    return [words for name in names if (words := _words(name)) is not None]


def _words(name: str) -> str | None:
    for reason, words in _WORDS.items():
        whole, separator, _ = name.partition(f".{reason}")
        if separator and not whole.startswith(".") and not name.endswith(("-wal", "-shm")):
            return f"{name}: {whole} {words}; delete it once you do not need it"
    return None
