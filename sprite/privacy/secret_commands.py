"""A command as evidence: the results of `op read`, `printenv` or `cat .env` are secrets, whatever they look like."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from sprite.privacy.secret_formats import Rule, read

#: Kept instead of such a result.
NOT_KEPT = "[the result is not kept: this command shows secrets]"
#: Names of the arguments that hold a command, and of those that hold a path.
_COMMANDS = ("command", "cmd", "script")
_PATHS = ("file_path", "path", "absolute_path")
_LONGEST = 20_000


class CommandFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """commands.toml."""

    start: str
    files: tuple[str, ...]
    command: tuple[Rule, ...]


@functools.cache
def _rules() -> tuple[re.Pattern[str], re.Pattern[str]]:
    rules = read("commands.toml", CommandFile)
    # Examples, templates, sealed secrets and code that is named like a file of secrets hold none.
    file = (
        rf"(?:(?<=[\s/\\\"'=:~<@])(?<!templates/)(?![\w-]*sealed)(?:{'|'.join(rules.files)})"
        r"(?![\w-]|\.(?:example|sample|template|tpl|dist|md|rst|py|ts|js|go|rs|enc|pub|j2)\b))"
    )
    commands = "|".join(f"(?:{rule.regex})" for rule in rules.command)
    return re.compile(commands.replace("{start}", rules.start).replace("{file}", file)), re.compile(file)


def shows_secrets(given: Any) -> bool:
    """Return whether a tool call with this input has a secret as its result: a command, or a file that is read."""
    if not isinstance(given, Mapping):
        return False
    commands, file = _rules()
    for name in _COMMANDS:
        said = given.get(name)
        # Some programs log the arguments of a command one by one.
        command = "\n".join(map(str, said)) if isinstance(said, list) else said
        if isinstance(command, str) and commands.search(command[:_LONGEST]):
            return True
    paths = (given[name] for name in _PATHS if isinstance(given.get(name), str))
    return any(file.search(f"/{path}") for path in paths)


def kept_result(given: Any, result: str) -> str:
    """Return the result of a tool call, or a note if the call shows secrets."""
    return NOT_KEPT if result.strip() and shows_secrets(given) else result
