"""Check a tool call against rules. It reads nothing but the `.git` folders above the call, and runs nothing."""

from __future__ import annotations

import logging
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sprite.protocol.tools import connection_call
from sprite.rules.condition import Condition, Values, fits, fits_any, fits_command, fits_path, fits_time, strings
from sprite.rules.shell import UNKNOWN, Command, UnreadableError, read, unversioned

log = logging.getLogger(__name__)

#: `host` or `name@host` in a URL, an address or a target of `ssh`.
_HOST = re.compile(r"(?:(?<=://)(?:[^/\s@]*@)?|[^\s@<>,;:\"'(/]+@)(?:\[[0-9a-fA-F:]+\]|[\w.-]+)")
_PATH_KEYS = ("file_path", "path", "notebook_path")
_HOST_KEYS = ("url", "uri", "host", "hostname", "to", "cc", "bcc", "recipients", "server", "address")
#: Characters that do not change which program a word names. They are left out before a quick search.
_SPELLING = str.maketrans("", "", "'\"\\")
_CONTINUED = "\\\n"
_NAME = re.compile(r"[\w.+@-]+")
_MOST_PATHS = 400
#: Tools whose rules are remembered.
_MOST_TOOLS = 64


class UncertainError(Exception):
    """A value of the call cannot be told."""


@dataclass(frozen=True, slots=True)
class Match:
    """A rule that is about a call. Not `is_certain`: it may be, but a part of the call cannot be told."""

    rule: int
    is_certain: bool = True


class Facts:
    """The values of one tool call, each read when a rule asks for it.

    `folder` is where it runs. Calls of the log (`is_past`) have no known folder or branch.
    """

    def __init__(
        self, tool: str, tool_input: Mapping[str, Any], folder: str | None, now: datetime, *, is_past: bool = False
    ) -> None:
        self.now = now
        self._folder = folder
        self._is_past = is_past
        self._named: list[str] | None = None
        _, server, *parts = tool.split("__") if tool.startswith("mcp__") else ("", "")
        called = connection_call(tool, tool_input)
        self.connection = server if called is None else called.connection
        self._arguments = tool_input if called is None else called.arguments
        name = called.tool if called is not None else parts[-1] if parts else tool
        #: The names under which a rule may know the tool.
        self.tools = tuple(dict.fromkeys((tool, name, *([f"mcp__{self.connection}__{name}"] if called else []))))
        command = tool_input.get("command")
        self.shell = command if isinstance(command, str) and not server else None

    @cached_property
    def text(self) -> str:
        """Everything that a command, path or host of a rule can be a part of, in lower case and without quotes."""
        if self.shell is not None:
            return f"{self.shell.replace(_CONTINUED, '').translate(_SPELLING)}\0{self._folder}".casefold()
        return "\0".join([*self.paths(None), *self.hosts(None, also_bare=True)]).casefold()

    @property
    def names(self) -> set[str]:
        """Everything in a shell text that can be a program's name."""
        found = set(_NAME.findall(self.text)) if self.shell is not None else set()
        return found | {unversioned(name) for name in found if name[-1].isdigit()}

    @cached_property
    def commands(self) -> Sequence[Command | None]:
        """The simple commands. A call that is none counts as one place without a command."""
        if self.shell is None:
            return [None]
        try:
            return read(self.shell, self._folder)
        except (UnreadableError, RecursionError) as error:
            raise UncertainError from error

    def folder(self, command: Command | None) -> str | None:
        """Return the folder of a command, or of the file that the call names."""
        if command is not None:
            return command.folder
        path = next(self._paths(None), None)
        return os.path.dirname(path) if path else self._folder  # noqa: PTH120 - a string

    def hosts(self, command: Command | None, *, also_bare: bool) -> list[str]:
        """Return the hosts in addresses and URLs, and with `also_bare` words that may be host names."""
        if command is not None:
            texts: Sequence[str] = command.words[1:]
        else:
            texts = [text for key in _HOST_KEYS for text in strings(self._arguments.get(key))]
        found = [host for text in texts for host in _HOST.findall(text)]
        return [*found, *(text.partition(":")[0] for text in texts if "/" not in text)] if also_bare else found

    def paths(self, command: Command | None) -> list[str]:
        """Return the paths that the call or command names; those of a call also with links resolved."""
        if command is not None:
            return list(self._paths(command))[:_MOST_PATHS]
        if self._named is None:
            named = list(self._paths(None))
            self._named = named if self._is_past else [*named, *(os.path.realpath(path) for path in named)]
        return self._named

    def _paths(self, command: Command | None) -> Iterator[str]:
        named = [self._arguments.get(key) for key in _PATH_KEYS] if command is None else command.words[1:]
        folder = self._folder if command is None else command.folder
        for path in named:
            if isinstance(path, str) and path and not path.startswith("-") and "\0" not in path:
                whole = os.path.expanduser(path)  # noqa: PTH111 - a string, and fast
                yield os.path.normpath(whole if whole.startswith("/") or folder is None else f"{folder}/{whole}")

    def branches(self, command: Command | None) -> list[str]:
        """Return the branches that may be checked out. UncertainError if that cannot be told."""
        switched = None if command is None else command.branch
        if switched is not None and UNKNOWN not in switched and (command is None or not command.may_fail):
            return [switched]
        folder = self.folder(command)
        if self._is_past or folder is None or (switched is not None and UNKNOWN in switched):
            raise UncertainError
        git = _git_folder(folder)
        if git is None:
            return [] if switched is None else [switched]
        if switched is not None and _has_branch(git, switched):
            return [switched]
        return [branch for branch in (switched, _head(git)) if branch]


def _git_folder(folder: str) -> str | None:
    """Return the folder with the state of the repository that holds a folder."""
    try:
        for place in (Path(folder), *Path(folder).parents):
            git = place / ".git"
            if git.is_dir():
                return str(git)
            if git.is_file():
                return os.path.join(place, git.read_text().partition("gitdir:")[2].strip())  # noqa: PTH118
    except (OSError, ValueError) as error:
        raise UncertainError from error
    return None


def _head(git: str) -> str:
    try:
        return Path(git, "HEAD").read_text()[:_MOST_PATHS].partition("ref: refs/heads/")[2].strip()
    except (OSError, ValueError) as error:
        raise UncertainError from error


def _has_branch(git: str, branch: str) -> bool:
    try:
        packed = Path(git, "packed-refs")
        return Path(git, "refs/heads", branch).is_file() or (
            packed.is_file() and f" refs/heads/{branch}\n" in packed.read_text()
        )
    except (OSError, ValueError):
        return False


class Rule:
    """One condition, ready to check calls."""

    def __init__(self, condition: Condition) -> None:
        self._given, self._unless = condition.given, condition.unless
        #: The programs that it is about, or none if it is about other calls, too.
        programs = [pattern.split(maxsplit=1)[0].casefold() for pattern in self._given.get("command", ())]
        self.programs = programs if all(map(_NAME.fullmatch, programs)) else []
        #: A call is not meant whose text lacks a part of every value. Most calls are told by this alone.
        self._needles = [
            [_literals(value) for value in self._given[key]]
            for key in ("command", "path", "host")
            if key in self._given
        ]

    def may_be_about(self, facts: Facts) -> bool:
        """Return whether it can be about calls of the same tool."""
        is_tool = "tool" not in self._given or _is("tool", self._given, facts)
        return is_tool and (facts.shell is not None or "command" not in self._given)

    def is_about(self, facts: Facts) -> bool:
        """Return whether the condition is about a call. UncertainError if that cannot be told."""
        text = facts.text
        for needles in self._needles:
            if not any(all(part in text for part in parts) for parts in needles):
                return False
        if not all(_is(key, self._given, facts) for key in _OF_CALL if key in self._given):
            return False
        if any(_is(key, self._unless, facts) for key in _OF_CALL if key in self._unless):
            return False
        return any(_holds_for(self._given, self._unless, facts, command) for command in facts.commands)


def _literals(pattern: str) -> list[str]:
    """Return what a text has if it fits a pattern, or has words that fit it."""
    words = pattern.casefold().removeprefix("~").translate(_SPELLING).replace("*", " ").replace("/", " ").split()
    return [word for word in words if word != "..."]


#: Kinds of values that a call has as a whole, not each of its commands.
_OF_CALL = ("tool", "connection", "time")


def _is(key: str, values: Values, facts: Facts) -> bool:
    if key == "tool":
        return any(fits_any(values["tool"], name) for name in facts.tools)
    if key == "connection":
        return fits_any(values["connection"], facts.connection)
    return any(fits_time(span, facts.now) for span in values["time"])


def _holds_for(given: Values, unless: Values, facts: Facts, command: Command | None) -> bool:
    # The branch comes last, because it reads the disk and may not be known.
    for key in ("command", "path", "host", "project", "branch"):
        for values, is_unless in ((given, False), (unless, True)):
            if key in values and _has(key, values[key], facts, command, every=is_unless) is is_unless:
                return False
    return True


def _has(key: str, patterns: Sequence[str], facts: Facts, command: Command | None, *, every: bool) -> bool:
    """Return whether a command has a value that fits; with `every`, whether all its values do."""
    match key:
        case "command":
            return command is not None and any(fits_command(pattern, command) for pattern in patterns)
        case "path":
            return _met(patterns, facts.paths(command), fits_path, every=every)
        case "host":
            return _met(patterns, facts.hosts(command, also_bare=not every), _fits_host, every=every)
        case "project":
            return _met(patterns, (facts.folder(command) or "").strip("/").split("/"), fits, every=False)
        case _:
            return _met(patterns, facts.branches(command), fits, every=every)


def _fits_host(pattern: str, host: str) -> bool:
    return fits(pattern, host) or fits(pattern, host.rpartition("@")[2])


def _met(patterns: Sequence[str], values: Sequence[str], fit: Callable[[str, str], bool], *, every: bool) -> bool:
    found = (any(fit(pattern, value) for pattern in patterns) for value in values)
    return bool(values) and all(found) if every else any(found)


class Book:
    """Active rules. `rules` are (id, condition, action)."""

    def __init__(self, rules: Sequence[tuple[int, Condition, Literal["stop", "ask"]]]) -> None:
        self._rules = {number: Rule(condition) for number, condition, _ in rules}
        self._stops = {number for number, _, action in rules if action == "stop"}
        self._of_program: defaultdict[str, list[int]] = defaultdict(list)
        for number, rule in self._rules.items():
            for program in rule.programs:
                self._of_program[program].append(number)
        #: The rules that are not about programs alone, by what the tool's name and kind leave of them.
        self._others: dict[tuple[object, ...], list[int]] = {}

    def __len__(self) -> int:
        return len(self._rules)

    def find(self, facts: Facts) -> list[Match]:
        """Return the rules that are about a call: those that stop it first, then those that ask."""
        found: list[Match] = []
        for number in self._likely(facts):
            try:
                if self._rules[number].is_about(facts):
                    found.append(Match(number))
            except UncertainError:
                found.append(Match(number, is_certain=False))
            except Exception:
                # A bug here must neither stop a call nor let it through: the person is asked.
                log.exception("a rule could not be checked")
                found.append(Match(number, is_certain=False))
        return sorted(found, key=lambda match: (not match.is_certain, match.rule not in self._stops))

    def _likely(self, facts: Facts) -> list[int]:
        """Return the rules that neither the tool nor the programs rule out."""
        kind = (facts.shell is not None, *facts.tools)
        others = self._others.get(kind)
        if others is None:
            others = [number for number, rule in self._rules.items() if not rule.programs and rule.may_be_about(facts)]
            if len(self._others) < _MOST_TOOLS:
                self._others[kind] = others
        named = facts.names & self._of_program.keys()
        return [*others, *{number for name in named for number in self._of_program[name]}]
