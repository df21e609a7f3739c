"""The note that tells the Claude Code plugin where this machine's memory is, as `name=value` lines for a shell.

`workspace` is the local person's folder. `python` runs `-m sprite` in the folder `code`. The note outlives the bridge,
because memory can be read without it.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from sprite.common.files import replace_file

log = logging.getLogger(__name__)

_EXPLANATION = "# Where the Claude Code plugin finds this machine's memory. The bridge writes this when it starts."


def leave(note: Path, workspace: Path, code: Path, *, takes_over: bool) -> None:
    """Write the note.

    A note that names another existing workspace is replaced only with `takes_over`. A failed write is logged, not
    raised.
    """
    values = {"workspace": str(workspace), "python": sys.executable, "code": str(code)}
    if any("\n" in value for value in values.values()):
        log.warning("the Claude Code plugin cannot be told of %r: there is a line break in it", values)
        return
    try:
        named = _workspace(note)
        if named not in {None, workspace} and not takes_over:
            return
        text = "".join(f"{line}\n" for line in (_EXPLANATION, *(f"{k}={v}" for k, v in values.items())))
        note.parent.mkdir(parents=True, exist_ok=True)
        replace_file(note, text.encode(errors="surrogateescape"))
    except OSError as error:
        log.warning(
            "the Claude Code plugin is not told where memory is: %s cannot be written (%s)", note, error.strerror
        )


def _workspace(note: Path) -> Path | None:
    """Return the workspace that a note names, if it still exists."""
    try:
        lines = note.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return None
    named = next((Path(line.partition("=")[2]) for line in lines if line.startswith("workspace=")), None)
    return named if named is not None and named.is_dir() else None
