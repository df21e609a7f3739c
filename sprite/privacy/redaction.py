"""Redact text before it is stored and before any cut: secrets, and a person's private passages, in linear time."""

from __future__ import annotations

import logging
import re
import string
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sprite.common import own_secrets
from sprite.privacy import secret_formats
from sprite.privacy.secret_formats import card_numbers, found_by_form, private_keys, session_results
from sprite.privacy.secret_names import SURE, Span, names, tables
from sprite.protocol.pasted import Edit, Marked

PRIVATE = "[private]"
#: Length of the shortest text that can contain a secret and its marker.
_SHORTEST = 9
_PRIVATE_TAG = re.compile(r"<\s{0,8}(/?)\s{0,8}private\s{0,8}>", re.IGNORECASE)
#: A long text is searched in parts, which end between two words: a call of a regular expression stops all threads.
_PIECE, _LONGEST_WORD = 32_000, 8_000
_GAP = re.compile(r"[^\w+/=.-]")
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
#: Marks of an earlier pass; they stay unchanged, and no part of them is a secret.
_REDACTED = re.compile(r"\[redacted:[a-z0-9-]+\]")

#: Hidden inside keys that are copied from web pages: soft hyphens, joiners, zero-width spaces, marks of direction, the
#: byte order mark, selectors.
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff]")

#: Limits for the nesting of a stored JSON value, and for a name that may be a secret's.
_DEEPEST, _LONGEST_NAME = 100, 100


def prepare() -> None:
    """Read and compile every rule (60 ms), so that no turn has to."""
    names()
    secret_formats.prepare()


def redact(text: str) -> str:
    """Return the text with every secret replaced by `[redacted:kind]`; idempotent."""
    return Marked(text).replaced(redactions(text)).text


def redactions(text: str) -> list[Edit]:
    """Return the edits that replace every secret by `[redacted:kind]`."""
    spans = secrets_in(text) if len(text) >= _SHORTEST else []
    return [(start, end, f"[redacted:{kind}]") for start, end, kind in spans]


def secrets_in(text: str) -> list[Span]:
    """Return the spans (start, end, kind) of secrets, sorted and disjoint; the first detector to match names one."""
    found = _found(text)
    if not text.isascii() and _INVISIBLE.search(text):
        places = [at for at, character in enumerate(text) if not _INVISIBLE.match(character)]
        visible = _found("".join(text[at] for at in places))
        found += [(places[start], places[end - 1] + 1, kind) for start, end, kind in visible if end > start]
    return _merged(found, text)


def _found(text: str) -> list[Span]:
    lower = text.lower()
    if len(lower) != len(text):
        # In lower case, some letters of other scripts have another length. Detectors look for ASCII only.
        lower = text.translate(_ASCII_LOWER)
    found, named = [*own_secrets.spans(text), *private_keys(text, lower), *session_results(text)], []
    for start, end in _pieces(text):
        found += found_by_form(text, lower, start, end)
        found += card_numbers(text, lower, start, end)
        found += names().arguments(text, lower, start, end)
        named += names().words(lower, start, end)
    return [*found, *names().spans(text, named), *tables(text, named)]


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start + _PIECE < len(text):
        gap = _GAP.search(text, start + _PIECE - _LONGEST_WORD, start + _PIECE)
        end = gap.end() if gap else start + _PIECE
        yield start, end
        start = end
    yield start, len(text)


def _merged(found: list[Span], text: str) -> list[Span]:
    if not found:
        return found
    kept = [match.span() for match in _REDACTED.finditer(text)]
    if kept:
        found = _apart(found, kept)
    merged: list[Span] = []
    # Sorted by start only, so that of two spans with the same start the earlier detector names the secret.
    for start, end, kind in sorted(found, key=lambda span: span[0]):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2])
        else:
            merged.append((start, end, kind))
    return merged


def _apart(found: list[Span], kept: list[tuple[int, int]]) -> list[Span]:
    """Return the spans that touch none of the kept ones, which are sorted and disjoint."""
    ends = [end for _, end in kept]

    def is_apart(span: Span) -> bool:
        following = bisect_right(ends, span[0])
        return following == len(kept) or kept[following][0] >= span[1]

    return [span for span in found if is_apart(span)]


def private_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans of `<private>...</private>`, tags included; an unclosed tag extends to the end."""
    spans: list[tuple[int, int]] = []
    depth = start = 0
    for tag in _PRIVATE_TAG.finditer(text) if "private" in text.lower() else ():
        if not tag[1]:
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                spans.append((start, tag.end()))
    return [*spans, (start, len(text))] if depth else spans


def without_private(text: str) -> str:
    """Return the text with `[private]` instead of each `<private>...</private>`."""
    return Marked(text).replaced([(start, end, PRIVATE) for start, end in private_spans(text)]).text


def discreet(text: str) -> str:
    """Return the text to store: without private passages and secrets."""
    return redact(without_private(text))


def discreet_value(value: Any, discreet: Callable[[str], str] = discreet, depth: int = 0) -> Any:
    """Return a block's data to store: strings are redacted, and members with a secret's name. Names are its fields."""
    if isinstance(value, str):
        return discreet(value)
    if depth > _DEEPEST:
        return "[nested too deeply]"
    if isinstance(value, dict):
        members = secret_members(value)
        return {
            name: members.get(name) or discreet_value(member, discreet, depth + 1) for name, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [discreet_value(item, discreet, depth + 1) for item in value]
    return value


def secret_members(value: Mapping[Any, Any]) -> dict[Any, str]:
    """Return the marks that replace members with a secret's name: `{"db_password": "x"}`.

    It also recognises `{"name": "DB_PASSWORD", "value": "x"}`, the form of Kubernetes and Docker.
    """
    marks: dict[Any, str] = {}
    for name, member in value.items():
        if isinstance(member, str) and isinstance(name, str):
            named = value.get("name", value.get("key")) if name.lower() == "value" else name
            is_name = isinstance(named, str) and len(named) <= _LONGEST_NAME
            kind = names().mark(named, member, SURE) if is_name else None
            if kind is not None and not private_spans(member):
                marks[name] = f"[redacted:{kind}]"
    return marks


class DiscreetFilter(logging.Filter):
    """Pass every record, with secrets and private passages removed from its message and its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record in place; always return True."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            # The arguments do not fit the format; logging would print them as they are.
            message = f"{record.msg} {record.args!r}"
        try:
            self._rewrite(record, message)
        except Exception as error:  # noqa: BLE001 - from here it would end the event loop, whose errors are logged
            # Without the rules (they are files) it is unknown what may be logged.
            record.msg, record.args = f"(a line that could not be checked for secrets: {type(error).__name__})", None
            record.exc_info = record.exc_text = record.stack_info = None
        return True

    def _rewrite(self, record: logging.LogRecord, message: str) -> None:
        record.msg, record.args = discreet(message), None
        if record.exc_info and not record.exc_text:
            # Every formatter prints what is cached here.
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = discreet(record.exc_text)
        if record.stack_info:
            record.stack_info = discreet(record.stack_info)
