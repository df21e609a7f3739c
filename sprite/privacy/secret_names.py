"""Secrets recognised by the name they are given: `DB_PASSWORD=`, `"token": `, "the password for ada is".

One grammar of a name, a link and a value covers configuration, code, markup, headers, command lines and sentences. The
words are data, `rules/names.toml`; secret_values.py judges the value.
"""

# ruff: noqa: C901, E501, PLR0911, PLR2004, RUF001 - a grammar with its cases in order, in several scripts
from __future__ import annotations

import functools
import re
from collections.abc import Generator, Iterable, Iterator

import msgspec

from sprite.privacy.secret_formats import Span, read
from sprite.privacy.secret_values import Style, is_password, is_token, is_words


class NameFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of names.toml."""

    stems: tuple[str, ...]
    rare_stems: tuple[str, ...]
    password_anywhere: tuple[str, ...]
    password_part: tuple[str, ...]
    calls: tuple[str, ...]
    token_anywhere: tuple[str, ...]
    token_part: tuple[str, ...]
    key_of: tuple[str, ...]
    harmless: tuple[str, ...]
    about: tuple[str, ...]
    links: tuple[str, ...]


#: Around the words and the links of the rules. The groups of a value come last: `lastgroup` tells how it is written.
_ASSIGNMENT = r"""(?xi)
    (?P<rest>[\w.-]{0,40}+)
    (?:
      (?P<sign>(?:\\{0,3}["'`\])]|\*\*|__){0,3}(?:\[\d*\])?[ \t]{0,12}(?:\([\w .,@/-]{1,40}\)[ ]?)?
        (?:(?::[ ]?[&'\w<>\[\]|.]{1,30}|\w{1,20})[ ]=(?=[ ]?["'`])|[!?:+.|]{0,3}={1,3}>?|->|:{1,2}|\|\|?|：|＝)(?:\*\*|__)?
        (?:[ \t]*[|>]?-?(?:\\?\r?\n[ \t]{0,20}){1,2}(?=["'`]|[^\s:=]{4,200}[ \t]*(?:\r?\n|\Z))|[ \t]{0,20})
        (?:(?:new[ ])?(?:\[\]byte|(?:\w+::)?\w*(?:bytes?|string|key|secret|password|decode|encode|from\w*|make|hash))\((?=["']))?(?:[bfrtu@]{0,2}(?=["'`]))?(?:""(?=")|''(?='))?(?:\*\*|__)?)
    | (?P<pair>\\?["']?[\s,]{1,40}\\?["']?(?:\w{1,20}:)?value\\?["']?\s{0,4}[:=]\s{0,4}|</key>\s{0,20}<(?:string|value)\b[^<>\n]{0,60}>(?=[^<\n]))
    | (?P<comma>\\?["']\s{0,3},\s{0,20}(?=\\?["']))
    | (?P<tag>["']?(?:\s[^<>\n]{0,80})?>\s{0,20}(?:<!\[CDATA\[)?(?=[^<\s]))
    | (?P<below>(?:[^\n:=]{0,90}:|[ ](?:created|generated|erstellt|créé|creado))[ ]?(?:\r?\n[ \t]{0,20}){1,3}(?=\S{8,200}[ \t]*(?:\r?\n|\Z)))
    | (?P<said>["'”»`]?(?:[ ](?:%(about)s)(?:[ ][\w.@'’/%%()-]{1,40}){1,5}?|[ ](?!manager|polic|hash|len|reset|field|rule|file|stor|it[ ])[^\W\d_]{2,12}|[ ]\([^()\n]{1,40}\))?[ ]?
        (?:[ ](?:%(links)s):?|[:?]|,[ ](?:use|try|nimm|nehmt|prends|usa|gebruik)|(?=[ ](?:bitte|please)))
        (?:[ ](?:just|simply|bitte|please|einfach|juste|now|jetzt|immer))?(?:[ ]{1,3}\*{0,2}|[ ]?<b>))
    | (?P<space>["'”»`]?[ \t]{1,16}(?:(?:[—–→-]|->)[ ])?(?:(?:[05789]|8)[ ])?)
    )
    (?:\\{1,3}"(?P<escaped>[^"\\\n]{1,2000})|"(?P<double>[^"\n]{1,2000})"|'(?P<single>[^'\n]{1,2000})'
      |`(?P<tick>[^`\n]{1,2000})`|[“„«](?P<curly>[^”“»\n]{1,200})[”“»]|(?P<bare>[^\s"'`]\S{0,2000}))
"""
#: The rest of a call's name, and its arguments in one statement; each literal of them.
_ARGUMENTS = r"""\w{0,24}(?:(?:[.:]{1,2}|->)(?:new|create|__construct|from\w{0,12}))?["']?\]?\s?(?:(?:[=:]\s?)?\((?!\))|(?=["'][^"'\n]{1,60}["'],))((?:"[^"\n]{0,200}"|'[^'\n]{0,200}'|[^;"')]{1,80}+|\)(?!\W{0,3}(?:\n|\Z))){1,30})"""
_LITERAL = re.compile(r"""["']((?:(?<=")[^"\n]{0,200}(?=")|(?<=')[^'\n]{0,200}(?=')))["']""")
#: The values of a name in the plural.
_LIST = re.compile(r"""["']?\s{0,4}[:=]\s{0,4}(?:new )?[\[({]([^\])}]{8,2000})""")
_NO_ARGUMENT = re.compile(
    r"[/\\:=,;<>{}%\s]|@.*\.|\.[a-z]{2,6}\*?\Z|\A[#.$-]|\A[a-z.-]+\d?\Z|\A[A-Za-z]+\d?(?:_[A-Za-z]+\d*)+\Z"
)
#: What is said of a password may be words alone.
_IS = re.compile(r"(?i) (?:is|ist|lautet|est|était|es|era|è|é|jest|bitte) |c'est |, (?:use|nimm) ")
_APP_PASSWORD = re.compile(r"[a-z]{4}(?: [a-z]{4}){3}(?![\w ])")
#: Read backwards: the beginning of a name, and the word before it, as in "api key".
_BEFORE = re.compile(r"([\w.-]{0,60}+)(?:[ -]([A-Za-z]{1,40}+))?")
_REST = re.compile(r"[\w.-]{0,40}+")
#: The name of the group that a line of YAML, TOML or JSON is in, which stands in the line above.
_PARENT = re.compile(r"""["'\s]{0,30}\n\s{0,3}[{:=][\s{:=]{0,4}["']?([\w-]{1,40}+)""")
#: What a value in a sentence has, and an ordinary sentence has not.
_SIGN = re.compile(r"[^\sA-Za-z\u00c0-\u024f,.;!?()'’/-]|\w[!.][A-Z]")
#: What a key of any name is, if it opens something: no path, no number and no words.
_MADE = re.compile(r"(?=\D*\d)(?=[^a-z]*[a-z])[A-Za-z0-9+/_]{24,}={0,2}")
#: The password before, which may still open something elsewhere.
_CHANGED_FROM = re.compile(r"""\b(?:from|von|de|da|van) ["'`]?([^\s"'`]{6,80})["'`]? (?:to|auf|zu|à|a|naar) ["'`]?\Z""")
_UPPER = re.compile(r"[A-Z][A-Z0-9_]*\Z")
#: Whatever stands before a name in a line of configuration.
_LEAD = re.compile(
    r"""(?i)(?:[\s|│+#>*"'$%-]|//+|\d+[.):\t→]|export |set |setx |env |arg |-e |--env |--set |--build-arg |-D|let |global |define )*\Z"""
)
_NAME_MEMBER = re.compile(r"""(?i)(?:name|key|<key>)(?:\\?["'])?\s{0,4}[:=]?\s{0,4}(?:\\?["'])?[\w.-]*\Z""")
_TAG = re.compile(r"""(?<!\?)(?<!\?P)<[\w:.-]*(?:\sname=["'][\w:.-]*)?\Z""")
_CALL = re.compile(r"""[(\[{,]\s{0,8}\\?["'][\w.-]*\Z""")
_USER = frozenset(("login", "user", "machine", "account"))
_STOP = re.compile(r"[,;\"'`)\]}”»]|\\[nrt\"]|\*\*")
_CODE_END = (";", "{", ",", "(", ")", "[", "]", "}")
_PHRASE = re.compile(r"[a-z]{3,12}(?: [a-z]{3,12}){3,11}(?=[.,;!)\"']|\s*(?:\n|\Z))")
#: Several words, the rest of a line.
_WORDS = re.compile(r"\w{2,20}(?: [\w-]{2,20}){2,11}(?=\s*(?:\n|\Z))")
#: The most names tried in one run of characters; hostile text has thousands.
_MOST_NAMES = 8
_LONGEST_NAME = 100


@functools.cache
def names() -> Names:
    """Read and compile the rules about names (20 ms, once)."""
    return Names(read("names.toml", NameFile))


def _one_of(patterns: Iterable[str]) -> str:
    return "|".join(patterns)


class Names:
    """The rules about names, compiled."""

    def __init__(self, rules: NameFile) -> None:
        keys = rf"(?:{_one_of(rules.key_of)})[_. -]?key"
        self._password = re.compile(
            rf"{_one_of(rules.password_anywhere)}|(?<![^\W_])(?:{_one_of(rules.password_part)})\d?(?![^\W_])"
        )
        self._token = re.compile(
            rf"{_one_of(rules.token_anywhere)}|(?<![^\W_])(?:{_one_of(rules.token_part)}|{keys})\d?(?![^\W_])"
        )
        #: What a name is given: "password", "pin", "token", "secret", a "key" if it looks like one, "made" if only
        #: a generated value is one, or nothing secret.
        self.named = functools.lru_cache(4000)(self._class)
        self._harmless = re.compile(_one_of(rules.harmless))
        self._calls = [(word, re.compile(word + _ARGUMENTS)) for word in rules.calls]
        # In most texts only a few stems occur.
        self._stems = [(re.findall(r"[^\W_]+", stem)[0], re.compile(stem)) for stem in rules.stems]
        self._rare_stems = re.compile(_one_of(rules.rare_stems))
        self._rare = rules.rare_stems
        self._rare_ascii = tuple(filter(str.isascii, rules.rare_stems))
        self._assignment = re.compile(_ASSIGNMENT % {
            "about": _one_of(rules.about).replace(" ", "[ ]"),
            "links": _one_of(link.replace(" ", "[ ]") for link in rules.links)
        })  # fmt: skip

    def words(self, lower: str, start: int, end: int) -> list[tuple[int, int]]:
        """Return the spans of words that can name a secret, in a part of a text in lower case."""
        piece = lower[start:end]
        found = [pattern for stem, pattern in self._stems if stem in piece]
        if any(stem in piece for stem in (self._rare_ascii if piece.isascii() else self._rare)):
            found.append(self._rare_stems)
        return sorted({word.span() for stem in found for word in stem.finditer(lower, start, end)})

    def arguments(self, text: str, lower: str, start: int, end: int) -> Iterator[Span]:
        """Yield passwords and keys among the arguments of calls whose name says that they log in, sign or encrypt."""
        piece = lower[start:end]
        for word, pattern in self._calls:
            for call in pattern.finditer(lower, start, end) if word in piece else ():
                for found in _LITERAL.finditer(text, *call.span(1)):
                    is_fit = len(found[1]) >= 6 and not _NO_ARGUMENT.search(found[1])
                    if (is_fit and is_password(found[1], "prose", sure=False)) or _APP_PASSWORD.fullmatch(found[1]):
                        yield (*found.span(1), "password-assignment")

    def kind(self, name: str, value: str, style: Style, *, sure: bool = True) -> str | None:
        """Return the kind of secret that `value` is under this name, or None."""
        named = self.named(name)
        if named in {"password", "pin"}:
            if named == "pin" and not re.fullmatch(r"\d{4,12}", value):
                return None
            if re.fullmatch(r"(?i)(?:old)?pwd", name) and (value[:1] in "/~." or value[1:2] == ":"):
                return None
            return "password-assignment" if is_password(value, style, sure=sure) else None
        if not named or (named == "made" and (style != "literal" or not _MADE.fullmatch(value))):
            return None
        if is_token(value, style, sure=named not in {"key", "made"}):
            return "secret-assignment"
        # People choose secrets for signing, too, and write them like passwords.
        chosen = named == "secret" and (
            (style == "literal" and (sure or " " in value)) or re.search(r"\w[!#$%^&*]+\w", value)
        )
        has_mix = (
            re.search(r"\d", value) and re.search(r"[A-Za-z]", value) and (not is_words(value) or _UPPER.match(name))
        )
        return "secret-assignment" if chosen and len(value) >= 8 and has_mix and is_password(value) else None

    def _class(self, name: str) -> str:
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("-._ ")
        if self._harmless.search(snake):
            return ""
        if self._password.search(snake):
            return "pin" if snake.endswith("pin") else "password"
        if self._token.search(snake):
            return "secret" if snake.endswith(("secret", "secret_key")) else "token"
        if snake.endswith(("key", "salt", "pepper")) and _UPPER.match(name):
            return "key"
        return "made" if snake.endswith(("_key", "encrypt")) else ""

    def kind_of_member(self, name: str, value: str) -> str | None:
        """Return the kind of secret that a member of a JSON object is, by its name and value, or None."""
        return self.kind(name, value, "literal", sure=len(value) > 7) if len(name) <= _LONGEST_NAME else None

    def spans(self, text: str, words: Iterable[tuple[int, int]]) -> Iterator[Span]:
        """Yield the values that are given to a name which says that they are secret."""
        after = tries = region = 0
        for start, end in words:
            # A value that is no secret may hold the next name (`secret_name=token=...`); the tries are bounded.
            if start < after or (tries >= _MOST_NAMES and start < region):
                continue
            before = _BEFORE.match(text[max(0, start - 100) : start][::-1])
            rest = _REST.match(text, end)
            if not (before and rest):
                continue
            name_start = start - len(before[1])
            name = text[name_start : rest.end()]
            if name.lower() == "key" and (parent := _PARENT.match(text[max(0, name_start - 100) : name_start][::-1])):
                name = f"{parent[1][::-1]}_{name}"
            elif before[2] and text[name_start - 2 : name_start] != "--" and name[0] != "-":
                # `const SECRET`, `%env API_KEY`: the whole name is in capitals.
                name = name if name.isupper() and before[2].islower() else f"{before[2][::-1]}_{name}"
            if name[-1] in "sS" and (values := _LIST.match(text, rest.end())):
                yield from self._listed(text, name[:-1], values)
            if not self.named(name) or _is_plain(text, name, name_start, rest.end()):
                continue
            match = self._assignment.match(text, end)
            if start >= region:
                tries, region = 0, match.end() if match else end
            tries += 1
            is_mark = text.endswith("[redacted:", max(0, name_start - 10), name_start)
            if match and not is_mark and (span := self._value(text, name_start, name, match)):
                after = max(after, span[1])
                yield span
                old = _CHANGED_FROM.search(text, end, span[0])
                if old and is_password(old[1], "prose", sure=False):
                    yield (*old.span(1), span[2])

    def _listed(self, text: str, name: str, values: re.Match[str]) -> Iterator[Span]:
        for found in _LITERAL.finditer(text, *values.span(1)):
            if kind := self.kind(name, found[1], "literal", sure=False):
                yield (*found.span(1), kind)

    def _value(self, text: str, name_start: int, name: str, match: re.Match[str]) -> Span | None:
        group = match.lastgroup or "bare"
        begin, end = match.span(group)
        first = max(0, name_start - 120)
        line = text[max(text.rfind("\n", first, name_start) + 1, first) : name_start]
        value = match[group] if group != "bare" else _bare(match[group])
        if match["space"]:
            style, sure = self._spaced(text, match, name, line, value)
        else:
            style, sure = self._style(text, match, name, line, group != "bare")
            sure = sure or "phrase" in name.lower()
        if style is None:
            return None
        if group == "bare":
            phrase = None if match["space"] else _PHRASE.match(text, begin) or _APP_PASSWORD.match(text, begin)
            line_end = None if match["space"] or style != "literal" else _WORDS.match(text, begin)
            if (
                phrase
                and (len(phrase[0]) == 19 or not name.lower().endswith("pass"))
                and self.kind(name, phrase[0], "literal")
            ):
                return (begin, phrase.end(), "password-assignment")
            if line_end and not _UPPER.match(name) and self.kind(name, line_end[0], "literal"):
                return (begin, line_end.end(), "password-assignment")
            end = begin + _bare_length(match[group], match, line, style)
        elif group == "escaped":
            end -= value.endswith("\\")
        kind = self.kind(name, text[begin:end], style, sure=sure)
        return None if kind is None else (begin, end, kind)

    def _style(self, text: str, match: re.Match[str], name: str, line: str, quoted: bool) -> tuple[Style | None, bool]:
        """Return how the value is written, None if nothing is assigned, and whether only a value can be there."""
        is_upper, value = _UPPER.match(name) is not None, match[match.lastgroup or "bare"]
        if match["pair"]:
            return ("literal" if _NAME_MEMBER.search((line + name)[-80:]) else None), True
        if match["comma"]:
            given = _CALL.search((line + name)[-80:]) and (is_upper or not is_words(value))
            return (("literal" if is_upper else "prose") if given else None), False
        if match["tag"]:
            return ("literal" if _TAG.search((line + name)[-80:]) else None), True
        if match["said"]:
            if name.lower().endswith(("_pass", " pass")) or name.lower() == "pass":
                return ("prose" if quoted or not is_words(value) else None), quoted
            return ("literal" if match["said"].rstrip(" *").endswith("s:") else "prose"), quoted
        if match["below"]:
            return "prose", False
        sign, bare = match["sign"].strip(), match["sign"].strip(" \t\r\n\"'`*_])|>-")
        if sign == "|" or (sign == ":" == line[-1:] and line[-2:-1].isalnum()):
            return None, False
        if quoted:
            return "literal", is_upper or "=" in sign
        lead = _LEAD.match(line) is not None
        is_tight = sign == match["sign"] and "=" in sign
        if is_tight and (is_upper or lead or name[0] == "-" or line.endswith(("?", "&", ";", ",", "/"))):
            return "literal", True
        is_code = _is_code(text, match)
        if is_tight and not is_code:
            # Of a line of a log: `user=ada password=hunter2`.
            return "prose", False
        if lead and not is_code and bare in {":", "="}:
            alone = text[match.start("bare") : match.end() + 1].partition("\n")[0].strip() == value
            return "literal", is_upper or (alone and bare == ":" and name.lower() != "pass")
        return ("code" if is_code or not match["sign"].endswith((" ", "*", "\n")) or "=" in sign else "prose"), False

    def _spaced(self, text: str, match: re.Match[str], name: str, line: str, value: str) -> tuple[Style | None, bool]:
        """Return the same for a value after a space only: of an option, a directive, or `pw hunter2`."""
        if name[0] == "-":
            return (None if value.startswith("-") else "literal"), True
        quoted, lower = match["bare"] is None, name.lower()
        if (
            line.lower().split()[-2:-1] in ([word] for word in _USER)
            or lower.endswith(("requirepass", "masterauth", "identified_by"))
            or (quoted and name.isupper())
        ):
            return "literal", quoted
        # Mostly a word follows, as in "password reset2"; "pass" is a verb.
        lead = _LEAD.match(line) is not None
        if quoted and lead:
            return "literal", True
        alone = lead and text[match.end("space") : match.end() + 1].partition("\n")[0].strip() == value
        if (len(match["space"]) > 3 and not alone) or re.match(r"-|.*[(<\[{]", value) or lower.endswith("pass"):
            return None, False
        is_phrase = "phrase" in lower and re.search(r"[a-z][-._][a-z]", value)
        said = alone or is_phrase or lower in {"pw", "pwd"} or not is_words(value)
        return ("prose" if said else None), False


def _is_plain(text: str, name: str, start: int, end: int) -> bool:
    """Return whether a name stands in a sentence that says no value."""
    if text[end : end + 1] != " " or "-" in (name[0], text[start - 1]) or "phrase" in name or name.startswith("app"):
        return False
    stop = text.find("\n", end, end + 80)
    stop = stop if stop >= 0 else min(len(text), end + 80)
    return not (
        _SIGN.search(text, end, stop)
        or _IS.search(text, end, stop)
        or text.find(" ", end + 1, stop) < 0
        or text.find(" '", end, stop) >= 0
    )


def _is_code(text: str, match: re.Match[str]) -> bool:
    """Return whether the rest of the line reads as code: a call, a semicolon at its end, a second assignment."""
    start = match.start("bare")
    line = text[start : start + 200].partition("\n")[0].rstrip()
    return line.endswith(_CODE_END) or " = " in line or line.startswith(("await ", "new "))


def _bare_length(value: str, match: re.Match[str], line: str, style: Style) -> int:
    """Return the length of a value without quotes: to `&` in a URL, `;` between settings, a full stop in a sentence."""
    sign = (match["sign"] or "").strip()
    if sign == "=" and line.endswith(("?", "&")):
        stop = re.search(r"[&#\"'<>`)\]}]", value)
    elif sign == "=" and re.search(
        r"(?i);\s?\Z|(?:server|host|data source|uid|user(?:\s?id)?|endpoint)\s?=[^\n]*\Z", line
    ):
        stop = re.search(r"(?<!&amp);|[\"'`]", value)
    elif match["tag"] or match["pair"]:
        stop = re.search(r"[<\"']", value)
    elif style == "literal":
        stop = re.search(r"[\"'`](?=[\s,;)\]}]|\Z)|\\[nrt\"]|[,;](?=\s|\Z)", value)
    else:
        return len(_bare(value))
    value = value[: stop.start()] if stop else value
    return len(value.rstrip(".,;:!?*" if style == "prose" else ",;"))


def _bare(value: str) -> str:
    """Return a value in a sentence or in code without the punctuation after it."""
    stop = _STOP.search(value)
    return (value[: stop.start()] if stop else value).rstrip(".,;:!?*")


# --- tables ---

#: A heading is a label of up to four words; code and sentences are none.
_LABEL = re.compile(r"(?!\D*\d\D*\d)[\w./#-]{1,30}(?: [\w./#-]{1,20}){0,3}")
_COLUMNS = {
    "|": re.compile(r"[^|\n]+"), "\t": re.compile(r"[^\t\n]+"), ";": re.compile(r'"[^"\n]*"|[^;\n]+|(?<=;)(?=;|\Z)'),
    ",": re.compile(r'"[^"\n]*"|[^,\n]+|(?<=,)(?=,|\Z)'), "  ": re.compile(r"\S+(?: \S+)*"),
}  # fmt: skip
_RULE = re.compile(r"[\s|+:=-]*")
_MOST_ROWS, _LONGEST_ROW, _LONGEST_HEADING = 1000, 4000, 400
_WRAPPING = " \t\"'`*\r"


def tables(text: str, words: Iterable[tuple[int, int]]) -> Iterator[Span]:
    """Yield the values below headings that name a secret: CSV, Markdown, aligned columns."""
    after = 0
    for word, _ in words:
        if word < after:
            continue
        start, after = text.rfind("\n", 0, word) + 1, text.find("\n", word)
        if after < 0:
            return
        sign = next((sign for sign in _COLUMNS if sign in text[start:after].strip()), None)
        if sign is None or after - start > _LONGEST_HEADING:
            continue
        headings = [cell[0].strip(_WRAPPING) for cell in _COLUMNS[sign].finditer(text, start, after)]
        labels = [name for name in headings if name]
        if len(labels) >= 2 - (sign == "|") and all(map(_LABEL.fullmatch, labels)):
            after = yield from _rows(text, after + 1, sign, [heading.replace(" ", "_") for heading in headings])


def _rows(text: str, start: int, sign: str, headings: list[str]) -> Generator[Span, None, int]:
    """Yield the values of a table's rows, and return where it ends."""
    for _ in range(_MOST_ROWS):
        end = text.find("\n", start, start + _LONGEST_ROW)
        end = end if end >= 0 else min(len(text), start + _LONGEST_ROW)
        cells = list(_COLUMNS[sign].finditer(text, start, end))
        if not text[start:end].strip():
            break
        if not _RULE.fullmatch(text, start, end):
            if abs(len(cells) - len(headings)) > (0 if sign in ",;" else 1):
                break
            for heading, cell in zip(headings, cells, strict=False):
                value = cell[0].strip(_WRAPPING)
                if value and (kind := names().kind(heading, value, "literal", sure=False)):
                    at = cell.start() + cell[0].index(value)
                    yield (at, at + len(value), kind)
        start = end + 1
    return start
