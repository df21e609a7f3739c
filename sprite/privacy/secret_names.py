"""Secrets recognised by the name they are given: `DB_PASSWORD=`, `"token": `, "the password for ada is".

One rule: the name tells what the value needs (rules/names.toml), the link before the value how sure it is to be one.
"""

# ruff: noqa: C901, E501, PLR0911, PLR0912, PLR2004, RUF001 - a grammar with its cases in order, in several scripts
from __future__ import annotations

import functools
import re
from collections.abc import Generator, Iterable, Iterator

from sprite.privacy.secret_values import CHOSEN, MADE, ODD, WORD, Patterns, is_expression, is_prose, read, strength

Span = tuple[int, int, str]


#: Certainty that a value stands there: certain, probable, possible, or possibly an expression.
SURE, LIKELY, LOOSE, CODE = range(4)
#: The least likeness to a secret that a value needs, for each kind of name and each certainty.
_NEEDED = {
    "password": (WORD, CHOSEN, ODD, ODD), "token": (ODD, MADE, MADE, ODD), "key": (MADE, MADE, MADE + 1, MADE + 1),
}  # fmt: skip

#: Around the words and the links of the rules. The groups of a value come last: `lastgroup` tells how it is written.
_ASSIGNMENT = r"""(?xi)
    (?P<rest>[\w.-]{0,40}+)
    (?:
      (?P<pair>\\?["']?[\s,]{1,40}\\?["']?(?:\w{1,20}:)?value\\?["']?\s{0,4}[:=]\s{0,4}|\\?["']:\s{0,4}\{[^{}]{0,80}?["']value\\?["']:\s{0,4}|</key>\s{0,20}<(?:string|value)\b[^<>\n]{0,60}>(?=[^<\n]))
    | (?P<sign>(?:\\{0,3}["'`\])]|\*\*|__){0,3}(?:\[\d*\])?[ \t]{0,12}(?:\([\w .,@/-]{1,40}\)[ ]?)?
        (?:(?::[ ]?[&'\w<>\[\]|.]{1,30}|\w{1,20})[ ]=(?=[ ]?["'`])|[!?:+.|]{0,3}={1,3}>?|->|:{1,2}|\|\|?|：|＝)(?:\*\*|__)?
        (?:[ \t]*[|>]?-?(?:\\?\r?\n[ \t]{0,20}){1,2}(?=["'`]|[^\s:=]{4,200}[ \t]*(?:\r?\n|\Z))|[ \t]{0,20})
        (?:(?:new[ ])?(?:\[\]byte|(?:\w+::)?\w*(?:bytes?|string|key|secret|password|decode|encode|from\w*|make|hash))\((?=["']))?(?:[bfrtu@]{0,2}(?=["'`]))?(?:""(?=")|''(?='))?(?:\*\*|__)?(?:<b>)?)
    | (?P<comma>\\?["'](?:\s{0,3},\s{0,20}|\)\.\w{1,20}\()(?=\\?["']))
    | (?P<tag>["']?(?:\s[^<>\n]{0,80})?(?<!/)>\s{0,20}(?:<!\[CDATA\[)?(?=[^<\s;,.)][^<]{0,400}</))
    | (?P<below>(?:[^\n:=]{0,90}:|[ ](?:created|generated|erstellt|créé|creado))[ ]?(?:\r?\n[ \t]{0,20}){1,3}(?=\S{8,200}[ \t]*(?:\r?\n|\Z)))
    | (?P<said>["'”»`]?(?:[ ](?:%(about)s)(?:[ ][\w.@'’/%%()-]{1,40}){0,5}?|[ ](?!(?:%(heads)s)\b)[^\W\d_]{2,12}(?=[ ]?[:=]|[ ](?:%(links)s)[ ])|[ ]\([^()\n]{1,40}\))?[ ]?
        (?:[ ](?:%(links)s):?|[:?]|['’]s|[ ]\((?=[^\s()]{8,200}\))|,[ ](?:use|try|nimm|nehmt|prends|usa|gebruik)|(?=[ ](?:bitte|please)))
        (?:[ ](?:%(adverbs)s))?(?:[ ]{1,3}\*{0,2}|[ ]?<b>|(?<=\()))
    | (?P<space>["'”»`]?[ \t]{1,16}(?:(?:[—–→-]|->)[ ])?(?:[05789][ ])?)
    )
    (?:\\{1,3}"(?P<escaped>[^"\\\n]{1,2000})|"(?P<double>[^"\n]{1,2000})"|'(?P<single>[^'\n]{1,2000})'
      |`(?P<tick>[^`\n]{1,2000})`|[“„«](?P<curly>[^”“»\n]{1,200})[”“»]|(?P<bare>[^\s"'`]\S{0,2000}))
"""
#: The rest of a call's name, and its arguments in one statement; each literal of them.
_ARGUMENTS = r"""\w{0,24}(?:(?:\.|::|->)\w{1,24})?["']?\]?\s?(?:(?:[=:]\s?)?\((?!\))|(?=["'][^"'\n]{1,60}["'],))((?:"[^"\n]{0,200}"|'[^'\n]{0,200}'|[^;"')]{1,80}+|\)(?!\W{0,3}(?:\n|\Z))){1,30})"""
_LITERAL = re.compile(r"""["']((?:(?<=")[^"\n]{0,200}(?=")|(?<=')[^'\n]{0,200}(?=')))["']""")
_NO_ARGUMENT = re.compile(
    r"[/\\:=,;<>{}%\s]|@.*\.|\.[a-z]{2,6}\*?\Z|\A[#.$^)\]-]|\A[A-Za-z]+\d?(?:_[A-Za-z]+\d*)+\Z|\A[a-z0-9]+(?:_[a-z0-9]+){2,}\Z|\A\w*(?:_\w*){3,}\Z|\A[a-z]+(?:(?:-[a-z]+)*-v?|(?:-[a-z]+)+)\d+\Z"
)
#: The values of a name in the plural.
_LIST = re.compile(r"""["']?\s{0,4}[:=]\s{0,4}(?:new )?[\[({](?!\s{0,40}\{)([^\])}]{8,2000})""")
_APP_PASSWORD = re.compile(r"[a-z]{4}(?: [a-z]{4}){3}(?![\w ])")
#: Read backwards: the beginning of a name, and the word before it, as in "api key".
_BEFORE = re.compile(r"([\w.-]{0,60}+)(?:[ -]([A-Za-z]{1,40}+))?")
_REST = re.compile(r"[\w.-]{0,40}+")
#: The name of the group that a line of YAML, TOML or JSON is in, which stands in the line above.
_PARENT = re.compile(r"""["'\s]{0,30}\n\s{0,3}[{:=][\s{:=]{0,4}["']?([\w-]{1,40}+)""")
#: The password before, which may still open something elsewhere.
_CHANGED_FROM = re.compile(r"""\b(?:from|von|de|da|van) ["'`]?([^\s"'`]{6,80})["'`]? (?:to|auf|zu|à|a|naar) ["'`]?\Z""")
#: Verbs that set a password, with their preposition: "set to", "auf ... geändert".
_CHANGE = re.compile(
    r"(?i)(?<!\w)(?:re)?(?:set|chang|updat|switch|rotat|ma[kd]e|put|cambi|modifi|mis|geänder|gesetz|gestell|änder|setz|alter|mud|zmie|us[aei])"
)
_OTHER_NOUN = re.compile(
    r" (?!(?:for|of|on|in|to|at|from|here|there|is|was|are|will|should|has|set|reset|chang\w+|updated|now)\b)[a-z]{2,12} (?:is|was|are|to|as)\b"
)
#: A value that is farther away in the sentence has to look like nothing else.
_FAR = r"""(?xi)[\w.-]{0,40}+["'”»`]?,?[ ](?:[^\s.!?;]{0,24}[^\s.!?;:][ ]){0,9}?(?:(?:%(verbs_of_being)s)|(?P<to>to|as|auf|en|a|à|op|på|na))(?:[ ](?:%(adverbs)s))?[ ]
    ["'`„“«]?(?P<bare>[^\s"'`„“”«»]{6,200})"""
_ENGLISH = re.compile(r"(?:pass(?:word|phrase|code)?|token|secret|key|pw)\Z")
_UPPER = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_BRACKET = re.compile(r"[(){}\[\]]")
_NAME = re.compile(r"[^\W\d][^\W\d._ -]*(?:[._ -][^\W\d]+)*|[a-z\d]+(?:_[a-z\d]+)+")
#: `"password": "Required"`.
_FIELD_LABEL = re.compile(r"[^\W\d_a-z][^\W\d_A-Z]{3,7}")
_PHRASE = re.compile(r"[a-z]+(?: [a-z]+){2,}|[a-z]+(?:-[a-z]+){3,}")
_HEX = re.compile(r"[0-9a-f]{16,}\b")
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
#: Any words before a name in a line of configuration.
_LEAD = re.compile(
    r"""(?i)(?:[\s|│+#>*"'$%-]|//+|\d+[.):\t→]|export |set |setx |env |arg |-e |--env |--set |--build-arg |-D|let |global |define )*\Z"""
)
_IN_MEMBER = re.compile(r"""(?i)(?:name|key|<key>)(?:\\?["'])?\s{0,4}[:=]?\s{0,4}(?:\\?["'])?[\w.-]*\Z""")
_IN_TAG = re.compile(r"""(?<!\?)(?<!\?P)<[\w:.-]*(?:\s\w{1,20}=["'][\w:.-]*)?\Z""")
_IN_CALL = re.compile(r"""[(\[]\s{0,8}\\?["'][#.]?[\w.-]*\Z""")
_OPTION = re.compile(r"-|[a-z]+=")
_SENTENCE = re.compile(r"(?:option|flag|switch|argument|parameter)s?\b|[a-z]+,? [a-z']+(?:[ .,]|\Z)")
_USER = re.compile(r"(?i)\b(?:login|user|machine|account) (?:(and|or|und|oder|et|ou|y|o|e|for|with|auth)|\S+) \Z")
#: Where a value without quotes ends: in a sentence or in code, in a URL, in a connection string, in a tag, and in a line.
_STOPS = {
    "said": re.compile(r"[,;\"'`)\]}“”»]|\\[nrt\"]|\*\*"), "url": re.compile(r"[&#\"'<>`)\]}]"),
    "settings": re.compile(r"(?<!&amp);|[\"'`]"), "tag": re.compile(r"[<\"']"),
    "line": re.compile(r"[\"'`](?=[\s,;)\]}]|\Z)|\\[nrt\"]|[,;](?=\s|\Z)"),
}  # fmt: skip
_SETTINGS = re.compile(r"(?i);\s?\Z|(?:server|host|data source|uid|user(?:\s?id)?|endpoint)\s?=[^\n]*\Z")
_CODE_END = (";", "{", ",", "(", ")", "[", "]", "}")
#: Several words, the rest of a line or of a clause.
_WORDS = re.compile(r"\w[^\s,;:=\"'()]{0,20}(?: [^\s,;:=\"'()]{2,20}){2,11}(?=\s*(?:\n|\Z)|[.,;!)](?:\s|\Z))")
#: The most names tried in one run of characters; hostile text has thousands.
_MOST_NAMES = 8


@functools.cache
def names() -> Names:
    """Read and compile the rules about names (20 ms, once)."""
    return Names(read("names.toml", Patterns))


class Names:
    """The rules about names, compiled."""

    def __init__(self, rules: Patterns) -> None:
        either = {name: "|".join(patterns) for name, patterns in rules.items()}
        self._kinds = [
            (kind, re.compile(rf"(?:{ends}|(?:\A|_)(?:{words}))\Z"))
            for kind, ends, words in (
                ("pin", "(?!)", either["pins"]),
                ("password", either["password_ends"], either["passwords"]),
                ("token", rf"{either['token_ends']}|(?:{either['key_of']})_?key", either["tokens"]),
                ("key", either["key_ends"], "(?!)"),
            )
        ]
        self._harmless = re.compile(
            rf"(?:\A|_)(?:{either['harmless_of']})_?(?:token|key|secrets?|cookie|pin)\Z|\A(?:{either['verbs']})_(?!.*token\Z)|(?:\A|_)(?:public|publishable|encrypted|sealed)_"
        )
        self._tails = re.compile(rf"(?:_(?:{either['tails']})|_?\d)+\Z")
        self._harmless_group = re.compile(either["harmless_groups"])
        #: The kind of a name, or "".
        self.kind = functools.lru_cache(4000)(self._kind)
        self._calls = [(word, re.compile(word + _ARGUMENTS)) for word in rules["calls"]]
        # In most texts only a few stems occur.
        self._stems = [(re.findall(r"[^\W_]+", stem)[0], re.compile(stem)) for stem in rules["stems"]]
        self._rare, self._rare_stems = rules["rare_stems"], re.compile(either["rare_stems"])
        self._rare_ascii = tuple(filter(str.isascii, self._rare))
        # A space in these patterns is one.
        words = {name: pattern.replace(" ", "[ ]") for name, pattern in either.items()}
        self._assignment, self._far = re.compile(_ASSIGNMENT % words), re.compile(_FAR % words)
        #: Words that may follow an English name; others make it part of a longer name ("password manager").
        self._goes_on = re.compile(rf"(?i),|[ ](?:{words['about']}|{words['verbs_of_being']}|chang\w+|expired)[ ,]")

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
                    if (is_fit and self.is_secret("password", found[1], LOOSE)) or _APP_PASSWORD.fullmatch(found[1]):
                        yield (*found.span(1), "password-assignment")

    def _kind(self, name: str) -> str:
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
        snake = self._tails.sub("", re.sub(r"[\W_]+", "_", snake).lower().strip("_"))
        if self._harmless.search(snake):
            return ""
        return next((kind for kind, pattern in self._kinds if pattern.search(snake)), "")

    def mark(self, name: str, value: str, level: int) -> str | None:
        """Return the mark of the secret that `value` is under this name, or None."""
        kind = self.kind(name)
        if kind == "pin":
            return "password-assignment" if re.fullmatch(r"\d{4,12}", value) and level == SURE else None
        is_name = _NAME.fullmatch(value) and self.kind(value)
        if not kind or is_name or (level == CODE and is_expression(value)) or (kind == "key" and is_uuid(value)):
            return None
        if kind == "password" and name.lower().endswith("pwd") and (value[:1] in "/~." or value[1:2] == ":"):
            return None
        mark = "password-assignment" if kind == "password" else "secret-assignment"
        is_phrase = level == SURE and _PHRASE.fullmatch(value) and re.search(r"(?i)secret(?:_?key)?\Z", name)
        return mark if self.is_secret("password" if is_phrase else kind, value, level) else None

    def _qualifies(self, word: str, name: str) -> bool:
        """Return whether the word before a name belongs to it, as in "api key"; not in "enable password"."""
        return (
            len(word) > 1
            and name.lower() != "pass"
            and name[0] != "-"
            and not self._harmless.search(f"{word.lower()}_")
        )

    def is_secret(self, kind: str, value: str, level: int) -> bool:
        """Return whether a value looks like a secret of a kind ("password", "token" or "key") at this level."""
        looks = strength(value)
        if kind == "password" and looks == CHOSEN and len(value) > 7 and re.search(r"\d\d", value):
            looks = ODD
        elif looks == CHOSEN and level and not re.search(r"\d", value) and (is_prose(value) or len(value) < 9):
            looks = WORD
        return looks >= _NEEDED[kind][level]

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
            name = text[name_start : rest.end()].rstrip(".-")
            if name.lower() == "key" and (parent := _PARENT.match(text[max(0, name_start - 100) : name_start][::-1])):
                name = f"{parent[1][::-1]}_{name}"
            elif before[2] and text[name_start - 2] != "-" and self._qualifies(before[2][::-1], name):
                # `const SECRET`, `%env API_KEY`: the whole name is in capitals.
                name = name if name.isupper() and before[2].islower() else f"{before[2][::-1]}_{name}"
            if name[-1] in "sS" and (values := _LIST.match(text, rest.end())):
                yield from self._listed(text, name[:-1], values)
            if not self.kind(name):
                continue
            match = self._assignment.match(text, end)
            if start >= region:
                tries, region = 0, match.end() if match else end
            tries += 1
            if text.endswith("[redacted:", max(0, name_start - 10), name_start):
                continue
            near = match and self._value(text, name_start, name, match)
            if span := near or self._far_value(text, name_start, name, end):
                after = max(after, span[1])
                yield span
                old = _CHANGED_FROM.search(text, end, span[0])
                if old and self.is_secret("password", old[1], LIKELY):
                    yield (*old.span(1), span[2])

    def _far_value(self, text: str, name_start: int, name: str, end: int) -> Span | None:
        match = self._far.match(text, end)
        name_end = text[name_start : end + 40].partition(" ")[0].lower()
        if name_end == "pass" or (
            _ENGLISH.search(name_end) and not self._goes_on.match(text, name_start + len(name_end))
        ):
            return None
        if not match or (match["to"] and not _CHANGE.search(text, max(0, name_start - 60), match.end() + 12)):
            return None
        value = _cut(match["bare"], "said")
        mark = None if is_expression(value) else self.mark(name, value, LOOSE)
        return (match.start("bare"), match.start("bare") + len(value), mark) if mark else None

    def _listed(self, text: str, name: str, values: re.Match[str]) -> Iterator[Span]:
        for found in _LITERAL.finditer(text, *values.span(1)):
            if self.kind(name) != "key" and (mark := self.mark(name, found[1], LIKELY)):
                yield (*found.span(1), mark)

    def _value(self, text: str, name_start: int, name: str, match: re.Match[str]) -> Span | None:
        group = match.lastgroup or "bare"
        begin, end = match.span(group)
        first = max(0, name_start - 120)
        line = text[max(text.rfind("\n", first, name_start) + 1, first) : name_start]
        level, stop = _place(text, match, name, line, self.kind(name))
        if level is None:
            return None
        if group == "bare":
            is_sign, is_password = match["sign"] is not None, self.kind(name) == "password"
            several = None if match["space"] or stop in ("url", "settings") else _WORDS.match(text, begin)
            if several and name.lower() != "pass":
                is_clear = is_sign or (match["said"] or "").rstrip().endswith((":", "="))
                level = min(level, LIKELY) if name.lower().endswith("phrase") else level
                is_line = is_clear and level <= LIKELY and self.mark(name, several[0], level)
                if is_line or (is_password and _APP_PASSWORD.fullmatch(several[0])):
                    return (begin, several.end(), "password-assignment")
            value = _cut(match[group], stop)
            end = begin + len(value)
            is_code = _BRACKET.search(value) and len({*value} & {*"!#$%^*~"}) < 2
            is_code = is_code or (not is_password and is_expression(value) and strength(value) < MADE)
            is_literal = (is_sign and _UPPER.match(name)) or name[0] == "-" or stop in ("url", "settings", "tag")
            if is_code and not is_literal:
                return None
        elif group == "escaped":
            end -= match[group].endswith("\\")
        value = text[begin:end]
        if ":" in (match["sign"] or "") and not name.isupper() and _FIELD_LABEL.fullmatch(value):
            return None
        mark = self.mark(name, value, level)
        is_sealed = mark and self._harmless_group.search(text[max(0, name_start - 2000) : name_start])
        return None if mark is None or is_sealed else (begin, end, mark)


def is_uuid(value: str) -> bool:
    """Return whether this is an identifier of 128 bits in the usual form."""
    return _UUID.match(value) is not None


def _cut(value: str, stop: str) -> str:
    end = _STOPS[stop].search(value)
    return (value[: end.start()] if end else value).rstrip(".,;:!?*" if stop == "said" else ",;")


def _place(text: str, match: re.Match[str], name: str, line: str, kind: str) -> tuple[int | None, str]:
    """Return how sure it is that the value of the name stands there, None if it is not, and where it ends."""
    is_upper, quoted, lower = _UPPER.match(name) is not None, match["bare"] is None, name.lower()
    rest = text[match.start("bare") : match.start("bare") + 200].partition("\n")[0].rstrip() if not quoted else ""
    is_lead, is_alone = _LEAD.match(line) is not None, " " not in rest
    if match["pair"]:
        return (SURE if "{" in match["pair"] or _IN_MEMBER.search((line + name)[-80:]) else None), "tag"
    # Alone, a key names an entry of a table.
    if lower == "key" and ("=" not in (match["sign"] or "") or _HEX.match(match[match.lastgroup or 0])):
        return None, "said"
    if match["comma"] and ")" in match["comma"]:
        return LIKELY, "line"
    if match["comma"]:
        return ((SURE if is_upper else LIKELY) if _IN_CALL.search((line + name)[-80:]) else None), "line"
    if match["tag"]:
        return (SURE if _IN_TAG.search((line + name)[-80:]) else None), "tag"
    if match["said"]:
        if (lower == "pass" and not quoted) or match["said"][-1] == "(":
            return (None if match["said"].strip() == "to" else LOOSE), "said"
        link = match["said"].rstrip(" *")
        if link.endswith((" to", " on", " as")) and name.isascii() and not _CHANGE.search(line + link):
            return None, "said"
        if _ENGLISH.search(lower) and _OTHER_NOUN.match(link):
            return None, "said"
        is_sure = (quoted or link.endswith("s:")) and len(match[match.lastgroup or 0]) > 9
        return (SURE if is_sure else LIKELY), "said"
    if lower == "pass" and not quoted and "\n" in match[0]:
        return None, "said"
    if match["below"]:
        return LIKELY, "said"
    if match["space"]:
        if user := _USER.search(line):
            return (LIKELY if user[1] else SURE), "line"
        if lower == "pass" or (not quoted and (match["space"][0] in "\"'`" or re.search(r"[(<\[{]", match["bare"]))):
            return None, "said"
        # Another option, or a member of one: `--secret id=npmrc`.
        if _OPTION.match(rest) or (name[0] == "-" and _SENTENCE.match(rest)):
            return None, "said"
        if name[0] == "-":
            return SURE, "line"
        # A word alone may belong to a sentence: `secret "web-tls" not found`.
        is_own = kind == "password" or len(name) > 6
        is_directive = lower.endswith(("requirepass", "masterauth", "identified_by"))
        if is_directive or (quoted and is_own and (is_lead or name.isupper())):
            return SURE, "line"
        if (len(match["space"]) > 3 and not (is_lead and is_alone)) or (lower + match["space"]).endswith("pass "):
            return None, "said"
        if quoted and kind == "password":
            return (SURE if len(match[match.lastgroup or 0]) > 9 else LIKELY), "said"
        return (LIKELY if is_lead and is_alone and not quoted else LOOSE), "said"
    sign, bare = match["sign"].strip(), match["sign"].strip(" \t\r\n\"'`*_])|>-")
    if sign == "|" or (sign == ":" and name == "PASS") or (sign == ":" == line[-1:] and line[-2:-1].isalnum()):
        return (LOOSE if sign == "|" and is_lead else None), "said"
    if quoted:
        return SURE, "line"
    if "=" in sign and line.endswith(("?", "&")):
        return SURE, "url"
    if sign == "=" and _SETTINGS.search(line):
        return SURE, "settings"
    if sign == ":" == match["sign"]:
        return CODE, "said"
    is_tight = sign == match["sign"] and "=" in sign
    if is_tight and (is_upper or is_lead or name[0] == "-" or line.endswith((";", ",", "/"))):
        return SURE, "said" if line.endswith(",") else "line"
    # A call, a semicolon at the end, a second assignment.
    is_code = rest.endswith(_CODE_END) or " = " in rest or rest.startswith(("await ", "new "))
    if is_code or ("=" in sign and not is_tight and not is_lead) or not (is_tight or match["sign"][-1] in " *>\n"):
        return CODE, "said"
    is_alone = is_alone or (bare == "=" and rest.replace(" ", "").isalnum())
    if is_lead and bare in (":", "=") and (is_upper or (is_alone and lower != "pass")):
        return SURE, "line"
    return LIKELY, "said"


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
            after = yield from _rows(text, after + 1, sign, headings)


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
                if value and (mark := names().mark(heading, value, LIKELY)):
                    at = cell.start() + cell[0].index(value)
                    yield (at, at + len(value), mark)
        start = end + 1
    return start
