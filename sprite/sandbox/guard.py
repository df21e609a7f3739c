"""Check whether a tool call reaches hidden places by any form of path; for `.os/` also by its command.

In the CLI's folder, which is in `.os/`, the agent may read its own long results and background output only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sprite.config import Settings
from sprite.protocol.tools import OWN_TOOLS
from sprite.sandbox.places import hidden_places

SYSTEM_REFUSAL = (
    "`.os/` is the system you run on, and closed to you. Memory is kept for you: search_memory finds what is in it, "
    "and what the person tells you is remembered without your help. Work in the other folders."
)
KEYS_REFUSAL = (
    "This holds keys or the bridge's own data, and is closed to you. Ask the person for what you need of it, or tell "
    "them what to run themselves."
)
#: Fields of a tool's input that name files.
_PATH_KEYS = frozenset({"path", "file", "directory", "cwd", "root", "folder"})
#: Tools that read everything below a folder, and their patterns for paths.
_PATTERN_KEYS = {"Glob": "pattern", "Grep": "glob"}
#: The tool that reads the files that the CLI stores for the agent.
_READER = "Read"
#: Their places: projects/PROJECT/SESSION/tool-results/FILE, and tmp/USER/PROJECT/SESSION/tasks/FILE.
_SET_ASIDE = (("projects", "tool-results"), ("tmp", "tasks"))
_COMMAND_NAMES_IT = re.compile(r"(?<![\w.-])\.os(?![\w.-])")
#: Processes are other ways to the same files: /proc/self/cwd, /proc/1/root, open files.
_PROCESS = re.compile(r"/proc/(?:self|thread-self|\d+)/(?!(?:status|stat|cmdline|comm|limits|mountinfo|mounts)$)")
#: The kernel's limit.
_MOST_LINKS = 40


class Guard:
    """Decide whether a tool call would reach hidden places, from the files that are on disk now."""

    def __init__(self, settings: Settings, *, sandboxed: bool) -> None:
        self._settings = settings
        self._sandboxed = sandboxed

    def refusal(self, tool: str, tool_input: Any, cwd: str) -> str | None:
        """Return why the call is refused, as text for the agent, or None if it is allowed."""
        if tool.startswith(OWN_TOOLS):
            # They open no file. A path on a card is text.
            return None
        for path in _paths(tool, tool_input, cwd or str(self._settings.workspace)):
            real = _resolved(path)
            if real is None or self._is_ours(real, tool):
                return SYSTEM_REFUSAL
            if self._is_key(real, tool):
                return KEYS_REFUSAL
        command = tool_input.get("command") if isinstance(tool_input, dict) else None
        is_seen = not self._sandboxed and isinstance(command, str) and _COMMAND_NAMES_IT.search(command) is not None
        return SYSTEM_REFUSAL if is_seen else None

    def _is_ours(self, real: Path, tool: str) -> bool:
        system = self._settings.system.resolve()
        if real.is_relative_to(system):
            return not self._is_set_aside(real, tool)
        if self._searches(tool, real, system):
            return True
        inside = self._inside(system)
        return any(_identity(place) in inside for place in (real, *real.parents))

    def _is_key(self, real: Path, tool: str) -> bool:
        hidden, workspace = hidden_places(self._settings), self._settings.workspace.resolve()
        # The workspace may be in a hidden folder, and a hidden one in the workspace: the inner one counts.
        around = next((place for place in (real, *real.parents) if place == workspace or place in hidden), workspace)
        return around != workspace or any(self._searches(tool, real, place) for place in hidden)

    def _searches(self, tool: str, real: Path, place: Path) -> bool:
        """Return whether the tool, searching everything below `real`, would read the hidden `place`."""
        return tool in _PATTERN_KEYS and not self._sandboxed and place.is_relative_to(real)

    def _is_set_aside(self, real: Path, tool: str) -> bool:
        """Return whether the agent may read this file: a long result or output that the CLI stored for it."""
        state = self._settings.cli_state.resolve()
        parts = real.relative_to(state).parts if real.is_relative_to(state) else ()
        return tool == _READER and any(parts[:1] == (top,) and below in parts[1:-1] for top, below in _SET_ASIDE)

    def _inside(self, system: Path) -> set[tuple[int, int] | None]:
        """Return device and inode numbers of what is in `.os/`, to recognise it by a hard link or mount."""
        found = {_identity(system)}
        for folder in (system, self._settings.memory, self._settings.run):
            try:
                found.update(_identity(Path(entry.path)) for entry in os.scandir(folder))
            except OSError:
                continue
        return found - {None}


def _paths(tool: str, value: Any, cwd: str) -> Iterator[str]:
    """Yield every path in a tool's input as an absolute path."""
    if isinstance(value, list):
        for item in value:
            yield from _paths(tool, item, cwd)
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if isinstance(item, str) and (key in _PATH_KEYS or key.endswith("_path")):
            yield str(Path(cwd) / _at_home(item))
        elif isinstance(item, str) and key == _PATTERN_KEYS.get(tool):
            start = value.get("path")
            yield from _beginnings(str(Path(cwd) / (_at_home(start) if isinstance(start, str) else "") / item))
        elif isinstance(item, dict | list):
            yield from _paths(tool, item, cwd)


def _at_home(path: str) -> str:
    """Return a path with its `~` expanded, if there is such a user."""
    try:
        return str(Path(path).expanduser())
    except RuntimeError:
        return path


def _beginnings(pattern: str) -> Iterator[str]:
    """Yield the folder above all paths that a pattern can match, and its `.os` if the pattern may match that."""
    parts = pattern.split("/")
    plain = next((at for at, part in enumerate(parts) if re.search(r"[*?\[{]", part)), len(parts))
    yield "/".join(parts[:plain]) or "/"
    if any(part.startswith((".", "[", "{", "?")) for part in parts[plain:]):
        yield "/".join([*parts[:plain], ".os"])


def _resolved(path: str) -> Path | None:
    """Return a path with all links followed; None if a link leads through /proc/PID, or there are too many."""
    waiting, real, links = _split(path), Path("/"), 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            real = real.parent
            continue
        place = real / part
        if _PROCESS.match(str(place)):
            return None
        try:
            target = str(place.readlink())
        except (OSError, ValueError):
            real = place
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        if target.startswith("/"):
            real = Path("/")
        # /proc/self links to the reading process; paths below it were already refused by name.
        waiting += _split(target)
    return real


def _split(path: str) -> list[str]:
    """Return the parts of a path in reverse order."""
    return [part for part in reversed(path.split("/")) if part not in {"", "."}]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
