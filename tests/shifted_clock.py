"""A wall clock that a test may set, for real processes: Debian's libfaketime, loaded before everything else.

Only what day and time it is moves; timeouts and pauses (the monotonic clock) go on as they do.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

_LIBRARIES = tuple(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))

#: The library does not start within the agent's sandbox, and what the agent runs needs no clock of ours.
_NOT_HANDED_ON = "import os\nos.environ.pop('LD_PRELOAD', None)\n"


def needs_faketime() -> pytest.MarkDecorator:
    """Skips where libfaketime is missing, but fails where it has to be there (REQUIRE_BROWSER=1, as in CI)."""
    if not _LIBRARIES and os.environ.get("REQUIRE_BROWSER") == "1":
        raise RuntimeError("REQUIRE_BROWSER=1, and there is no libfaketime: apt-get install faketime")
    return pytest.mark.skipif(not _LIBRARIES, reason="no libfaketime on this machine: apt-get install faketime")


class ShiftedClock:
    """A clock `ahead` of this machine's by so many seconds, in every Python process started with its `environment`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._hooks = folder / "hooks"
        self._hooks.mkdir()
        (self._hooks / "sitecustomize.py").write_text(_NOT_HANDED_ON)
        self.ahead = 0.0
        self.set_ahead(0.0)

    @property
    def environment(self) -> dict[str, str]:
        """What a process is started with that lives by this clock."""
        return {
            "LD_PRELOAD": str(_LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": str(self._hooks),
        }

    def now(self) -> float:
        """Its time, in Unix seconds."""
        return time.time() + self.ahead

    def set_ahead(self, seconds: float) -> None:
        """Moves it, for all of them at once."""
        self.ahead = seconds
        temporary = self._file.with_suffix(".new")
        temporary.write_text(f"{seconds:+.3f}")
        temporary.replace(self._file)

    def jump_to(self, moment: float) -> None:
        """Moves it to a moment, in Unix seconds."""
        self.set_ahead(moment - time.time())
