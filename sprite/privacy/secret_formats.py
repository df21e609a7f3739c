"""Secrets recognised by their own form or by the place they stand in. The rules are data, `rules/*.toml`.

Every rule is tried only at its markers, on a bounded part of the text, so the time is linear.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from sprite.privacy.secret_names import LIKELY, SURE, Span, is_uuid, names
from sprite.privacy.secret_values import CHOSEN, MADE, entropy, is_placeholder, read, stands_for_value, strength

_TOKEN_FILES = ("models.toml", "clouds.toml", "packages.toml", "services.toml")
_PLACE_FILES = ("places.toml", "sentences.toml")
#: Characters of the line before a marker, and after a secret, that `near` and `unless` may look at.
_BEFORE, _AFTER = 110, 40
#: Characters that may follow a secret in a sentence.
_POINTS = ".,;:!?)\"'`»"


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pattern with examples, which the test of the rules checks."""

    about: str
    #: A regular expression; a list is concatenated.
    pattern: str | list[str] = ""
    matches: tuple[str, ...]
    ignores: tuple[str, ...]

    @property
    def regex(self) -> str:
        """The regular expression that finds the secret, in one piece."""
        return self.pattern if isinstance(self.pattern, str) else "".join(self.pattern)


class Shape(Rule, frozen=True, kw_only=True, dict=True, eq=False):
    """A secret: the longest group of the pattern, or all of it. models.toml explains the fields."""

    kind: str
    markers: tuple[str, ...]
    token: str = ""
    entropy: float = 0.0
    value: Literal["", "password", "said", "argument", "token", "key", "seed"] = ""
    left: str = ""
    near: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()

    @functools.cached_property
    def compiled(self) -> re.Pattern[str]:
        """The pattern. No letter or digit may stand before a token; a slash of a URL may."""
        return re.compile(f"(?<![A-Za-z0-9])(?:{self.token})" if self.token else self.regex.removeprefix("(?i)"))

    @functools.cached_property
    def is_folded(self) -> bool:
        """Whether the pattern reads the text in lower case."""
        return self.regex.startswith("(?i)")

    @functools.cached_property
    def before(self) -> re.Pattern[str]:
        """The pattern of what stands before the marker."""
        return re.compile(rf"(?:{self.left})\Z")

    def in_run(self, text: str, start: int, end: int) -> Iterator[Span]:
        """Yield the spans of such tokens that begin in a part of the text."""
        pattern = self.compiled
        # A key of two halves has some text between them.
        reach = 340 if "[\\s\\S]" in self.regex else 2
        for found in pattern.finditer(text, max(0, start - 1), end + reach):
            # The token may go on behind the run.
            begin, stop = _longest(pattern.match(text, found.start()) or found)
            if self._is_secret(text[begin:stop]):
                yield (begin, stop, self.kind)

    def at(self, text: str, lower: str, at: int) -> Span | None:
        """Return the span of such a secret whose marker stands here, or None."""
        match = self.compiled.match(lower if self.is_folded else text, at)
        if match is None:
            return None
        start, end = _longest(match)
        left = self.before.search(lower, max(0, at - _BEFORE - _AFTER), at) if self.left else None
        if self.left and left is None:
            return None
        if left and left.re.groups:
            start, end = left.start(1), left.end(1) if self.value else end
        if self.value:
            end = start + len(text[start:end].rstrip(_POINTS))
        if self.value == "seed":
            end = start + _seed_end(text[start:end])
        line = max(lower.rfind("\n", max(0, at - _BEFORE), at) + 1, at - _BEFORE, 0)
        if self.unless and _has_word(lower[max(line, at - 30) : max(start, at)], self.unless):
            return None
        if self.near and not _has_word(lower[line:start] + lower[end : end + _AFTER].partition("\n")[0], self.near):
            return None
        return (start, end, self.kind) if self._is_secret(text[start:end]) else None

    def _is_secret(self, value: str) -> bool:
        if self.value:
            return _JUDGES[self.value](value.rstrip(_POINTS))
        return not is_placeholder(value) and (not self.entropy or entropy(value) >= self.entropy)


def shapes(files: Iterable[str]) -> tuple[Shape, ...]:
    """Return the rules of such files."""
    return tuple(shape for name in files for shape in read(name, dict[str, list[Shape]])["shape"])


class Client(Rule, frozen=True, kw_only=True):
    """The words before a secret among the arguments of a command."""

    programs: tuple[str, ...]


def _is_argument(value: str) -> bool:
    # A word in small letters may belong to a sentence about the command.
    return names().is_secret("password", value, SURE) or not (
        stands_for_value(value) or (value.isalpha() and value[1:] == value[1:].casefold()) or value == "PASSWORD"
    )


#: Function words, none of them in the list of words for wallets.
_GLUE = frozenset(
    "the and for are was were with from his her has had been not but its our who which their than does did could would "
    "should isn don goes went them these those that this have you your".split()
)


_SHORTEST_SEED = 12


def _is_seed(value: str) -> bool:
    words = re.findall(r"[a-z]+", value)
    return not _GLUE.intersection(words) and len(set(words)) > len(words) // 2


def _seed_end(value: str) -> int:
    """Return where a phrase ends: it has 12, 15, 18, 21 or 24 words, and a sentence may go on behind it."""
    words = list(re.finditer(r"[a-z]+", value))
    glue = next((at for at, word in enumerate(words) if word[0] in _GLUE), len(words))
    return words[glue // 3 * 3 - 1].end() if _SHORTEST_SEED <= glue < len(words) else len(value)


_JUDGES: dict[str, Callable[[str], bool]] = {
    "password": lambda value: names().is_secret("password", value, SURE), "argument": _is_argument, "seed": _is_seed,
    "said": lambda value: names().is_secret("password", value, LIKELY),
    "token": lambda value: names().is_secret("token", value, SURE),
    "key": lambda value: names().is_secret("key", value, SURE),
}  # fmt: skip


def _has_word(text: str, words: tuple[str, ...]) -> bool:
    """Return whether the text has one of the words, or one that ends like a word with a star before it."""
    exact, ends = _parted(words)
    found = _PLAIN_WORD.findall(text)
    return not exact.isdisjoint(found) or (bool(ends) and any(word.endswith(ends) for word in found))


@functools.cache
def _parted(words: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    return frozenset(words), tuple(word[1:] for word in words if word[0] == "*")


def _longest(match: re.Match[str]) -> tuple[int, int]:
    """Return the span of the longest group, or of the whole match if there is none."""
    spans = [match.span(group) for group in range(1, match.re.groups + 1)]
    return max(spans, key=lambda span: span[1] - span[0]) if spans else match.span()


# --- clients of the command line ---

#: The rest of a command up to an option; it may go on in the next line.
_OPTIONS = r"""(?:[^\s"'|&\\]{0,200}+(?:\\\r?\n|[ \t"'\\]|&(?!&)|\|(?! ))){0,40}?"""
_ARGUMENT = (
    r"""(?:"([^"\n]{3,2000})"|'([^'\n]{3,2000})'|(?<!["'])([^\s"'|;&<>$(){}-][^\s"'|;&<>]{2,2000})"""
    r"""|([^"'\n]{3,400})(?=["']))"""
)


def shape_of(client: Client) -> Shape:
    """Return the rule of a client. An argument follows a space, a quote of its own, or its option at once."""
    programs = "|".join(client.programs)
    pattern = rf"(?<![A-Za-z_.-])(?:{programs})(?![\w-]){_OPTIONS}(?<=[\s\"'])(?:{client.regex}){_ARGUMENT}"
    return Shape(
        kind="password-argument", about=client.about, pattern=pattern, value="argument", matches=(), ignores=(),
        markers=tuple(re.findall("[a-z]+", program)[0] for program in client.programs),
    )  # fmt: skip


# --- where rules are tried ---

#: Everything else is a space: letters for words, and the characters of tokens for runs of at least 16 of them.
#: Splitting bytes is many times faster than a regular expression.
_WORDS = bytes(byte if chr(byte).isalpha() or not chr(byte).isascii() else 32 for byte in range(256))
_RUNS = bytes(byte if re.match(r"[A-Za-z0-9_+/=.~:%-]", chr(byte)) else 32 for byte in range(256))
_SHORTEST_RUN = 16
_PLAIN_WORD = re.compile(r"[^\W\d_]+")


class _Index:
    """All rules, by what has to be in a text: a word, some signs, or the beginning of a token."""

    def __init__(self) -> None:
        self.tokens, places = shapes(_TOKEN_FILES), shapes(_PLACE_FILES)
        self.places = (
            *places,
            *(shape_of(client) for client in read("clients.toml", dict[str, list[Client]])["client"]),
        )
        self.token_markers: dict[str, list[Shape]] = {}
        for token in self.tokens:
            for marker in token.markers:
                self.token_markers.setdefault(marker, []).append(token)
        self.words: dict[bytes, list[Shape]] = {}
        self.signs: dict[str, list[Shape]] = {}
        for rule in self.places:
            for marker in dict.fromkeys(rule.markers):
                if _PLAIN_WORD.fullmatch(marker) and marker.isascii():
                    self.words.setdefault(marker.encode(), []).append(rule)
                else:
                    self.signs.setdefault(marker, []).append(rule)


@functools.cache
def index() -> _Index:
    """Read all rules (20 ms, once)."""
    return _Index()


def prepare() -> None:
    """Read and compile all rules."""
    _rules()
    for rule in (*index().tokens, *index().places):
        _ = rule.compiled, rule.before


def found_by_form(text: str, lower: str, start: int, end: int) -> Iterator[Span]:
    """Yield the secrets that a rule of the files recognises and whose marker is in this part of the text."""
    piece = lower[start:end]
    raw = text[start:end].encode("utf-8", "replace")
    words, signs = index().words, index().signs
    yield from _tokens(text, lower, start, raw)
    found = [(word.decode(), words[word], True) for word in words.keys() & raw.lower().translate(_WORDS).split()]
    for marker, rules, is_word in (*found, *((sign, signs[sign], False) for sign in signs if sign in piece)):
        at = lower.find(marker, start, end)
        while at >= 0:
            after = at + len(marker)
            if not is_word or not (lower[at - 1 : at].isalpha() or lower[after : after + 1].isalpha()):
                for rule in rules:
                    if (span := rule.at(text, lower, at)) is not None:
                        yield span
            at = lower.find(marker, after, end)


def _tokens(text: str, lower: str, at: int, raw: bytes) -> Iterator[Span]:
    """Yield the tokens among the long runs of characters that have a digit."""
    runs: list[tuple[int, int]] = []
    for run in raw.translate(_RUNS).split():
        is_one_case = run.islower() or run.isupper()
        if len(run) >= _SHORTEST_RUN and (not is_one_case or len(run.translate(None, b"0123456789")) < len(run)):
            at = text.index(run.decode(), at)
            runs.append((at, at + len(run)))
            at += len(run)
    if not runs:
        return
    joined = "\n".join(lower[start:end] for start, end in runs)
    markers = index().token_markers
    for rule in dict.fromkeys(
        rule for marker in [marker for marker in markers if marker in joined] for rule in markers[marker]
    ):
        for start, end in runs:
            if any(lower.find(marker, start, end) >= 0 for marker in rule.markers):
                yield from rule.in_run(text, start, end)


# --- private keys ---

#: Lines of base64, also with escaped, numbered, quoted or indented line ends.
_KEY_LINES = re.compile(
    r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{16,}+"
    r"(?:(?:\s|\\{1,4}[nrt]|[\"'+,>|:]|\d{1,5}[\t→]){1,24}[A-Za-z0-9+/=]{16,}+)*"
)
_KIND = r"(?:[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V\d) ?-{4,5}"
_BEGIN = re.compile(rf"-{{4,5}} ?BEGIN {_KIND}|PuTTY-User-Key-File-\d")
_END = re.compile(rf"-{{4,5}} ?END {_KIND}")
#: Characters of headers between the beginning and the key, and of the last line and a checksum before the end.
_HEADERS, _LAST_LINE = 400, 120
#: A part of a long text, and what two parts have in common: more than the longest key.
_PART_OF_KEYS, _OVERLAP = 50_000, 20_000


def private_keys(text: str, lower: str) -> Iterator[Span]:
    """Yield private keys in PEM and PuTTY form. Either of the lines around a key may be cut off."""
    if not any(words in lower for words in ("private key", "private-lines", "static key")):
        return
    for begin in range(0, max(1, len(text) - _OVERLAP), _PART_OF_KEYS - _OVERLAP):
        after = begin
        for lines in _KEY_LINES.finditer(text, begin, begin + _PART_OF_KEYS):
            start, end = lines.span()
            before = [found.start() for found in _BEGIN.finditer(text, max(after, start - _HEADERS), start + 40)]
            last = _END.search(text, end, end + _LAST_LINE)
            if before or last or "Private-Lines" in text[max(0, start - 40) : start + 40]:
                after = last.end() if last else end
                yield (before[-1] if before else start, after, "private-key")


# --- cards ---

#: In one piece, or in groups as cards print them: 4-4-4-4, Amex 4-6-5, Diners 4-6-4.
_CARD = re.compile(
    # The first digit before the look behind, so that the search passes over everything else at once.
    r"[2-6](?<![\w.,+%/#-].)(?<!\d[ -].)(?:\d{14,15}|\d{3}([ -])\d{4}\1\d{4}\1\d{4}|\d{3}([ -])\d{6}\2\d{4,5})"
    r"(?![\w%/-]|[.,]\d)"
)
#: Numbers for tests.
_TEST_CARDS = frozenset(("4111111111111111", "4242424242424242", "5555555555554444"))
_CARD_CUE = re.compile(
    r"card|visa|amex|american express|maestro|diners|discover|\bpan\b|\bcc\b|credit|debit|cvv|cvc|karte|carte|tarjeta"
)
#: Visa, Mastercard (two ranges), American Express, Discover, JCB, Diners: prefix, and how many digits follow it.
_ISSUERS = re.compile(
    r"4\d{15}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[689]\d)\d{11}"
)


def card_numbers(text: str, lower: str, begin: int, stop: int) -> Iterator[Span]:
    """Yield the numbers of payment cards in a part of the text."""
    for match in _CARD.finditer(text, begin, stop):
        start, end = match.span()
        digits = re.sub(r"[ -]", "", match[0])
        if digits in _TEST_CARDS:
            continue
        doubled = (int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits)))
        if not _ISSUERS.fullmatch(digits) or sum(sum(divmod(value, 10)) for value in doubled) % 10:
            continue
        # One in ten numbers has the right check digit: without a card's groups, something has to speak of cards.
        if len(digits) < end - start or _CARD_CUE.search(lower, max(0, start - 60), end + 60):
            yield (start, end, "card-number")


#: Kept instead of such a result.
NOT_KEPT = "[the result is not kept: this command shows secrets]"
#: Names of the arguments that hold a command, and of those that hold a path.
_COMMANDS = ("command", "cmd", "script")
_PATHS = ("file_path", "path", "absolute_path")
_LONGEST = 20_000


#: A secret that is an argument of another command is not shown, unless a command prints its arguments.
_INSERTED = re.compile(r"\$\([^()\n]{1,200}\)")
_PRINTS = re.compile(r"\b(?:echo|printf|env|set -x|declare|cat <<)")
#: One that goes into such a command is not, either.
_TAKEN = re.compile(
    r"[^\n;&|]{0,300}\|[^\n;]{0,300}?"
    r"(?:-stdin|--with-token|\b(?:pbcopy|xclip|xsel|wl-copy|clip|wc|\w{2,8}sum|openssl dgst)\b|\s(?:apply|create) -f"
    r"|\bjq [^|\n]{0,80}\.(?:name|id|username|length|keys)[)'\"]{0,3}\s*\Z)"
)
_HELP = re.compile(r"\s--?(?:help|version)\b")
#: A run that may be or was a secret: with letters and a digit, many digits, a sign inside, or alone in its line.
_VALUE = re.compile(
    r"""(?x)(?=[^\s"'=:,<>]*\d)(?=[^\s"'=:,<>]*[A-Za-z])[^\s"'=:,<>{}$]{8,} | \d{6,} | \w[!#$%&*^~]\w | \[redacted:
    | (?m:^\W{0,3}["']?(?=\W*\w)[^\s:=<>"'[\]|+]{6,}["']?$)"""
)
_RUN = re.compile(r"[^\s\"'|,<>]{6,}")
_HASH = re.compile(r"\$\w{1,8}\$[\w./$]{8}")
#: Names of addresses that may hold a password.
_ADDRESS = re.compile(r"(?i)(?:dsn|(?:database|db|redis|mongo\w*|amqp|broker|postgres\w*|mysql)_?ur[il])\Z")


class Command(Rule, frozen=True, kw_only=True):
    """A command that shows secrets."""

    #: Whether its result is a secret however it looks.
    always: bool = False
    #: Whether it is one, however it looks, if the name in the pattern's group says so.
    named: bool = False


class CommandFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of commands.toml."""

    start: str
    files: tuple[str, ...]
    command: tuple[Command, ...]


@functools.cache
def _rules() -> tuple[re.Pattern[str], ...]:
    rules = read("commands.toml", CommandFile)
    # Examples, templates, sealed secrets and code that is named like a file of secrets hold none.
    file = (
        rf"(?:(?<=[\s/\\\"'=:~<@])(?<!templates/)(?![\w-]*sealed)(?:{'|'.join(rules.files)})"
        r"(?![\w-]|\.(?:example|sample|template|tpl|dist|md|rst|py|ts|js|go|rs|enc|pub|j2)\b))"
    )

    def either(*, always: bool = False, named: bool = False, of_files: bool = False) -> re.Pattern[str]:
        kinds = (always, named, of_files)
        chosen = [rule.regex for rule in rules.command if (rule.always, rule.named, "{file}" in rule.regex) == kinds]
        return re.compile(
            "|".join(f"(?:{regex})" for regex in chosen).replace("{start}", rules.start).replace("{file}", file)
        )

    return either(always=True), either(named=True), either(), either(of_files=True), re.compile(file)


def _shows_value(result: str) -> bool:
    """Return whether there is a generated value, a chosen one alone in its line, or nothing but one word."""
    lines = [line.strip(" \t\"'") for line in result[:_LONGEST].splitlines() if line.strip()]
    if len(lines) == 1 and _RUN.fullmatch(lines[0]) and strength(lines[0]):
        return True
    if any((_RUN.fullmatch(line) and strength(line) >= CHOSEN) or _HASH.match(line) for line in lines):
        return True
    return any(strength(run) >= MADE and not is_uuid(run) for run in _RUN.findall(result[:_LONGEST]))


def shows_secrets(given: Any, result: str | None = None) -> bool:
    """Return whether a tool call with this input (a command, or a file that is read) has a secret as its result.

    Without a `result`, only the input decides. A `result` without any value that may be a secret shows none.
    """
    if not isinstance(given, Mapping):
        return False
    always, named, maybe, of_files, file = _rules()
    is_file_plain = result is not None and not _VALUE.search(result)
    is_plain = result is not None and not _shows_value(result)
    for name in _COMMANDS:
        said = given.get(name)
        # Some programs log the arguments of a command one by one.
        command = "\n".join(map(str, said)) if isinstance(said, list) else said
        if not isinstance(command, str) or _HELP.search(command):
            continue
        command = command[:_LONGEST] if _PRINTS.search(command) else _INSERTED.sub("$", command[:_LONGEST])
        shown = [*always.finditer(command), *(found for found in named.finditer(command) if _is_secret_name(found))]
        shown += () if is_plain else maybe.finditer(command)
        shown += () if is_file_plain else of_files.finditer(command)
        if any(not _TAKEN.match(command, found.end()) for found in shown):
            return True
    paths = (given[name] for name in _PATHS if isinstance(given.get(name), str))
    return not is_file_plain and any(file.search(f"/{path}") for path in paths)


#: A line that a person typed into a shell, up to the prompt that ends what it printed.
_PROMPT = re.compile(
    r"(?m)^(?:[$%#]|PS[^>\n]{0,100}>|\[?[\w.-]{1,40}@[\w.-]{1,60}[^$#%>\n]{0,100}[$#%])(?: +([^\n]*)|$)|^```"
)


def session_results(text: str) -> Iterator[Span]:
    """Yield what commands that show secrets printed in a pasted session."""
    prompts = list(_PROMPT.finditer(text))
    commands = "\n".join(prompt[1] or "" for prompt in prompts)
    prompts = prompts if any(rule.search(commands) for rule in _rules()[:4]) else []
    for typed, following in zip(prompts, [*prompts[1:], None], strict=False):
        start, end = typed.end() + 1, following.start() if following else len(text)
        result = text[start:end].partition("\n\n")[0].rstrip()
        if typed[1] and _shows_value(result) and shows_secrets({"command": typed[1]}, result):
            yield (start, start + len(result), "command-result")


def _is_secret_name(found: re.Match[str]) -> bool:
    name = next(filter(None, found.groups()))
    return name not in ("PWD", "OLDPWD") and (names().kind(name) != "" or _ADDRESS.search(name) is not None)


def kept_result(given: Any, result: str) -> str:
    """Return the result of a tool call, or a note if the call shows secrets."""
    return NOT_KEPT if result.strip() and shows_secrets(given, result) else result
