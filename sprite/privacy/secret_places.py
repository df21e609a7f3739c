"""Secrets known by the place they stand in: URLs, headers, command lines, PEM blocks, and beside their other half."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from sprite.privacy.secret_formats import entropy

Span = tuple[int, int, str]

_URL = re.compile(r"://([^\s:/@\"'<>`]{0,120}):([^\s/\"'<>`]{3,300})@(?=[\w\[.$%{-])")
_URL_TOKEN = re.compile(r"://([A-Za-z0-9_-]{20,120})@(?=[\w\[-])")
_VARIABLE = re.compile(r"\$\{?\w|\{|\[|%\w+%|\*{3}|\.{3}|…|x{3,}\Z|(?i:pass(?:word|wd)?|pw|pwd|secret|token)\Z")
_SCHEMES = "basic|bearer|token|bot|api-?key|key|negotiate|digest|oauth|splunk|genie ?key|discogs token="
_AUTHORIZATION = re.compile(
    r"(?i)authorization(?:\\?[\"'\]]){0,2}\s{0,4}[:=,]\s{0,4}(?:\\?[\"'`]){0,2}(?:b|f)?"
    rf"(?:(?:{_SCHEMES})[ :=]{{1,3}})?(?P<secret>[A-Za-z0-9._~+/=:-]{{8,4000}}+)(?!\()"
)
_BEARER = re.compile(r"(?i)\bbearer\s{1,4}(?P<secret>[A-Za-z0-9._~+/=-]{16,4000}+)")
_BASIC = re.compile(r"\b[Bb]asic\s{1,4}(?P<secret>[A-Za-z0-9+/]{12,4000}+={0,2})(?![\w-])")
_USER = re.compile(r"(?<=\s)(?:-u|--user|--proxy-user)[ =]{0,3}[\"']?[^\s:\"'$]{0,100}:(?P<secret>[^\s\"']{3,300})")
_FLAG = re.compile(
    r"(?:\bsshpass\s{1,4}-p\s{0,4}|\bredis-cli\b[^\n|]{0,120}?\s-a\s{1,4}"
    r"|\bdocker\s{1,4}login\b[^\n|]{0,120}?\s-p\s{1,4}|\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|]{0,120}?\s-p)[\"']?(?P<secret>[^\s\"'$-][^\s\"']{3,100})"
)
_PAIR = re.compile(
    r"""(?i)\b\w{0,20}(?:auth|login|credentials)\s{0,2}[=(]\s{0,2}\(?\s{0,2}["'][^"'\n]{1,80}["']\s{0,2},\s{0,2}["']"""
    r"""(?P<secret>[^"'\s]{4,200})["']"""
)
_SUDO = re.compile(r"\becho\s{1,3}[\"']?(?P<secret>[^\s\"'|]{4,100})[\"']?\s{0,3}\|\s{0,3}sudo\s[^\n]{0,20}?-S")
_PEM_BEGIN = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_PEM_END = re.compile(r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
#: Lines of base64, also where their line ends are escaped, numbered or quoted.
_PEM_LINES = re.compile(r"(?:(?:\s|\\[nrt]|[\"'+,>|:]|\d{1,5}[\t→]){0,16}+[A-Za-z0-9+/=]{16,200}+)++")
_KEY_MATERIAL = re.compile(r"[A-Za-z0-9+/=]{24}")
_PUTTY_BEGIN = re.compile(r"PuTTY-User-Key-File-\d")
_PUTTY_LINES = re.compile(r"Private-Lines: \d+")
#: The longest key in use has some 13,000 characters.
_LONGEST_KEY = 20_000
_AWS_ID = re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])")
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=_-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_-])")
_TWILIO_ID = re.compile(r"(?<![A-Za-z0-9])AC[0-9a-f]{32}(?![A-Za-z0-9])")
_TWILIO_SECRET = re.compile(r"(?<![A-Za-z0-9_-])[0-9a-f]{32}(?![A-Za-z0-9_-])")
#: What must stand in the text in lower case, and what is then looked for.
_HEADERS = (("authorization", _AUTHORIZATION, 8), ("bearer", _BEARER, 16), ("basic", _BASIC, 12))
_ARGUMENTS = (
    (("curl", "http"), _USER),
    (("sshpass", "redis-cli", "mysql", "mariadb", "docker"), _FLAG),
    (("auth", "login", "credentials"), _PAIR),
    (("sudo",), _SUDO),
)
_HALVES = (
    ("akia", _AWS_ID, _AWS_SECRET, "aws-secret-key"),
    ("asia", _AWS_ID, _AWS_SECRET, "aws-secret-key"),
    ("ac", _TWILIO_ID, _TWILIO_SECRET, "twilio-auth-token"),
)
#: Bits per character that a made-up token has at least: of a header, of hex, of letters and digits.
_VARIED = (2.5, 3.0, 3.3)
#: Two halves of one credential stand this near to each other.
_NEAR = 300


def places(text: str, lower: str, tokens: str) -> Iterator[Span]:
    """Every secret that its place gives away.

    `lower` is the text in lower case, `tokens` what of it is long enough to be a token.
    """
    if "://" in lower and "@" in lower:
        yield from _in_urls(text)
    for marker, pattern, shortest in _HEADERS:
        if marker in lower:
            yield from _headers(pattern, text, shortest)
    for markers, pattern in _ARGUMENTS:
        if any(marker in lower for marker in markers):
            yield from _arguments(pattern, text)
    if "private key" in lower or "putty-user" in lower:
        yield from _private_keys(text)
    for marker, identity, secret, kind in _HALVES:
        if marker in tokens:
            yield from _beside(text, identity, secret, kind)


def _in_urls(text: str) -> Iterator[Span]:
    for match in _URL.finditer(text):
        if not _VARIABLE.match(match[2]):
            yield (*match.span(2), "basic-auth-url")
    for match in _URL_TOKEN.finditer(text):
        if re.search(r"\d", match[1]) and entropy(match[1]) >= _VARIED[2]:
            yield (*match.span(1), "basic-auth-url")


def _headers(pattern: re.Pattern[str], text: str, shortest: int) -> Iterator[Span]:
    for match in pattern.finditer(text):
        secret = match["secret"].rstrip(".:")
        made = len(secret) >= shortest and re.search(r"[A-Za-z]", secret) and re.search(r"\d", secret)
        if (made and entropy(secret) >= _VARIED[0]) or _is_user_and_password(secret):
            yield (match.start("secret"), match.start("secret") + len(secret), "authorization-header")


def _is_user_and_password(secret: str) -> bool:
    """Whether this is what HTTP calls basic: base64 of `user:password`."""
    try:
        return b":" in base64.b64decode(secret, validate=True)
    except ValueError:
        return False


def _arguments(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        secret = match["secret"]
        if re.search(r"[^a-z_-]", secret) and not secret.isdigit() and not _VARIABLE.match(secret):
            yield (*match.span("secret"), "password-argument")


def _private_keys(text: str) -> Iterator[Span]:
    yield from _blocks(text, _PEM_BEGIN, _PEM_END)
    for start, end, kind in _blocks(text, _PUTTY_BEGIN, _PUTTY_LINES):
        # Here the key follows what is found last.
        lines = _PEM_LINES.match(text, end)
        yield (start, lines.end() if lines else end, kind)


def _blocks(text: str, beginning: re.Pattern[str], ending: re.Pattern[str]) -> Iterator[Span]:
    """From each beginning to its end, or (cut off) as far as lines of a key follow it."""
    at = 0
    has_end = True
    while (begin := beginning.search(text, at)) is not None:
        at = begin.end()
        end = ending.search(text, at) if has_end else None
        # Asked once more for every beginning, a missing end would cost the square of the length.
        has_end = end is not None
        lines = _PEM_LINES.match(text, at)
        if end is not None and end.start() - at <= _LONGEST_KEY:
            at = end.end()
            # Code names both lines without a key between them.
            if _KEY_MATERIAL.search(text, begin.end(), end.start()):
                yield (begin.start(), at, "private-key")
        elif lines is not None:
            at = lines.end()
            yield (begin.start(), at, "private-key")


def _beside(text: str, first: re.Pattern[str], second: re.Pattern[str], kind: str) -> Iterator[Span]:
    searched = 0
    for match in first.finditer(text):
        start = max(searched, match.start() - _NEAR)
        searched = match.end() + _NEAR
        for found in second.finditer(text, start, searched):
            secret = found[0]
            if re.search(r"\d", secret) and re.search(r"[a-zA-Z]", secret) and entropy(secret) >= _VARIED[1]:
                yield (*found.span(), kind)
