"""The CLI's own files: it writes conversations down as they are, and they live no longer than their session.

Transcripts (of subagents too), results that were too long, outputs of background commands: all of it is below one
folder. What the CLI will add in later versions goes as well, since files are known by what is kept, not by their kind.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

#: Below the CLI's folder, what it would keep below /tmp for everybody's later agents to read.
TEMPORARY = "tmp"
#: The CLI's settings of itself: versions and switches, nothing that was said.
_OWN_SETTINGS = ".claude.json"


def clear_cli_files(folder: Path) -> None:
    """Deletes everything. Only where no CLI runs that keeps its state there."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        log.warning("%s could not be deleted whole; what was said in ended sessions may still be in it", folder)


def keep_cli_session(folder: Path, cli_session_id: str) -> None:
    """Deletes what is not of this session, the only one that will be resumed. Only where no such CLI runs."""
    for path in _below(folder):
        own = any(part.startswith(cli_session_id) for part in path.relative_to(folder).parts)
        if own or path.name == _OWN_SETTINGS:
            continue
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("a file of an ended session could not be deleted: %s", error)


def _below(folder: Path) -> Iterator[Path]:
    """Yield every file and link; what vanishes meanwhile is left out."""
    for parent, folders, names in os.walk(folder):
        links = (name for name in folders if Path(parent, name).is_symlink())
        yield from (Path(parent, name) for name in (*names, *links))
