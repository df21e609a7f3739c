"""Rules that allow calls without asking: one command, or writing files in one folder, as a person allowed.

Sprite decides by the text on the button, not by the CLI's rules, which cover more than they say. Rules are held in
memory for the session, because the agent could change them on disk.
"""

from __future__ import annotations

import os
import time
import unicodedata
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sprite.errors import PeerError
from sprite.protocol.messages import StandingRule

#: All rules are sent in one `status`, each with its command.
MAX_RULES = 50
#: People do not recognise a longer command or folder name in a list.
MAX_CHARS = 1000
_COMMANDS = "Bash"
_WRITERS = frozenset({"Write", "Edit"})
#: Fields that describe a command and do not change what it does.
_WORDS_ONLY = frozenset({"description", "timeout"})


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the CLI will make it; `cwd` is its folder, None if unknown."""

    tool: str
    input: Mapping[str, Any]
    cwd: Path | None

    @property
    def real_path(self) -> Path | None:
        """The real path of the named file, with links resolved; None if it names none or cannot be resolved."""
        path = self.input.get("file_path")
        try:
            return Path(path).resolve() if isinstance(path, str) else None
        except (OSError, RuntimeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class CommandRule:
    """Cover the same input in the same folder."""

    words: str
    call: Call

    def covers(self, call: Call) -> bool:
        """Return whether this call is the allowed one."""
        return (call.tool, call.cwd, _deeds(call)) == (self.call.tool, self.call.cwd, _deeds(self.call))

    @property
    def shown(self) -> str:
        """The command."""
        return str(self.call.input["command"])


@dataclass(frozen=True, slots=True)
class FolderRule:
    """Cover files in a real folder of the workspace and, except for the workspace itself, in its subfolders."""

    words: str
    workspace: Path
    folder: Path

    def covers(self, call: Call) -> bool:
        """Return whether the call writes there, with links resolved now."""
        target = _written(call, self.workspace)
        if target is None:
            return False
        return target.parent == self.folder or (
            self.folder != self.workspace and target.parent.is_relative_to(self.folder)
        )

    @property
    def shown(self) -> str:
        """No command; the description is complete."""
        return ""


Rule = CommandRule | FolderRule


class StandingRules:
    """Hold the rules of one session; `workspace` bounds what they can cover."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace.resolve()
        self._rules: dict[str, tuple[Rule, float]] = {}

    def cover(self, call: Call) -> bool:
        """Return whether a person has allowed this before, with links resolved now."""
        return any(rule.covers(call) for rule, _ in self._rules.values())

    def offer(self, call: Call) -> Rule | None:
        """Return the rule that "always" would add for this call; None if no narrow rule fits, and it means once."""
        rule = self._command(call) if call.tool == _COMMANDS else self._folder(call)
        return None if rule is None or len(self._rules) >= MAX_RULES or len(rule.words) > MAX_CHARS else rule

    def add(self, rule: Rule) -> None:
        """Add a rule that was offered and that the person accepted with "always"."""
        if not any(rule == known for known, _ in self._rules.values()):
            self._rules[str(uuid.uuid4())] = (rule, time.time())

    def listed(self) -> list[StandingRule]:
        """Return the rules as shown to people, oldest first."""
        return [StandingRule(rule_id, rule.words, rule.shown, at) for rule_id, (rule, at) in self._rules.items()]

    def revoke(self, rule_id: str | None) -> None:
        """Revoke one rule, or all of them. Raises PeerError if there is no such rule."""
        if rule_id is None:
            self._rules.clear()
        elif self._rules.pop(rule_id, None) is None:
            raise PeerError("This is not allowed any more.", code="not_found")

    def folder_of(self, call: Call) -> str | None:
        """Return the command's folder as shown to a person; None for the workspace itself."""
        if call.tool != _COMMANDS or call.cwd is None or call.cwd == self._workspace:
            return None
        return _relative(call.cwd, self._workspace)

    def _command(self, call: Call) -> CommandRule | None:
        command = call.input.get("command")
        if not isinstance(command, str) or len(command) > MAX_CHARS or call.cwd is None:
            return None
        folder = self.folder_of(call)
        return CommandRule(f"this command in {folder}/" if folder else "this command", call)

    def _folder(self, call: Call) -> FolderRule | None:
        workspace = self._workspace
        target = _written(call, workspace)
        if target is None:
            return None
        folder = target.parent
        where = (
            "directly in the workspace"
            if folder == workspace
            else f"in {_relative(folder, workspace)}/ and its folders"
        )
        return FolderRule(f"writing files {where}", workspace, folder)


def _deeds(call: Call) -> dict[str, Any]:
    return {name: value for name, value in call.input.items() if name not in _WORDS_ONLY}


def _written(call: Call, workspace: Path) -> Path | None:
    """Return the real path of a file that the call writes; None if no rule could cover it.

    No rule covers files outside the workspace, hidden files or folders (`.os`, `.git`, `.bashrc`), files with
    another name (a hard link), or paths that the CLI might read differently than we do.
    """
    path = call.input.get("file_path")
    if call.tool not in _WRITERS or not isinstance(path, str) or not _is_plain(path):
        return None
    real = call.real_path
    if real is None or not real.is_relative_to(workspace) or _has_other_names(real):
        return None
    return None if any(part.startswith(".") for part in real.relative_to(workspace).parts) else real


def _has_other_names(file: Path) -> bool:
    try:
        return os.path.lexists(file) and file.stat().st_nlink != 1
    except OSError:
        return True


def _is_plain(path: str) -> bool:
    return (
        path.startswith("/")
        and path == path.strip() == unicodedata.normalize("NFC", path)
        and path.isprintable()
        and ".." not in path.split("/")
    )


def _relative(folder: Path, workspace: Path) -> str:
    return str(folder.relative_to(workspace)) if folder.is_relative_to(workspace) else str(folder)
