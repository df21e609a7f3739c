"""Read a shell command as the simple commands that it runs, without running anything (pure, total).

Each command is read with the wrappers before it (`env`, `sudo`, `sh -c`, `xargs`, `uv run`) and without. Text that
only the shell could know, such as the output of `$(...)`, stays a placeholder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

#: Longer commands are not read. The log keeps 2,000 characters of one.
MAX_CHARS = 32_000
#: Nested substitutions, strings for `sh -c`, and wrappers.
_MAX_LEVELS = 12
_MAX_COMMANDS = 400
#: Stands for text that only the shell knows.
UNKNOWN = "\0"

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\\\n)|(?P<end>\n|;[;&]*|&&|&(?!>)|\|[|&]?)|(?P<open>\()|(?P<close>\))
    |(?P<redirect>\d*(?:&>>?|<<<|<<-?|>>|>[|&]|<[>&]|[<>](?!\()))|(?P<process>[<>]\()
    |(?P<plain>[^\s;&|()<>'"\\$`\#]+|\#)|'(?P<single>[^']*)'|\$'(?P<ansi>(?:[^'\\]|\\.)*)'|(?P<double>\$?")
    |\\(?P<escaped>.)|(?P<sub>\$\()|(?P<tick>`)|\$(?:\{(?P<braced>\w+)\}|(?P<name>\w+))|(?P<dollar>\$)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(
    r'(?P<plain>[^"\\$`]+)|\\(?P<escaped>["\\$`\n])|(?P<slash>\\)|(?P<sub>\$\()|(?P<tick>`)'
    r'|\$(?:\{(?P<braced>\w+)\}|(?P<name>\w+))|(?P<dollar>\$)|(?P<quote>")'
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?[smhd]?")
_VERSION = re.compile(r"(?<=[a-z])-?\d[\d.]*$")
_RESERVED = frozenset("if then elif else fi for while until do done case esac in ! { } time coproc function".split())
#: Programs that run the command in their arguments.
_WRAPPERS = frozenset(
    "sudo doas env nohup command exec builtin time nice ionice timeout stdbuf setsid xargs unbuffer busybox chronic "
    "npx bunx uvx watch eatmydata caffeinate strace".split()
)
#: The same after a word of their own.
_RUNNERS = {
    **dict.fromkeys(("uv", "poetry", "pipenv", "pdm", "hatch", "rye", "conda"), "run"),
    **dict.fromkeys(("npm", "pnpm", "bundle", "mise"), "exec"),
}
_SHELLS = frozenset("sh bash dash zsh ksh ash su script".split())
#: Options of git before its command that have a value.
_GIT_VALUES = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace"})


class UnreadableError(ValueError):
    """The command is too long, too deep or unfinished."""


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
        """The program's name, without its folder."""
        return self.words[0].rpartition("/")[2].casefold()


def unversioned(program: str) -> str:
    """Return a program's name without its version: `pip` for `pip3.12`."""
    return _VERSION.sub("", program)


def read(text: str, folder: str | None = None) -> list[Command]:
    """Return every simple command of a shell text. Raises UnreadableError."""
    if len(text) > MAX_CHARS:
        raise UnreadableError
    found: list[Command] = []
    _Reader(text, _State(folder), found, 0).read()
    return found


def after_options(words: Sequence[str], starts: set[int]) -> Iterator[int]:
    """Yield the places of the next words that may be no options; an option may have a value."""
    waiting, seen = sorted(starts, reverse=True), set(starts)
    while waiting:
        at = waiting.pop()
        if at >= len(words):
            continue
        if not words[at].startswith("-") or words[at] == "-":
            yield at
            continue
        steps = {at + 1} if "=" in words[at] or words[at] == "--" else {at + 1, at + 2}
        waiting.extend(sorted(steps - seen, reverse=True))
        seen |= steps


@dataclass(slots=True)
class _State:
    folder: str | None
    branch: str | None = None
    may_fail: bool = False
    variables: dict[str, str] = field(default_factory=dict)


class _Reader:
    def __init__(self, text: str, state: _State, found: list[Command], level: int) -> None:
        if level > _MAX_LEVELS:
            raise UnreadableError
        self._text = text
        self._state = state
        self._found = found
        self._level = level
        self._at = 0
        self._words: list[str] = []
        self._word: list[str] | None = None
        #: Files that the command reads or writes; they count as its last words.
        self._files: list[str] = []
        #: Words that wait for the text of a here-document, and what the last command reads.
        self._here: list[str] = []
        self._redirect = ""
        self._input = ""

    def read(self, closing: str = "") -> None:
        """Read up to the end, or to the closing sign."""
        while self._at < len(self._text):
            match = _TOKEN.match(self._text, self._at)
            if match is None:
                raise UnreadableError
            self._at = match.end()
            if match.lastgroup in {"close", "tick"} and match[0] == closing:
                self._end()
                return
            self._take(match)
        if closing:
            raise UnreadableError
        self._end()

    def _take(self, match: re.Match[str]) -> None:
        kind, text = match.lastgroup or "", match[0]
        if kind == "plain" and text == "#" and self._word is None:
            self._at = (self._text + "\n").index("\n", self._at)
        elif kind in {"plain", "single", "escaped", "dollar"}:
            self._add(match[kind])
        elif kind == "ansi":
            self._add(match[kind].encode("utf-8", "replace").decode("unicode_escape", "replace"))
        elif kind == "double":
            self._add("")
            self._quoted()
        elif kind in {"braced", "name"}:
            # Without quotes, the shell splits the value into words.
            first, *rest = self._state.variables.get(match[kind], text).split() or [""]
            self._add(first)
            for part in rest:
                self._finish_word()
                self._add(part)
        elif kind in {"sub", "process", "tick"}:
            self._add(UNKNOWN)
            self._inner("`" if kind == "tick" else ")")
        else:
            self._separate(kind, text)

    def _separate(self, kind: str, text: str) -> None:
        if kind == "space":
            self._finish_word()
        elif kind == "redirect":
            self._finish_word()
            self._redirect = text.lstrip("0123456789")
        else:
            self._end()
            if kind == "open":
                self._inner(")")
            elif text == "\n":
                self._skip_here()

    def _inner(self, closing: str) -> None:
        inner = _Reader(self._text, replace(self._state), self._found, self._level + 1)
        inner._at = self._at
        inner.read(closing)
        self._at = inner._at

    def _quoted(self) -> None:
        while match := _QUOTED.match(self._text, self._at):
            self._at = match.end()
            kind = match.lastgroup or ""
            if kind == "quote":
                return
            if kind in {"sub", "tick"}:
                self._add(UNKNOWN)
                self._inner("`" if kind == "tick" else ")")
            elif kind in {"braced", "name"}:
                self._add(self._state.variables.get(match[kind], match[0]))
            else:
                self._add(match[kind])
        raise UnreadableError

    def _add(self, text: str) -> None:
        if self._word is None:
            self._word = []
        self._word.append(text)

    def _finish_word(self) -> None:
        if self._word is None:
            return
        word, self._word = "".join(self._word), None
        redirect, self._redirect = self._redirect, ""
        if redirect.startswith("<<") and redirect != "<<<":
            self._here.append(word)
        elif redirect == "<<<":
            self._input = word
        elif not redirect:
            self._words.append(word)
        elif redirect[-1] != "&":
            self._files.append(word)

    def _skip_here(self) -> None:
        """Skip here-documents. A shell that reads one runs it."""
        for word in self._here:
            lines = []
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line, self._at = self._text[self._at : end], end + 1
                if line.strip("\t") == word:
                    break
                lines.append(line)
            if self._found and self._found[-1].program in _SHELLS:
                _Reader("\n".join(lines), self._state, self._found, self._level + 1).read()
        self._here.clear()

    def _end(self) -> None:
        self._finish_word()
        self._redirect = ""
        words, self._words = self._words, []
        files, self._files = self._files, []
        given, self._input = self._input, ""
        while words and (words[0] in _RESERVED or (match := _ASSIGNMENT.fullmatch(words[0])) is not None):
            if words[0] not in _RESERVED and match is not None:
                self._state.variables[match[1]] = match[2]
            words = words[1:]
        if words or files:
            self._run((*(words or [":"]), *files), given, self._level)

    # --- commands in commands ---

    def _run(self, words: tuple[str, ...], given: str, level: int) -> None:
        if level > _MAX_LEVELS or len(self._found) >= _MAX_COMMANDS:
            raise UnreadableError
        state = self._state
        command = Command(words, state.folder, state.branch, state.may_fail)
        name = unversioned(command.program)
        if name == "git":
            self._git(words)
        else:
            self._found.append(command)
        if name in {"cd", "pushd"}:
            state.folder = _below(state.folder, words[1] if len(words) > 1 else "~")
            state.branch = None
        elif name in _SHELLS:
            scripts = [words[at + 1] for at in range(1, len(words) - 1) if re.fullmatch(r"-[a-z]*c", words[at])]
            for script in [*scripts[:1], *([given] if given else [])]:
                _Reader(script, state, self._found, level + 1).read()
        elif name == "eval":
            _Reader(" ".join(words[1:]), state, self._found, level + 1).read()
        for at in sorted(self._starts(name, words)):
            if " " in words[at]:
                _Reader(words[at], state, self._found, level + 1).read()
            self._run(words[at:], given, level + 1)

    def _starts(self, name: str, words: tuple[str, ...]) -> set[int]:
        """Return the places where a command in the arguments may begin."""
        first = {1}
        if name in {"find", "fd"}:
            return {at + 1 for at, word in enumerate(words[:-1]) if word in {"-exec", "-execdir", "-ok", "-x", "-X"}}
        if name in {"python", "py"} and "-m" in words[1:-1]:
            return {words.index("-m", 1) + 1}
        if (own := _RUNNERS.get(name)) is not None:
            first = {at + 1 for at in after_options(words, first) if words[at] == own}
        elif name not in _WRAPPERS:
            return set()
        starts: set[int] = set()
        waiting = list(after_options(words, first))
        while waiting:
            at = waiting.pop()
            if _ASSIGNMENT.fullmatch(words[at]) or _NUMBER.fullmatch(words[at]):
                waiting += set(after_options(words, {at + 1})) - starts
            else:
                starts.add(at)
        return starts

    def _git(self, words: tuple[str, ...]) -> None:
        """Add a git command with the folder that its options or the environment name, and track its branch."""
        state, at = self._state, 1
        is_here = not state.variables.keys() & {"GIT_DIR", "GIT_WORK_TREE"}
        folder = state.folder if is_here else None
        while at < len(words) and words[at].startswith("-"):
            if words[at] == "-C" and at + 1 < len(words):
                folder, is_here = _below(folder, words[at + 1]), False
            elif words[at].startswith(("--git-dir", "--work-tree")):
                folder, is_here = None, False
            at += 2 if words[at] in _GIT_VALUES else 1
        self._found.append(Command(words, folder, state.branch if is_here else None, state.may_fail))
        rest = words[at + 1 :]
        if not is_here or words[at : at + 1] not in {("checkout",), ("switch",)} or "--" in rest:
            return
        made = next((here for here, word in enumerate(rest) if re.fullmatch(r"-[a-z]*[bBcC]|--orphan", word)), None)
        names = rest[made + 1 :] if made is not None else [word for word in rest if not word.startswith("-")]
        if names:
            state.branch, state.may_fail = names[0], made is None


def _below(folder: str | None, name: str) -> str | None:
    if name == "-" or UNKNOWN in name or "$" in name:
        return None
    name = os.path.expanduser(name)  # noqa: PTH111 - a string, and fast
    if name.startswith("/"):
        return os.path.normpath(name)
    return None if folder is None else os.path.normpath(f"{folder}/{name}")
