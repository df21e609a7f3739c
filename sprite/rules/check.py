"""Check a tool call against rules. It reads nothing but the `.git` folders above the call, and runs nothing."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from sprite.protocol.tools import connection_call, leaves_of
from sprite.rules.condition import Rule, fits, fits_command, fits_path, fits_time
from sprite.rules.shell import UNKNOWN, Command, UncertainError, read

log = logging.getLogger(__name__)

#: `host` or `name@host` in a URL, an address or a target of `ssh`.
_HOST = re.compile(r"(?:(?<=://)(?:[^/\s@]*@)?|[^\s@<>,;:\"'(/]+@)(?:\[[0-9a-fA-F:]+\]|[\w.-]+)")
_PATH_KEYS = ("file_path", "path", "notebook_path")
_HOST_KEYS = ("url", "uri", "host", "hostname", "to", "cc", "bcc", "recipients", "server", "address")
#: Characters that do not change which program a word names. They are left out before a quick search.
_SPELLING = str.maketrans("", "", "'\"\\")
_MOST_PATHS = 400


class Match(NamedTuple):
    """A rule that matches a tool call. `stops`: it stops the call; otherwise the sprite asks the person.

    Not `is_certain`: a part of the call that the rule depends on cannot be determined.
    """

    rule: int
    is_certain: bool
    #: If not, the person is asked.
    stops: bool


class Facts:
    """The values of one tool call that rules compare, each computed when a rule needs it.

    `folder` is where the call runs. For a past call from the log, its folder and branch are not known.
    """

    def __init__(self, tool: str, tool_input: Mapping[str, Any], folder: str | None, now: datetime) -> None:
        self._now, self._folder = now, folder
        _, server, *parts = tool.split("__") if tool.startswith("mcp__") else ("", "")
        called = connection_call(tool, tool_input)
        self._connection = server if called is None else called.connection
        self._arguments = tool_input if called is None else called.arguments
        name = called.tool if called is not None else parts[-1] if parts else tool
        #: The names under which a rule may know the tool.
        self._tools = [tool, name, *([f"mcp__{self._connection}__{name}"] if called else [])]
        command = tool_input.get("command")
        self._shell = command if isinstance(command, str) and not server else None

    @cached_property
    def text(self) -> str:
        """All text of the call in which a rule's value can occur, in lower case and without quotes."""
        texts = [*self._tools, self._connection]
        if self._shell is not None:
            texts += [self._shell.replace("\\\n", ""), str(self._folder)]
        else:
            texts += [*self._own_paths, *self._hosts(None, also_bare=True)]
        return "\0".join(texts).translate(_SPELLING).casefold()

    @cached_property
    def commands(self) -> Sequence[Command | None]:
        """The simple commands of a shell call; for any other tool a list with None."""
        return [None] if self._shell is None else read(self._shell, self._folder)

    def values(self, key: str, command: Command | None, *, also_bare: bool) -> Sequence[Any]:
        """Return the call's values of a kind (`key`, such as path or host), for one command of a shell call.

        `also_bare`: plain words count as host names, too. Raises UncertainError if the values cannot be
        determined.
        """
        found: Sequence[Any]
        match key:
            case "tool":
                found = self._tools
            case "connection":
                found = [self._connection]
            case "time":
                found = [self._now]
            case "command":
                found = [command]
            case "path":
                found = self._own_paths if command is None else list(self._paths(command))[:_MOST_PATHS]
            case "host":
                found = self._hosts(command, also_bare=also_bare)
            case "project":
                found = (self._place(command) or "").split("/")
            case _:
                found = self._branches(command)
        return [value for value in found if value]

    def _place(self, command: Command | None) -> str | None:
        """Return the folder in which a command runs, or for another tool the folder of the file that it names."""
        if command is not None:
            return command.folder
        path = next(self._paths(None), None)
        return os.path.dirname(path) if path else self._folder  # noqa: PTH120 - a string

    def _hosts(self, command: Command | None, *, also_bare: bool) -> list[str]:
        """Return the hosts in the call's addresses and URLs; with `also_bare`, also words that may be host names."""
        given = [self._arguments.get(key) for key in _HOST_KEYS] if command is None else list(command.words[1:])
        texts = [text for _, text in leaves_of(given)]
        found = [host for text in texts for host in _HOST.findall(text)]
        return [*found, *(text.partition(":")[0] for text in texts if "/" not in text)] if also_bare else found

    @cached_property
    def _own_paths(self) -> list[str]:
        """The paths that the call's arguments name, and the same with links resolved."""
        named = list(self._paths(None))
        return named if self._folder is None else [*named, *(os.path.realpath(path) for path in named)]

    def _paths(self, command: Command | None) -> Iterator[str]:
        named = [self._arguments.get(key) for key in _PATH_KEYS] if command is None else command.words[1:]
        folder = self._folder if command is None else command.folder
        for path in named:
            if isinstance(path, str) and path and not path.startswith("-") and "\0" not in path:
                whole = os.path.expanduser(path)  # noqa: PTH111 - a string, and fast
                yield os.path.normpath(whole if whole.startswith("/") or folder is None else f"{folder}/{whole}")

    def _branches(self, command: Command | None) -> list[str]:
        """Return the git branches that may be checked out where the command runs."""
        switched = "" if command is None else command.branch or ""
        if switched and UNKNOWN not in switched and (command is None or not command.may_fail):
            return [switched]
        folder = self._place(command)
        if self._folder is None or folder is None or UNKNOWN in switched:
            raise UncertainError
        here = Path(folder)
        git = next((git for place in (here, *here.parents) if (git := place / ".git").exists()), None)
        if git is None:
            return [switched]
        if git.is_file():
            git = git.parent / git.read_text().partition("gitdir:")[2].strip()
        packed = git / "packed-refs"
        if switched and (
            (git / "refs/heads" / switched).is_file()
            or (packed.is_file() and f" refs/heads/{switched}\n" in packed.read_text())
        ):
            return [switched]
        return [switched, (git / "HEAD").read_text().partition("ref: refs/heads/")[2].strip()]


#: Kinds of values that a call has as a whole, and those that each of its commands has. The branch comes last, because
#: it reads the disk and may not be known.
_OF_CALL, _OF_COMMAND = ("tool", "connection", "time"), ("command", "path", "host", "project", "branch")
#: An exception for one of these kinds has to hold for all values of a call.
_EVERY = frozenset({"path", "host", "branch"})


def _fits_host(pattern: str, host: str) -> bool:
    return fits(pattern, host) or fits(pattern, host.rpartition("@")[2])


_FITS: Mapping[str, Callable[[str, Any], bool]] = {
    "command": fits_command,
    "path": fits_path,
    "host": _fits_host,
    "time": fits_time,
}


def _is_about(rule: Rule, facts: Facts) -> bool | None:
    """Return whether a rule matches a call, or None if that cannot be determined."""
    try:
        return _holds(rule, _OF_CALL, facts, None) and any(
            _holds(rule, _OF_COMMAND, facts, command) for command in facts.commands
        )
    except (UncertainError, OSError, ValueError):
        return None
    except Exception:
        # A bug here must neither stop a call nor let it through: the person is asked.
        log.exception("a rule could not be checked")
        return None


def _holds(rule: Rule, keys: Sequence[str], facts: Facts, command: Command | None) -> bool:
    for key in keys:
        fit = _FITS.get(key, fits)
        if key in rule.given:
            values = facts.values(key, command, also_bare=True)
            if not any(fit(pattern, value) for value in values for pattern in rule.given[key]):
                return False
        if key in rule.unless:
            values = facts.values(key, command, also_bare=False)
            found = [any(fit(pattern, value) for pattern in rule.unless[key]) for value in values]
            if found and (all if key in _EVERY else any)(found):
                return False
    return True


def _needles(rule: Rule) -> list[str]:
    """Return lower-case texts of which every call has at least one if the rule matches it (for a fast check)."""
    key = next(key for key in ("command", "path", "host", "connection", "tool") if key in rule.given)
    home = os.path.expanduser("~")  # noqa: PTH111 - a string
    # A part may be spelled in another way only as `~` for the home folder, or by quotes.
    parts = [re.split(r"[*/~\s]+|\.{3}|__", value.removeprefix(home)) for value in rule.given[key]]
    return [max(each, key=len).translate(_SPELLING).casefold() for each in parts]


class Book:
    """Rules by number, prepared for checking many calls."""

    def __init__(self, rules: Sequence[tuple[int, Rule]]) -> None:
        self._rules = dict(rules)
        #: Most calls are told by this alone.
        self._needles = [(needle, number) for number, rule in rules for needle in _needles(rule)]

    def __len__(self) -> int:
        return len(self._rules)

    def names(self, message: str) -> bool:
        """Return whether a person's message contains words of any rule's values."""
        return any(needle and needle in message.casefold() for needle, _ in self._needles)

    def find(self, facts: Facts) -> list[Match]:
        """Return the rules that match a call: first those that stop it, then those that ask."""
        try:
            text = facts.text
            near = {number: self._rules[number] for needle, number in self._needles if needle in text}
        except (ValueError, RecursionError):
            near = self._rules
        told = [(number, rule.action, _is_about(rule, facts)) for number, rule in near.items()]
        found = [
            Match(number, bool(is_about), bool(is_about) and action == "stop")
            for number, action, is_about in told
            if is_about is not False
        ]
        return sorted(found, key=lambda match: (not match.stops, not match.is_certain))
