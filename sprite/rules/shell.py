"""Read a shell command as the simple commands that it runs, without running anything (pure, total).

Each command is read with the wrappers before it (`env`, `sudo`, `sh -c`, `xargs`, `uv run`) and without. Text that
only the shell could know, such as the output of `$(...)`, stays a placeholder. No library does it: bashlex takes twice
the time of a whole check, and tree-sitter-bash is C code that would read the agent's text outside of the sandbox.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile

#: Longer commands are not read. The log keeps 2,000 characters of one.
MAX_CHARS = 32_000
#: Nested substitutions, strings for `sh -c`, and wrappers.
_MAX_LEVELS = 12
_MAX_COMMANDS = 400
#: Stands for text that only the shell knows.
UNKNOWN = "\0"

_EXPANSION = r"(?P<tick>`)|\$(?P<name>\w+|\{\w+\})|(?P<dollar>\$)"
_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+)|(?P<nothing>\\\n|(?<![^\s;&|(<>])(?<!\\.)\#[^\n]*)|(?P<end>\n|;[;&]*|&&|&(?!>)|\|[|&]?)"
    r"|(?P<open>\()|(?P<close>\))|(?P<redirect>\d*(?:&>>?|<<<|<<-?|>>|>[|&]|<[>&]|[<>](?!\()))"
    r"|(?P<plain>[^\s;&|()<>'\"\\$`]+)|'(?P<single>[^']*)'|\$'(?P<ansi>(?:[^'\\]|\\.)*)'|(?P<quote>\$?\")"
    rf"|\\(?P<escaped>.)|(?P<sub>[$<>]\()|{_EXPANSION}",
    re.DOTALL,
)
_QUOTED = re.compile(
    r"(?P<plain>(?:[^\"\\$`]|\\(?![\"\\$`\n]))+)|(?P<nothing>\\\n)|\\(?P<escaped>.)|(?P<quote>\")|(?P<sub>\$\()"
    rf"|{_EXPANSION}",
    re.DOTALL,
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
#: Words between a wrapper and its command: `env A=b`, `timeout 5`.
_BETWEEN = re.compile(rf"\d+(?:\.\d+)?[smhd]?|{_ASSIGNMENT.pattern}", re.DOTALL)
_VERSION = re.compile(r"(?<=[a-z])-?\d[\d.]*$")
_RESERVED = frozenset("if then elif else fi for while until do done case esac in ! { } time coproc function".split())
_SHELLS = frozenset("sh bash dash zsh ksh ash su script".split())
#: Programs that run the command in their arguments.
_WRAPPERS = frozenset(
    "sudo doas env nohup command exec builtin time nice ionice timeout stdbuf setsid xargs unbuffer busybox chronic "
    "npx bunx uvx watch eatmydata caffeinate strace".split()
)
#: The same after one of these words.
_BEFORE = {
    **dict.fromkeys(("uv", "poetry", "pipenv", "pdm", "hatch", "rye", "conda"), re.compile("run")),
    **dict.fromkeys(("npm", "pnpm", "bundle", "mise"), re.compile("exec")),
    **dict.fromkeys(("find", "fd"), re.compile("-exec|-execdir|-ok|-[xX]")),
    **dict.fromkeys(("python", "py"), re.compile("-m")),
    **dict.fromkeys(_SHELLS, re.compile("-[a-z]*c")),
}
#: A text that is more than one word for a shell.
_SCRIPT = re.compile(r"[\s;&|()<>]")
#: Options of git before its command that have a value.
_GIT_VALUES = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace"})
_NEW_BRANCH = re.compile(r"(?:^| )(?:-[a-z]*[bBcC]|--orphan) (\S+)")


class UncertainError(ValueError):
    """A value of a tool call cannot be determined without running it."""


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its words, the folder it runs in, and a branch that an earlier command has switched to.

    `folder` is None if it is unknown. `may_fail`: the branch may not exist, so that the old one stays.
    """

    words: tuple[str, ...]
    folder: str | None
    branch: str | None = None
    may_fail: bool = False

    @property
    def program(self) -> str:
        """The name of the program that the command runs, without its folder."""
        return self.words[0].rpartition("/")[2].casefold()


def unversioned(program: str) -> str:
    """Return a program's name without its version: `pip` for `pip3.12`."""
    return _VERSION.sub("", program)


def read(text: str, folder: str | None = None) -> list[Command]:
    """Return every simple command of a shell text.

    Raises UncertainError if the text is too long, too deeply nested or unfinished.
    """
    if len(text) > MAX_CHARS:
        raise UncertainError
    found: list[Command] = []
    _Reader(text, _State(folder), found, 0).read()
    return found


def after_options(words: Sequence[str], starts: set[int], skipped: re.Pattern[str] | None = None) -> Iterator[int]:
    """Yield the index of each word that may be the first after options, from each index in `starts`.

    Several are possible, because the word after an option may be its value. `skipped` matches other words to pass
    over.
    """
    waiting, seen = list(starts), set(starts)
    while waiting:
        at = waiting.pop()
        if at >= len(words):
            continue
        steps: set[int] = set()
        if words[at].startswith("-") and words[at] != "-":
            steps = {at + 1} if "=" in words[at] or words[at] == "--" else {at + 1, at + 2}
        elif skipped is not None and skipped.fullmatch(words[at]):
            steps = {at + 1}
        else:
            yield at
        waiting += steps - seen
        seen |= steps


@dataclass(slots=True)
class _State:
    folder: str | None
    branch: str | None = None
    may_fail: bool = False
    variables: dict[str, str] = field(default_factory=dict)


class _Reader:
    def __init__(self, text: str, state: _State, found: list[Command], level: int, at: int = 0) -> None:
        if level > _MAX_LEVELS:
            raise UncertainError
        self._text, self._state, self._found, self._level, self._at = text, state, found, level, at
        self._word: str | None = None
        self._is_quoted = False
        self._words: list[str] = []
        #: Files that the command reads or writes; they count as its last words.
        self._files: list[str] = []
        #: Words that wait for the text of a here-document, and what the last command reads.
        self._here: list[str] = []
        self._redirect = self._input = ""

    def read(self, closing: str = "") -> int:
        """Parse the text up to its end or the sign `closing`. Return the index after that."""
        while self._at < len(self._text):
            match = (_QUOTED if self._is_quoted else _TOKEN).match(self._text, self._at)
            if match is None:
                raise UncertainError
            self._at = match.end()
            if match[0] == closing and not self._is_quoted:
                break
            self._take(match.lastgroup or "", match)
        else:
            if closing or self._is_quoted:
                raise UncertainError
        self._end()
        return self._at

    def _take(self, kind: str, match: re.Match[str]) -> None:
        match kind:
            case "sub" | "tick":
                self._add(UNKNOWN)
                self._inner("`" if kind == "tick" else ")")
            case "quote":
                self._is_quoted = not self._is_quoted
                self._add("")
            case "name":
                value = self._state.variables.get(match["name"].strip("{}"), match[0])
                # Without quotes, the shell splits the value into words.
                first, *rest = [value] if self._is_quoted else value.split() or [""]
                self._add(first)
                for part in rest:
                    self._finish_word()
                    self._add(part)
            case "space" | "redirect":
                self._finish_word()
                self._redirect = match[0].strip(" \t\r0123456789") or self._redirect
            case "end" | "open" | "close":
                self._end()
                if kind == "open":
                    self._inner(")")
                elif match[0] == "\n":
                    self._skip_here()
            case "nothing":
                pass
            case _:
                self._add(match[kind])

    def _inner(self, closing: str) -> None:
        self._at = _Reader(self._text, replace(self._state), self._found, self._level + 1, self._at).read(closing)

    def _add(self, text: str) -> None:
        self._word = (self._word or "") + text

    def _finish_word(self) -> None:
        if self._word is None:
            return
        word, self._word = self._word, None
        redirect, self._redirect = self._redirect, ""
        if redirect == "<<<":
            self._input = word
        elif redirect.startswith("<<"):
            self._here.append(word)
        elif not redirect:
            self._words.append(word)
        elif redirect[-1] != "&":
            self._files.append(word)

    def _skip_here(self) -> None:
        """Skip the text of here-documents; if a shell reads one, parse it as commands."""
        for word in self._here:
            lines = []
            while self._at < len(self._text):
                end = self._text.find("\n", self._at) % (len(self._text) + 1)
                line, self._at = self._text[self._at : end], end + 1
                if line.strip("\t") == word:
                    break
                lines.append(line)
            if self._found and self._found[-1].program in _SHELLS:
                _Reader("\n".join(lines), self._state, self._found, self._level + 1).read()
        self._here.clear()

    def _end(self) -> None:
        self._finish_word()
        words, files, given = [*dropwhile(self._assigns, self._words)], self._files, self._input
        self._words, self._files, self._input, self._redirect = [], [], "", ""
        if words or files:
            self._run((*(words or [":"]), *files), given, self._level)

    def _assigns(self, word: str) -> bool:
        """Record an assignment (`NAME=VALUE`). Return whether the word is one, or a reserved word of the shell."""
        assigned = _ASSIGNMENT.fullmatch(word)
        if assigned is not None:
            self._state.variables[assigned[1]] = assigned[2]
        return assigned is not None or word in _RESERVED

    def _run(self, words: tuple[str, ...], given: str, level: int) -> None:
        if level > _MAX_LEVELS or len(self._found) >= _MAX_COMMANDS:
            raise UncertainError
        state = self._state
        command = Command(words, state.folder, state.branch, state.may_fail)
        name = unversioned(command.program)
        self._found.append(self._git(command) if name == "git" else command)
        scripts: list[str] = []
        if name in {"cd", "pushd"}:
            state.folder, state.branch = _below(state.folder, words[1] if len(words) > 1 else "~"), None
        elif name == "eval":
            scripts.append(" ".join(words[1:]))
        elif name in _SHELLS:
            scripts.append(given)
        before = _BEFORE.get(name)
        starts = {1} if name in _WRAPPERS else set()
        if before is not None:
            starts = {at + 1 for at, word in enumerate(words) if before.fullmatch(word)}
        for at in after_options(words, starts, _BETWEEN):
            if _SCRIPT.search(words[at]):
                scripts.append(words[at])
            else:
                self._run(words[at:], given, level + 1)
        for script in scripts:
            _Reader(script, state, self._found, level + 1).read()

    def _git(self, command: Command) -> Command:
        """Return a git command with the folder that its options or variables choose.

        If it switches the branch, record that for the next commands.
        """
        state, words, at = self._state, command.words, 1
        folder, is_here = state.folder, True
        if state.variables.keys() & {"GIT_DIR", "GIT_WORK_TREE"}:
            folder, is_here = None, False
        while at < len(words) and words[at].startswith("-"):
            if words[at] == "-C" and at + 1 < len(words):
                folder, is_here = _below(folder, words[at + 1]), False
            elif words[at].startswith(("--git-dir", "--work-tree")):
                folder, is_here = None, False
            at += 2 if words[at] in _GIT_VALUES else 1
        command = replace(command, folder=folder, branch=state.branch if is_here else None)
        rest = words[at + 1 :]
        if is_here and words[at : at + 1] in {("checkout",), ("switch",)} and "--" not in rest:
            made = _NEW_BRANCH.search(" ".join(rest))
            names = [made[1]] if made else [word for word in rest if not word.startswith("-")]
            if names:
                state.branch, state.may_fail = names[0], made is None
        return command


def _below(folder: str | None, name: str) -> str | None:
    if name == "-" or UNKNOWN in name or "$" in name:
        return None
    name = os.path.expanduser(name)  # noqa: PTH111 - a string, and fast
    if name.startswith("/"):
        return os.path.normpath(name)
    return None if folder is None else os.path.normpath(f"{folder}/{name}")
