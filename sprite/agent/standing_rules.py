"""What runs without asking again: one command, or writing files in one folder, as a person has allowed it.

Decided here, by what the person read on the button, and not by the CLI, whose own rules cover more than they say. Kept
in memory for as long as the session lasts: nothing on disk could be changed by the agent.
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

#: All of them are sent in one `status`, each with its command.
MAX_RULES = 50
#: A longer command, or folder's name, is one that nobody recognises in a list.
MAX_CHARS = 1000
_COMMANDS = "Bash"
_WRITERS = frozenset({"Write", "Edit"})
#: What an input says about a command beside what it does.
_WORDS_ONLY = frozenset({"description", "timeout"})


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the CLI will make it; `cwd` is the folder it runs in, None where that is not known."""

    tool: str
    input: Mapping[str, Any]
    cwd: Path | None

    @property
    def real_path(self) -> Path | None:
        """Where the file that it names is, whatever links lead there; None where it names none, or leads nowhere."""
        path = self.input.get("file_path")
        try:
            return Path(path).resolve() if isinstance(path, str) else None
        except (OSError, RuntimeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class CommandRule:
    """The same input in the same folder."""

    words: str
    call: Call

    def covers(self, call: Call) -> bool:
        """Whether this is what was allowed."""
        return (call.tool, call.cwd, _deeds(call)) == (self.call.tool, self.call.cwd, _deeds(self.call))

    @property
    def shown(self) -> str:
        """The command."""
        return str(self.call.input["command"])


@dataclass(frozen=True, slots=True)
class FolderRule:
    """Files written in a real folder of the workspace and, unless it is the workspace itself, in its folders."""

    words: str
    workspace: Path
    folder: Path

    def covers(self, call: Call) -> bool:
        """Whether the call writes there, as links lead now."""
        target = _written(call, self.workspace)
        if target is None:
            return False
        return target.parent == self.folder or (
            self.folder != self.workspace and target.parent.is_relative_to(self.folder)
        )

    @property
    def shown(self) -> str:
        """No command: the words say it all."""
        return ""


Rule = CommandRule | FolderRule


class StandingRules:
    """The rules of one session; `workspace` bounds what they can cover."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace.resolve()
        self._rules: dict[str, tuple[Rule, float]] = {}

    def cover(self, call: Call) -> bool:
        """Whether a person has allowed this before; links are followed as they are now."""
        return any(rule.covers(call) for rule, _ in self._rules.values())

    def offer(self, call: Call) -> Rule | None:
        """What "always" would mean for this call; None where no narrow rule can be made, and it means once."""
        rule = self._command(call) if call.tool == _COMMANDS else self._folder(call)
        return None if rule is None or len(self._rules) >= MAX_RULES or len(rule.words) > MAX_CHARS else rule

    def add(self, rule: Rule) -> None:
        """A person's "always" on what was offered."""
        if not any(rule == known for known, _ in self._rules.values()):
            self._rules[str(uuid.uuid4())] = (rule, time.time())

    def listed(self) -> list[StandingRule]:
        """The rules as people see them, oldest first."""
        return [StandingRule(rule_id, rule.words, rule.shown, at) for rule_id, (rule, at) in self._rules.items()]

    def revoke(self, rule_id: str | None) -> None:
        """Takes one rule back, or all of them. PeerError if it is not there (any more)."""
        if rule_id is None:
            self._rules.clear()
        elif self._rules.pop(rule_id, None) is None:
            raise PeerError("This is not allowed any more.", code="not_found")

    def folder_of(self, call: Call) -> str | None:
        """The folder that a command runs in, as a person is told it; None for the workspace itself."""
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
    """The real path of a file that the call writes; None where no rule could cover it.

    That is outside the workspace, where anything on the way is hidden (`.os`, `.git`, `.bashrc`), where the file has
    another name (a hard link), and where the path is put so that the CLI might read it in another way than we do.
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
