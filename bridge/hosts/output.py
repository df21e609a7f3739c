"""Output of a program on a VM: bounded, reported line by line, and cut to its last lines. It is untrusted."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # In collections.abc from Python 3.12 on.
    from typing_extensions import Buffer

_MAX_BYTES = 64 * 1024 * 1024
_MAX_KEPT_CHARS = 8000
_LAST_LINES = 12


class Output(io.BytesIO):
    """Buffer for a command's output, bounded, that reports each line. The SDK only writes to it."""

    def __init__(self, tell: Callable[[str], None] | None) -> None:
        super().__init__()
        self.is_too_much = False
        self._tell = tell
        self._line = b""

    def write(self, data: Buffer, /) -> int:
        """Append some bytes."""
        piece = bytes(data)
        if self.tell() + len(piece) > _MAX_BYTES:
            self.is_too_much = True
            # The SDK treats this as a broken connection and closes it.
            raise ValueError("too much")
        if self._tell is not None:
            *lines, self._line = (self._line + piece).split(b"\n")
            for line in lines:
                self._tell(printable(line.decode(errors="replace")).strip())
        return super().write(piece)


def last_lines(said: str) -> str:
    """Return the last lines of a program's output, for users."""
    lines = [printable(line).rstrip() for line in said[-_MAX_KEPT_CHARS:].splitlines() if line.strip()]
    return "\n".join(lines[-_LAST_LINES:]) or "(nothing)"


def printable(line: str) -> str:
    """Replace characters that could control a terminal: the text comes from a VM or a sprite."""
    return "".join(character if character.isprintable() else " " for character in line)
