"""Secrets in tables: values below a heading that says so, in CSV, in Markdown, and in what databases print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

Span = tuple[int, int, str]
Cell = tuple[int, int]
#: The kind of secret that a value is under a name, or None.
Judge = Callable[[str, str], str | None]

#: A heading is a label: up to four words.
_LABEL = re.compile(r"[\w./#-]{1,30}(?: [\w./#-]{1,20}){0,3}")
#: Of code and of sentences.
_NO_HEADING = re.compile(r"[(){}=<>$@!?*&%\\]|: |\. ")
_LONGEST_HEADING = 400
_LONGEST_ROW = 4000
_MOST_ROWS = 1000
_RULE = re.compile(r"[\s|+:=-]*")
_COLUMNS = {
    "|": re.compile(r"[^|\n]+"),
    "\t": re.compile(r"[^\t\n]+"),
    ";": re.compile(r'"[^"\n]*"|[^;\n]+|(?<=;)(?=;|\Z)'),
    ",": re.compile(r'"[^"\n]*"|[^,\n]+|(?<=,)(?=,|\Z)'),
    "  ": re.compile(r"\S+(?: \S+)*"),
}
_LINE = re.compile(r"[^\n]*")


def tables(text: str, words: Iterable[int], judge: Judge) -> Iterator[Span]:
    """Yields the values below headings that name a secret. `words`: where words stand that can, in order."""
    after = 0
    for word in words:
        if word < after:
            continue
        start = text.rfind("\n", 0, word) + 1
        end = text.find("\n", word)
        if end < 0:
            return
        after = end
        if end - start > _LONGEST_HEADING or _NO_HEADING.search(text, start, end):
            continue
        sign = next((sign for sign in _COLUMNS if sign in text[start:end].strip()), None)
        if sign is not None:
            found, after = _values(text, start, end, sign, judge)
            yield from found


def _values(text: str, start: int, end: int, sign: str, judge: Judge) -> tuple[list[Span], int]:
    """The secrets in the rows below a line, if it is a heading, and where the rows end."""
    headings = [_bare(text, *cell) for cell in _cells(text, start, end, sign)]
    names = [text[begin:stop] for begin, stop in headings]
    labels = [name for name in names if name]
    if len(labels) < 2 - (sign == "|") or not all(map(_LABEL.fullmatch, labels)):
        return [], end
    found: list[Span] = []
    at = end + 1
    for _ in range(_MOST_ROWS):
        line = _LINE.match(text, at)
        if line is None or at >= len(text) or line.end() - at > _LONGEST_ROW:
            break
        if not _RULE.fullmatch(line[0]):
            cells = _cells(text, at, line.end(), sign)
            if sign not in line[0].strip() or abs(len(cells) - len(names)) > (0 if sign in ",;" else 1):
                break
            for name, cell in zip(names, cells, strict=False):
                begin, stop = _bare(text, *cell)
                if stop > begin and (kind := judge(name.replace(" ", "_"), text[begin:stop])):
                    found.append((begin, stop, kind))
        elif not line[0].strip():
            break
        at = line.end() + 1
    return found, min(at, len(text))


def _cells(text: str, start: int, end: int, sign: str) -> list[Cell]:
    return [match.span() for match in _COLUMNS[sign].finditer(text, start, end)]


def _bare(text: str, start: int, end: int) -> Cell:
    """A cell without the white space, the quotes and the back quotes around it."""
    while start < end and text[start] in " \t\"'`*\r":
        start += 1
    while end > start and text[end - 1] in " \t\"'`*\r":
        end -= 1
    return start, end
