"""Secrets without a shape of their own, recognised by the name they are given: `DB_PASSWORD=`, `"token": `.

Finds names with their values in code, configuration, markup, command lines and sentences, and determines how a value
is written; `secret_values` judges whether it is a secret. The words and what links them to a value are data,
`rules/names.toml`; here is the grammar around them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

from sprite.privacy.rule_files import NameFile, ValueFile, one_of, read
from sprite.privacy.secret_values import UPPER_NAME, Style, Values, compiled

Span = tuple[int, int, str]

#: An assignment, around the words and the links of the rules.
_ASSIGNMENT = (
    r"(?i)(?P<word>%s)(?P<rest>[\w.-]{0,40}+)(?P<gap>%s)"
    r"""(?:\\"(?P<escaped>[^"\\\n]{1,2000})|"(?P<double>[^"\n]{1,2000})"|'(?P<single>[^'\n]{1,2000})'"""
    r"""|`(?P<tick>[^`\n]{1,2000})`|(?P<bare>[^\s"'`]\S{0,2000}))"""
)
#: `name: X` before a `value: Y`; the start of a tag; what sets a variable in a shell, a Dockerfile or a chart.
_NAME_MEMBER = re.compile(r"(?i)(?:name|key)(?:\\?[\"'])?\s{0,4}[:=]\s{0,4}(?:\\?[\"'])?[\w.-]*\Z")
_TAG = re.compile(r"(?<!\?)(?<!\?P)<[\w:.-]*\Z")
_SETTER = re.compile(r"(?i)(?:\A|[\s\"'])(?:export|set|env|setx|ARG|-e|--env|--set|--build-arg|-D)[ =]\s*\Z")
_DEFINE = re.compile(r"(?i)\b(?:define|putenv|setenv)\s{0,2}\(\s{0,2}[\"'][\w.-]*\Z")
_WIDE_SIGNS = str.maketrans("\uff1a\uff1d", ":=")
_LONGEST_NAME = 100
#: The most names tried in one run of characters without a space; hostile text has thousands.
_MOST_NAMES = 8
#: Only a value with a digit, a sign or at least six letters is examined further.
_HOPEFUL = re.compile(r"\d|[!@#$%^&*~+?|]|[A-Za-z]{6}")
#: The inside of `[redacted:github-token]` holds no name.
_IN_MARK = re.compile(r"\[redacted:[a-z0-9-]*\Z")
_LONGEST_MARK = 60
_NAME_BEFORE = re.compile(r"[\w.-]{0,60}\Z")


@functools.cache
def names() -> Names:
    """Reads and compiles the rules about names and their values (60 ms, once)."""
    rules = read("names.toml", NameFile)
    return Names(rules, Values(read("values.toml", ValueFile), rules))


class Names:
    """The rules about names, compiled."""

    def __init__(self, rules: NameFile, values: Values) -> None:
        self._values = values
        words = rules.word
        #: Searched in the text in lower case; the whole assignment is tried only where one of them is found.
        self._words = re.compile(one_of(word.search for word in words if not word.markers))
        self._all_words = re.compile(one_of(word.search for word in words))
        self._markers = tuple(marker for word in words for marker in word.markers)
        self._ascii_markers = tuple(filter(str.isascii, self._markers))
        links = one_of(link.regex for link in rules.link)
        self._assignment = re.compile(_ASSIGNMENT % (one_of(word.regex for word in words), links))
        self._alone = frozenset(word.regex for word in words if word.alone)
        self._within = re.compile(one_of(word.filled(word.within) for word in words))
        self._spaced_name = compiled(rules.spaced_name)

    def words(self, lower: str) -> list[int]:
        """Returns where words stand that can name a secret, in a text in lower case."""
        rare = any(marker in lower for marker in (self._ascii_markers if lower.isascii() else self._markers))
        return [word.start() for word in (self._all_words if rare else self._words).finditer(lower)]

    def spans(self, text: str, lower: str, words: Iterable[int]) -> Iterator[Span]:
        """Yields the values that are given to a name which says that they are secret; `words` as above."""
        after = tries = region = 0
        for word in words:
            # A value that is no secret may hold the next name (`secret_name=token=...`); the tries are bounded.
            if word < after or (tries >= _MOST_NAMES and word < region):
                continue
            if _IN_MARK.search(lower, max(0, word - _LONGEST_MARK), word):
                continue
            match = self._assignment.match(text, word)
            if match is None:
                continue
            if match.start() >= region:
                tries, region = 0, match.end()
            tries += 1
            span = self._value_span(match, text)
            if span is not None:
                after = span[1]
                yield span

    def kind_of_member(self, name: str, value: str) -> str | None:
        """Returns the kind of secret that a JSON object's member is, by its name and its value; None if it is none."""
        words = self.words(name.lower()) if len(name) <= _LONGEST_NAME else ()
        matches = [match for word in words if (match := self._assignment.match(f"{name}: x", word))]
        if not any(self._full_name(match, name) for match in matches):
            return None
        return self._values.kind(name, value, "literal")

    def _value_span(self, match: re.Match[str], text: str) -> Span | None:
        group = match.lastgroup or "bare"
        start, end = match.span(group)
        if not _HOPEFUL.search(text, start, end):
            return None
        name = self._full_name(match, text)
        if name is None:
            return None
        gap, style = match["gap"], _style(match, text, name, group)
        if style is None:
            return None
        if group == "bare":
            end = _bare_end(match, text, style, start, end)
        elif group == "escaped":
            # Inside a JSON string the value's closing quote is escaped as well.
            end -= text[start:end].endswith("\\")
        value = text[start:end]
        kind = self._values.kind(name, value, style)
        if kind is None or (style == "prose" and not self._values.is_striking(value, gap, quoted=group != "bare")):
            return None
        return (start, end, kind)

    def _full_name(self, match: re.Match[str], text: str) -> str | None:
        """Returns the whole name, `spring.datasource.password`; None where the word is a part of another word."""
        start = match.start()
        before = _NAME_BEFORE.search(text, max(0, start - 60), start)
        prefix = before[0] if before else ""
        word, rest = match["word"], match["rest"]
        if word.lower() == "key" and not prefix and self._spaced_name.search(text, max(0, start - 20), start):
            prefix = "api_"
        if word.lower() in self._alone:
            joined = prefix[-1:].isalpha() and not (prefix[-1].islower() and word[0].isupper())
            if joined and not self._within.search(f"{prefix}{word}".lower()):
                return None
            if rest[:1].isalpha() and not rest[0].isupper():
                return None
        return f"{prefix}{word}{rest}"


def _gap(match: re.Match[str]) -> str:
    """What stands between a name and its value, with the signs of Chinese and Japanese as ours."""
    return match["gap"].translate(_WIDE_SIGNS)


def _style(match: re.Match[str], text: str, name: str, group: str) -> Style | None:
    """Returns how the value is written; None if nothing is assigned."""
    gap = _gap(match)
    before = text[max(0, match.start() - 200) : match.start()]
    line = before.rpartition("\n")[2]
    if "value" in gap.lower():
        return "literal" if _NAME_MEMBER.search(line) else None
    if "," in gap:
        return "literal" if _DEFINE.search(line) else None
    if gap == ">":
        return "literal" if _TAG.search(line) else None
    if not any(sign in gap for sign in ":=>|") or gap.startswith((" for ", " of ", " on ")):
        return _unsigned_style(match, before, name, group)
    return "literal" if group != "bare" else _bare_style(match, text, name, line)


def _bare_style(match: re.Match[str], text: str, name: str, line: str) -> Style:
    """Returns how a value without quotes is written: a literal in configuration, elsewhere an expression or a word."""
    gap, code = _gap(match), _is_code(text, match)
    lead = line[: len(line) - (len(name) - len(match["word"]) - len(match["rest"]))]
    configured = not lead.strip(" \t-#+") or _SETTER.search(lead)
    if "=" in gap and gap.strip() == gap and (UPPER_NAME.match(name) or lead[-1:] in {"?", "&", ";"}):
        return "literal"
    if lead.endswith("--") or (configured and gap.strip(" \t\"']") in {"=", ":"} and not code):
        return "literal"
    return "prose" if gap.strip(" ") in {":", "="} and gap.endswith(" ") and not code else "code"


def _unsigned_style(match: re.Match[str], before: str, name: str, group: str) -> Style | None:
    """Returns how a value is written that follows its name without a sign: flags, directives, SQL, netrc, sentences."""
    line = before.rpartition("\n")[2]
    if name.startswith("--") or line.endswith("--") or name == "requirepass":
        return "literal"
    if re.search(r"\bENV\s+\w*\Z", line) or re.search(r"(?i)\b(?:login|user|machine)\s+\S+\s+\Z", before):
        return "literal"
    if group != "bare" and ("identified" in name.lower() or re.search(r"(?i)\b(?:user|role|with|encrypted)\b", line)):
        return "literal"
    if name.lower() == "pass":
        # A verb: "pass `dtype`", "pass to paths2".
        return None
    return "prose" if match["gap"].strip("\"' ") or group != "bare" else None


def _is_code(text: str, match: re.Match[str]) -> bool:
    """Returns whether the rest of the line reads as code: a call, a semicolon at the end, a brace."""
    line = text[match.end("gap") : match.end("gap") + 200].partition("\n")[0].rstrip()
    return (
        line.endswith((";", "{", ",", "(", ")", "[", "]", "}")) or " = " in line or line.startswith(("await ", "new "))
    )


def _bare_end(match: re.Match[str], text: str, style: Style, start: int, end: int) -> int:
    """Returns the end of a value without quotes: `&` in a URL, `;` in a connection string, a full stop in prose."""
    value = text[start:end]
    before = text[max(0, match.start() - 61) : match.start()]
    in_query = "=" in match["gap"] and re.search(r"[?&][\w.-]*\Z", before) is not None
    if in_query:
        stop = re.search(r"[&#\"'<>`)\]}]", value)
    elif re.search(r"(?:;|(?:Server|Host|Data Source|Uid|User(?:\s?Id)?|Endpoint)\s?=[^\n]*)\s?[\w .-]*\Z", before):
        stop = re.search(r"[;\"'`]", value)
    elif match["gap"] == ">":
        stop = re.search(r"<", value)
    elif style == "literal" and text[match.start("gap") : start].strip().translate(_WIDE_SIGNS) in {"=", ":"}:
        stop = re.search(r"[\"'`](?=[\s,;)\]}]|\Z)|\\[nrt\"]|[,;](?=\s|\Z)", value)
    else:
        stop = re.search(r"[,;\"'`)\]}]|\\[nrt\"]", value)
    if stop is not None:
        value = value[: stop.start()]
    if style == "prose":
        value = value.rstrip(".,;:!?")
    return start + len(value)
