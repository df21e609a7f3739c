"""The CLI's own files, which contain raw conversations and are deleted with their session.

Transcripts (also of subagents), long results and outputs of background commands are all below one folder. Deletion
lists the files to keep, so that files of later CLI versions are deleted too.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

#: Folder below the CLI's state folder that replaces /tmp, where later agents could read its files.
TEMPORARY = "tmp"
#: The CLI's own settings: versions and switches, no conversation.
_OWN_SETTINGS = ".claude.json"


def clear_cli_files(folder: Path) -> None:
    """Delete everything in the folder. Call only while no CLI keeps its state there."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        log.warning("%s could not be deleted whole; what was said in ended sessions may still be in it", folder)


def keep_cli_session(folder: Path, cli_session_id: str) -> None:
    """Delete all files of other sessions than the one that will be resumed. Call only while no such CLI runs."""
    for path in _below(folder):
        own = any(part.startswith(cli_session_id) for part in path.relative_to(folder).parts)
        if own or path.name == _OWN_SETTINGS:
            continue
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("a file of an ended session could not be deleted: %s", error)


def _below(folder: Path) -> Iterator[Path]:
    """Yield every file and link. Skip those that vanish meanwhile."""
    for parent, folders, names in os.walk(folder):
        links = (name for name in folders if Path(parent, name).is_symlink())
        yield from (Path(parent, name) for name in (*names, *links))
