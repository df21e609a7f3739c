"""Secrets without a shape of their own, recognised by the name they are given: `DB_PASSWORD=`, `"token": `.

Finds names with their values in code, configuration, markup, command lines and sentences, and determines how a value
is written; `secret_values` judges whether it is a secret. The words and what links them to a value are data,
`rules/names.toml`; here is the grammar around them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from sprite.privacy.secret_formats import NameFile, Rule, ValueFile, entropy, one_of, read

_SHORTEST_PASSWORD = 6
#: Shorter letters alone are one word.
_SHORTEST_JOINED = 11
#: Frameworks make keys with signs in them, so long; with spaces too where there are many signs.
_SIGN_KEY_LENGTHS = range(32, 129)
_MANY_SIGNS = 8
#: Lengths of tokens: what services usually give out, and what only they do.
_USUAL = 16
_LONG = 20
#: Bits per character: above "aaaa1111", above a word with digits, and what only chance makes in twenty characters.
_NOT_REPETITIVE = 3.0
_VARIED = 3.5
_RANDOM = 4.0
#: `literal`: quoted, or a line of configuration, whose right side is never an expression.
Style = Literal["literal", "code", "prose"]
_SYMBOL = re.compile(r"[!@#$%^&*~+=?|\\<>]")
#: Services do not put these into tokens; patterns, markup and sentences have them.
_NO_TOKEN = re.compile(r"[\s\[\](){}<>|\\`]")
_TRANSITION = re.compile(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])")
UPPER_NAME = re.compile(r"[A-Z][A-Z0-9_]*\Z")


def compiled(rules: Iterable[Rule], form: str = "{}") -> re.Pattern[str]:
    """Compiles rules to one regular expression: any of them, in the form that is given."""
    return re.compile(form.format(one_of(rule.regex for rule in rules)))


class Values:
    """The rules about values, and about what names claim of them, compiled."""

    def __init__(self, rules: ValueFile, names: NameFile) -> None:
        self._password_name = re.compile(one_of(word.filled(word.password) for word in names.word))
        self._token_name = re.compile(one_of(word.filled(word.token) for word in names.word))
        self._harmless_name = compiled(names.harmless_name)
        self._reference = compiled(rules.reference, r"(?i)\A(?:{})\Z")
        self._placeholder = compiled(rules.placeholder, "(?i){}")
        self._term = compiled(rules.term, r"(?i)\A(?:{})\Z")
        self._path = compiled(rules.path)
        self._unit = compiled(rules.unit)
        self._expression = compiled(rules.expression)
        self._standard = compiled(rules.standard, "(?i){}")
        self._remark = compiled(rules.remark, "(?i)(?:{})")

    def kind(self, name: str, value: str, style: Style) -> str | None:
        """Returns the kind of secret that `value` is under this name, or None."""
        lower = name.lower().strip("-._ ")
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("-._ ")
        strong = self._password_name.search(snake) is not None
        working_folder = lower in {"pwd", "oldpwd"} and (value[:1] in "/~." or value[1:2] == ":")
        if working_folder or self._harmless_name.search(snake):
            return None
        if len(value) < (4 if strong else 8) or self._reference.match(value) or self._path.match(value):
            return None
        if style == "code" and self._expression.search(value):
            return None
        if strong:
            return "password-assignment" if self._could_be_password(name, snake, value, style) else None
        named = self._token_name.search(snake) is not None
        made = style == "literal" and snake.endswith(("key", "salt")) and _is_sign_key(value)
        if not made and not named and not (snake.endswith("key") and UPPER_NAME.match(name)):
            return None
        return "secret-assignment" if made or self._could_be_token(value, style, sure=named) else None

    def is_striking(self, value: str, gap: str, *, quoted: bool) -> bool:
        """Returns whether a value stands out from its sentence: "the password is hunter2", not "is base64-encoded"."""
        a_word = self._term.match(value) and not re.fullmatch(r"[a-z]{4,}\d{1,4}", value)
        if a_word or re.match(r"\d{1,4}-?(?:[a-z]{1,12}|[A-Z]{1,4})\Z", value):
            return False
        if (quoted or ":" in gap) and self._is_joined_words(value):
            return True
        if self._has_only_units(re.split(r"[-_./:,@ ]", value)):
            # Words and numbers are a password only where a person says so, and unless they name a standard.
            said = quoted or gap.strip(" \"'") != ""
            made = re.search(r"[a-z]{3,}[\w.-]*\d", value) is not None
            return said and made and not self._standard.match(value)
        return re.search(r"\d|.[!@#$%^*]+.", value) is not None

    def _could_be_password(self, name: str, snake: str, value: str, style: Style) -> bool:
        if self._placeholder.search(value) and not _is_random(value):
            return False
        if re.search(r"\s", value):
            # Several words: a pass phrase where it is called one; anything else is a label or a sentence.
            words = re.fullmatch(r"\w+(?: \w+){3,}", value) is not None
            return words and "phrase" in snake and "pass" not in value.lower()
        letters, digits = re.search(r"[A-Za-z]", value), re.search(r"\d", value)
        if letters and digits:
            return style == "literal" or not self._term.match(value) or _SYMBOL.search(value) is not None
        if digits:
            return style == "literal" and len(value) >= _SHORTEST_PASSWORD and value.isdigit()
        if _SYMBOL.search(value[1:]) and letters:
            return style != "code" and not value.endswith("?") and len(value) >= _SHORTEST_PASSWORD
        # Letters alone: believed only where nothing but a value can stand.
        written = len(value) >= _SHORTEST_PASSWORD and value.isalpha()
        sure = UPPER_NAME.match(name) is not None or self._is_joined_words(value)
        return style != "code" and written and sure

    def _is_joined_words(self, value: str) -> bool:
        """Returns whether these letters are words that a person put together, "correcthorse", and no remark."""
        plain = value.islower() or (value[1:].islower() and value[:1].isupper())
        return plain and value.isalpha() and len(value) >= _SHORTEST_JOINED and not self._remark.search(value)

    def _could_be_token(self, value: str, style: Style, *, sure: bool) -> bool:
        if _NO_TOKEN.search(value) or (self._placeholder.search(value) and not _is_random(value)):
            return False
        if not (re.search(r"[A-Za-z]", value) and re.search(r"\d", value)):
            # Twenty letters without a digit do occur, in one key of forty.
            made = len(value) >= _LONG and value.isalpha() and not value.islower()
            return sure and made and entropy(value) >= _RANDOM
        if self._term.match(value) or self._has_only_units(re.split(r"[-_./:@ ]", value)):
            return False
        if not sure:
            return len(value) >= _LONG and entropy(value) >= _VARIED
        # A short one has to look made: letters and digits in turns.
        made = style != "prose" and len(_TRANSITION.findall(value)) > 1
        return made if len(value) < _USUAL else entropy(value) >= _NOT_REPETITIVE

    def _has_only_units(self, parts: list[str]) -> bool:
        return all(self._unit.fullmatch(part) for part in parts if part)


def _is_sign_key(value: str) -> bool:
    """Returns whether this is a key as Django and WordPress make them: letters, digits and signs by chance."""
    signs = sum(not character.isalnum() and character not in "-_. /" for character in value)
    enough = signs >= (_MANY_SIGNS if " " in value else 3) and len(value) in _SIGN_KEY_LENGTHS
    return enough and re.search(r"\d", value) is not None and entropy(value) >= _RANDOM


def _is_random(value: str) -> bool:
    """Returns whether a person would not have typed this."""
    return len(value) >= _LONG and re.search(r"\d", value) is not None and entropy(value) >= _RANDOM


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
