"""Files that programs outside would run later, made by a command of the agent: renamed until a person allows them.

The sandbox has such files read-only if they exist when a session starts. New ones are looked for at the end of each
turn. Blocks, so use a thread.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from sprite.config import Settings
from sprite.sandbox.places import runs_later, runs_nothing
from sprite.sandbox.sandbox import protected_inside
from sprite.workspace.user_files import folder_of

_SUFFIX: Final = ".held"
#: Files of a folder that are read, and bytes of each; a person cannot check more.
_MOST_FILES: Final = 100
_MOST_BYTES: Final = 64 * 1024


class Held(NamedTuple):
    """A file or folder that was renamed: original path, present path (both relative), and content to show people."""

    path: str
    now: str
    text: str


def hold(settings: Settings, is_agents: Callable[[str, int], bool]) -> list[Held]:
    """Rename new files of the agent that programs outside the sandbox would run later; return them.

    `is_agents` tells whether the agent made a path's change at a time (ns).
    """
    is_protected = protected_inside(settings)
    if is_protected is None or settings.permissions != "ask" or settings.vm_socket.exists():
        return []
    workspace = settings.workspace.resolve()
    found = []
    for place in list(runs_later(workspace)):
        path = str(place.relative_to(workspace))
        if is_protected(place) or not is_agents(path, _changed_ns(place)) or runs_nothing(place, workspace):
            continue
        with suppress(OSError):
            found.append(_rename(workspace, path))
    return found


def release(workspace: Path, held: Held) -> int | None:
    """Rename a file back if its content is as the person saw it; return the time of the change (ns), or None."""
    place = workspace / held.path
    try:
        with folder_of(workspace, held.now) as (at, now):
            if os.path.lexists(place) or _shown(workspace / held.now) != held.text:
                return None
            os.rename(now, place.name, src_dir_fd=at, dst_dir_fd=at)
    except OSError:
        return None
    return _changed_ns(place)


def _rename(workspace: Path, path: str) -> Held:
    with folder_of(workspace, path) as (at, name):
        names = (f"{name}{_SUFFIX}{number or ''}" for number in itertools.count())
        now = next(new for new in names if not os.path.lexists((workspace / path).with_name(new)))
        os.rename(name, now, src_dir_fd=at, dst_dir_fd=at)
    now = f"{path[: -len(name)]}{now}"
    return Held(path, now, _shown(workspace / now))


def _files(place: Path) -> list[Path]:
    """Return the path itself if it is a file or link, or all files and folders below a folder."""
    if place.is_symlink() or not place.is_dir():
        return [place]
    below = (
        Path(top, name)
        for top, folders, files in os.walk(place)
        # Git's samples do nothing, and would stand before a new hook.
        for name in sorted([*folders, *files], key=lambda name: (name.endswith(".sample"), name))
    )
    return [place, *itertools.islice(below, _MOST_FILES)]


def _changed_ns(place: Path) -> int:
    times = [0]
    for file in _files(place):
        with suppress(OSError):
            times.append(file.lstat().st_ctime_ns)
    return max(times)


def _shown(place: Path) -> str:
    """Return the content of a file, or the names and contents of a folder's files, as text for a person."""
    files = _files(place)
    texts = []
    for file in files:
        if file.is_symlink():
            text = f"-> {file.readlink()}"
        elif file.is_file():
            with file.open("rb") as stream:
                text = stream.read(_MOST_BYTES + 1).decode(errors="backslashreplace")
        else:
            continue
        texts.append(text if len(files) == 1 else f"{file.relative_to(place)}:\n{text}")
    return "\n".join(texts)
