"""Live output of the command that runs: the end of the file into which the CLI lets it write."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from sprite.privacy.cutting import Discreet, clean
from sprite.privacy.secret_formats import shows_secrets
from sprite.protocol.events import AgentEvent, Ending, ToolOutput, ToolResult, ToolUse

LOOK_SECONDS: Final = 1.0
#: The end of the file that is read and redacted, enough for a private key before the shown lines.
_READ_BYTES: Final = 16 * 1024
_SHOWN_LINES: Final = 12
_SHOWN_CHARS: Final = 2000
#: Below the CLI's folder: user, project, session.
_FILES: Final = "tmp/*/*/*/tasks/b*.output"


class LiveOutput:
    """Publish the last lines of the oldest running command.

    The CLI does not say which output file belongs to which command: with several files, no lines are published.
    """

    def __init__(self, folder: Path, publish: Callable[[ToolOutput], None], discreet: Discreet) -> None:
        self._folder = folder
        self._publish = publish
        self._discreet = discreet
        #: Commands without a result, and the files that existed before each.
        self._running: dict[str, tuple[ToolUse, frozenset[Path]]] = {}
        self._runs = asyncio.Event()

    def happened(self, event: AgentEvent) -> None:
        """Handle the next event of a turn."""
        match event:
            case ToolUse(name="Bash"):
                self._running[event.tool_use_id] = event, frozenset(self._folder.glob(_FILES))
                self._runs.set()
            case ToolResult():
                self._running.pop(event.tool_use_id, None)
            case Ending():
                self._running.clear()

    @property
    def call(self) -> ToolUse | None:
        """The tool call of the oldest running command, or None if no command runs or the command shows secrets."""
        oldest = next((call for call, _ in self._running.values()), None)
        return None if oldest is None or shows_secrets(oldest.input) else oldest

    async def run(self) -> None:
        """Read the running command's output every second. Runs until cancelled."""
        shown = ""
        while True:
            if not self._running:
                self._runs.clear()
                await self._runs.wait()
            await asyncio.sleep(LOOK_SECONDS)
            if (call := self.call) is None:
                continue
            text = await asyncio.to_thread(last_lines, self._folder, self._running[call.tool_use_id][1], self._discreet)
            if text and text != shown and self.call is call:
                self._publish(ToolOutput(call.mission_id, call.tool_use_id, text))
            shown = text


def last_lines(folder: Path, before: frozenset[Path], discreet: Discreet) -> str:
    """Return the redacted last lines of the only output file that is not in `before`; empty without exactly one."""
    new = set(folder.glob(_FILES)) - before
    if len(new) != 1:
        return ""
    return "\n".join(discreet(clean(_end_of(new.pop(), folder))).splitlines()[-_SHOWN_LINES:])[-_SHOWN_CHARS:]


def _end_of(path: Path, folder: Path) -> str:
    """Return the end of a regular file in the folder. The agent's commands can replace it by a link or a pipe."""
    with suppress(OSError):
        if not path.resolve().is_relative_to(folder.resolve()):
            return ""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            begin = max(0, stream.seek(0, os.SEEK_END) - _READ_BYTES)
            stream.seek(begin)
            # The first line may have lost its beginning, and with it the mark of a secret.
            text = stream.read(_READ_BYTES).decode(errors="replace")
            return text.partition("\n")[2] if begin else text
    return ""
