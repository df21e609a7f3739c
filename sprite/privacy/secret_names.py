"""Secrets that have no shape of their own and are known by the name they are given: `DB_PASSWORD=`, `"token": `.

Finds names with their values in code, configuration, markup, command lines and sentences, and says how a value is
written; whether it is a secret is judged in `secret_values`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sprite.privacy.secret_values import (
    KEY_NAME,
    UPPER_NAME,
    Style,
    is_striking,
    kind_of_value,
)

Span = tuple[int, int, str]

#: Looked for in the text in lower case; the whole assignment is only read where one of them stands.
_WORDS = re.compile(
    r"pass|pw|kennwort|contrase[nñ]a|mot_?de_?passe|identified by|secret|token|key|credential|auth|cookie"
)
_ASSIGNMENT = re.compile(
    r"""(?i)
    (?P<word>passw(?:or)?[dt]|passwd|passphrase|passcode|pass|pwd|pw|kennwort|contrase[nñ]a|mot_?de_?passe
        |identified\ by|secret|token|key|credentials?|auth|cookie)
    (?P<rest>[\w.-]{0,40}+)
    (?P<gap>
        (?:\\?["'`\])]){0,3} (?:\[\d*\])? [ \t]{0,12}
        (?: :=|=>|->|={1,3}|!=|:{1,2}|\?=|\|\| ) [ \t]{0,12} (?:\\?\n[ \t]{0,20}(?=["']))? @?
        | (?:\\?["'])? [\s,]{1,40} (?:\\?["'])? value (?:\\?["'])? \s{0,4} [:=] \s{0,4}      # name: X, value: Y
        | >                                                                                  # <password>Y
        | \ (?:for|of|on)\ [\w.@-]{1,40}(?:\ [\w.@-]{1,40})?(?:\ is:?|:)\ {1,2}                  # password for ada is
        | (?:\\?["'])?\ {1,4}(?:(?:is|was|to|lautet|ist|es)\ {1,2}(?:now\ |set\ to\ )?)?     # the password is Y
    )
    (?: \\"(?P<escaped>[^"\\\n]{1,2000}) | "(?P<double>[^"\n]{1,2000})" | '(?P<single>[^'\n]{1,2000})'
      | `(?P<tick>[^`\n]{1,2000})` | (?P<bare>[^\s"'`]\S{0,2000}) )
    """,
    re.VERBOSE,
)
#: `name: X` before a `value: Y`; the start of a tag; what sets a variable in a shell, a Dockerfile or a chart.
_NAME_MEMBER = re.compile(r"(?i)(?:name|key)(?:\\?[\"'])?\s{0,4}[:=]\s{0,4}(?:\\?[\"'])?[\w.-]*\Z")
_TAG = re.compile(r"(?<!\?)(?<!\?P)<[\w:.-]*\Z")
_SETTER = re.compile(r"(?i)(?:\A|[\s\"'])(?:export|set|env|setx|ARG|-e|--env|--set|--build-arg|-D)[ =]\s*\Z")
_LONGEST_NAME = 100
#: So many names are tried in one run of characters without a space: hostile text has thousands.
_MOST_NAMES = 8
#: Nothing without a digit, a sign or at least six letters is worth a second look.
_HOPEFUL = re.compile(r"\d|[!@#$%^&*~+?|]|[A-Za-z]{6}")
#: Inside `[redacted:github-token]` nothing is a name.
_IN_MARK = re.compile(r"\[redacted:[a-z0-9-]*\Z")
_LONGEST_MARK = 60
_NAME_BEFORE = re.compile(r"[\w.-]{0,60}\Z")
#: "my api key is", "Access Key: ".
_SPACED_NAME = re.compile(
    r"(?i)\b(api|access|secret|auth|license|account|encryption|signing|master|admin|app|openai|anthropic|claude|mistral"
    r"|cohere|gemini|google|azure|aws|stripe|twilio|datadog|cloudflare|github|gitlab) \Z"
)
#: A word that is short enough to be part of another one ("compass", "monkey", "author") must stand alone in a name.
_ALONE = frozenset({"pass", "pw", "pwd", "key", "auth", "cookie"})


def assignments(text: str, lower: str) -> Iterator[Span]:
    """Values that are given to a name which says that they are secret."""
    after = tries = region = 0
    for word in _WORDS.finditer(lower):
        # What was no secret may hold the next name (`secret_name=token=...`), but not for ever.
        if word.start() < after or (tries >= _MOST_NAMES and word.start() < region):
            continue
        if _IN_MARK.search(lower, max(0, word.start() - _LONGEST_MARK), word.start()):
            continue
        match = _ASSIGNMENT.match(text, word.start())
        if match is None:
            continue
        if match.start() >= region:
            tries, region = 0, match.end()
        tries += 1
        span = _value_span(match, text)
        if span is not None:
            after = span[1]
            yield span


def kind_of_member(name: str, value: str) -> str | None:
    """The kind of secret that a JSON object's member is, by its name and its value; None if it is none."""
    words = _WORDS.finditer(name.lower()) if len(name) <= _LONGEST_NAME else ()
    matches = [match for word in words if (match := _ASSIGNMENT.match(f"{name}: x", word.start()))]
    if not any(_full_name(match, name) for match in matches):
        return None
    return kind_of_value(name, value, "literal")


def _value_span(match: re.Match[str], text: str) -> Span | None:
    group = match.lastgroup or "bare"
    start, end = match.span(group)
    if not _HOPEFUL.search(text, start, end):
        return None
    name = _full_name(match, text)
    if name is None:
        return None
    gap, style = match["gap"], _style(match, text, name, group)
    if style is None:
        return None
    if group == "bare":
        end = _bare_end(match, text, style, start, end)
    elif group == "escaped":
        # Inside a JSON string: the value's own quote is escaped as well.
        end -= text[start:end].endswith("\\")
    value = text[start:end]
    kind = kind_of_value(name, value, style)
    if kind is None or (style == "prose" and not is_striking(value, gap, quoted=group != "bare")):
        return None
    return (start, end, kind)


def _full_name(match: re.Match[str], text: str) -> str | None:
    """The whole name, `spring.datasource.password`; None where the word is only a part of another word."""
    start = match.start()
    before = _NAME_BEFORE.search(text, max(0, start - 60), start)
    prefix = before[0] if before else ""
    word, rest = match["word"], match["rest"]
    if word.lower() == "key" and not prefix and _SPACED_NAME.search(text, max(0, start - 20), start):
        prefix = "api_"
    if word.lower() in _ALONE:
        if prefix[-1:].isalpha() and not (prefix[-1].islower() and word[0].isupper()):
            joined = f"{prefix}{word}".lower()
            if not (
                KEY_NAME.search(joined) or joined.endswith(("pgpass", "userpass", "dbpass", "rootpass", "requirepass"))
            ):
                return None
        if rest[:1].isalpha() and not rest[0].isupper():
            return None
    return f"{prefix}{word}{rest}"


def _style(match: re.Match[str], text: str, name: str, group: str) -> Style | None:
    """How the value is written; None where nothing is assigned at all."""
    gap = match["gap"]
    before = text[max(0, match.start() - 200) : match.start()]
    line = before.rpartition("\n")[2]
    if "value" in gap.lower():
        return "literal" if _NAME_MEMBER.search(line) else None
    if gap == ">":
        return "literal" if _TAG.search(line) else None
    if not any(sign in gap for sign in ":=>|") or gap.startswith((" for ", " of ", " on ")):
        return _unsigned_style(match, before, name, group)
    return "literal" if group != "bare" else _bare_style(match, text, name, line)


def _bare_style(match: re.Match[str], text: str, name: str, line: str) -> Style:
    """A value without quotes is one in configuration, and an expression or a word anywhere else."""
    gap, code = match["gap"], _is_code(text, match)
    lead = line[: len(line) - (len(name) - len(match["word"]) - len(match["rest"]))]
    configured = not lead.strip(" \t-#+") or _SETTER.search(lead)
    if "=" in gap and gap.strip() == gap and (UPPER_NAME.match(name) or lead[-1:] in {"?", "&", ";"}):
        return "literal"
    if lead.endswith("--") or (configured and gap.strip(" \t\"']") in {"=", ":"} and not code):
        return "literal"
    return "prose" if gap.strip(" ") in {":", "="} and gap.endswith(" ") and not code else "code"


def _unsigned_style(match: re.Match[str], before: str, name: str, group: str) -> Style | None:
    """Without a sign between name and value: a flag, a directive, SQL, netrc, or a sentence."""
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
    """Whether the rest of the line reads as code: a call, a semicolon at the end, a brace."""
    line = text[match.end("gap") : match.end("gap") + 200].partition("\n")[0].rstrip()
    return (
        line.endswith((";", "{", ",", "(", ")", "[", "]", "}")) or " = " in line or line.startswith(("await ", "new "))
    )


def _bare_end(match: re.Match[str], text: str, style: Style, start: int, end: int) -> int:
    """Where a value without quotes ends: `a=b&c` in a URL, `a=b;` in a connection string, a full stop in prose."""
    value = text[start:end]
    before = text[max(0, match.start() - 61) : match.start()]
    in_query = "=" in match["gap"] and re.search(r"[?&][\w.-]*\Z", before) is not None
    if in_query:
        stop = re.search(r"[&#\"'<>`)\]}]", value)
    elif re.search(r"(?:;|(?:Server|Host|Data Source|Uid|User(?:\s?Id)?|Endpoint)\s?=[^\n]*)\s?[\w .-]*\Z", before):
        stop = re.search(r"[;\"'`]", value)
    elif match["gap"] == ">":
        stop = re.search(r"<", value)
    elif style == "literal" and text[match.start("gap") : start].strip() in {"=", ":"}:
        stop = re.search(r"[\"'`](?=[\s,;)\]}]|\Z)|\\[nrt\"]|[,;](?=\s|\Z)", value)
    else:
        stop = re.search(r"[,;\"'`)\]}]|\\[nrt\"]", value)
    if stop is not None:
        value = value[: stop.start()]
    if style == "prose":
        value = value.rstrip(".,;:!?")
    return start + len(value)
