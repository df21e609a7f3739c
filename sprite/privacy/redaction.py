"""What must not be written down: secrets, and what a person says in private (pure, no I/O but the rules' one file).

`redact` never raises and takes time in proportion to the text. Secrets are found before anything is cut, so that no
cut leaves half of one.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sprite.privacy.secret_formats import Format, library_formats, own_formats
from sprite.privacy.secret_names import names
from sprite.privacy.secret_places import places

PRIVATE = "[private]"
#: No secret is shorter than this together with what gives it away.
_SHORTEST = 9
_PRIVATE_TAG = re.compile(r"<\s{0,8}(/?)\s{0,8}private\s{0,8}>", re.IGNORECASE)
#: What a token is made of, and what often stands between it and its name.
_RUN = re.compile(r"[A-Za-z0-9_+/=.~:%-]{16,}")
_DIGITS = re.compile(r"\d")
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
#: What an earlier pass has put in; it is left as it is, and no part of it is a secret.
_REDACTED = re.compile(r"\[redacted:[a-z0-9-]+\]")

Span = tuple[int, int, str]
#: A JSON value is written down no deeper than this.
_DEEPEST = 100


def prepare() -> None:
    """Reads and compiles every rule (120 ms), so that no turn has to."""
    places()
    names()
    for rule in (*own_formats(), *library_formats()):
        rule.pattern()


def redact(text: str) -> str:
    """The text with every secret replaced by `[redacted:kind]`; applied again, it changes nothing."""
    if len(text) < _SHORTEST:
        return text
    spans = secrets_in(text)
    return _replaced(text, spans) if spans else text


def secrets_in(text: str) -> list[Span]:
    """Where secrets stand, (start, end, kind), in order and apart; the first detector that saw one names it."""
    lower = text.lower()
    if len(lower) != len(text):
        # Some letters of other scripts change their length; what detectors look for is ASCII.
        lower = text.translate(_ASCII_LOWER)
    found: list[Span] = []
    for detected in _detectors(text, lower):
        found.extend(detected)
    return _merged(found, text)


def _detectors(text: str, lower: str) -> Iterator[Iterable[Span]]:
    # Most text has no run of characters that could be a made-up token; then no shape has to be looked for.
    runs = [run for run in _RUN.findall(text) if _could_be_made(run)]
    tokens = "\n".join(runs).lower()
    yield places().spans(text, lower, tokens)
    if tokens:
        yield from _by_format(own_formats(), text, tokens)
        yield from _by_format(_shaped(), text, tokens)
        if any(_DIGITS.search(run) for run in runs):
            yield from _by_format(_named(), text, lower)
    yield names().spans(text, lower)


def _could_be_made(run: str) -> bool:
    return not (run.islower() or run.isupper()) or _DIGITS.search(run) is not None


def _by_format(rules: Iterable[Format], text: str, lower: str) -> Iterator[Iterable[Span]]:
    for rule in rules:
        for marker in rule.markers:
            if marker in lower:
                yield rule.spans(text)
                break


@functools.cache
def _shaped() -> tuple[Format, ...]:
    return tuple(rule for rule in library_formats() if not rule.grouped)


@functools.cache
def _named() -> tuple[Format, ...]:
    return tuple(rule for rule in library_formats() if rule.grouped)


def _merged(found: list[Span], text: str) -> list[Span]:
    if not found:
        return found
    kept = [match.span() for match in _REDACTED.finditer(text)]
    found = [span for span in found if not any(start < span[1] and span[0] < end for start, end in kept)]
    merged: list[Span] = []
    # Sorted by place alone: of two that begin at the same place, the detector that came first names it.
    for start, end, kind in sorted(found, key=lambda span: span[0]):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2])
        else:
            merged.append((start, end, kind))
    return merged


def _replaced(text: str, spans: list[Span]) -> str:
    parts, at = [], 0
    for start, end, kind in spans:
        parts += [text[at:start], f"[redacted:{kind}]"]
        at = end
    return "".join([*parts, text[at:]])


def private_spans(text: str) -> list[tuple[int, int]]:
    """Where `<private>...</private>` stands, the tags included; an unclosed one reaches to the end."""
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
    """The text with `[private]` in the place of what is between `<private>` and `</private>`."""
    parts, at = [], 0
    for start, end in private_spans(text):
        parts += [text[at:start], PRIVATE]
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def discreet(text: str) -> str:
    """The text as it may be written down: without what was said in private, and without secrets."""
    return redact(without_private(text))


def discreet_value(value: Any, discreet: Callable[[str], str] = discreet, depth: int = 0) -> Any:
    """A JSON value as it may be written down: every string in it, and what a member's name calls a secret."""
    if isinstance(value, str):
        return discreet(value)
    if depth > _DEEPEST:
        return "[nested too deeply]"
    if isinstance(value, dict):
        members = secret_members(value)
        return {
            discreet(str(name)): members.get(name) or discreet_value(member, discreet, depth + 1)
            for name, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [discreet_value(item, discreet, depth + 1) for item in value]
    return value


def secret_members(value: Mapping[Any, Any]) -> dict[Any, str]:
    """What stands for the members of an object that are secret by their name: `{"db_password": "x"}`.

    Also for `{"name": "DB_PASSWORD", "value": "x"}`, as Kubernetes and Docker write it.
    """
    marks: dict[Any, str] = {}
    for name, member in value.items():
        if isinstance(member, str) and isinstance(name, str):
            named = value.get("name", value.get("key")) if name.lower() == "value" else name
            kind = names().kind_of_member(named, member) if isinstance(named, str) else None
            if kind is not None and not private_spans(member):
                marks[name] = f"[redacted:{kind}]"
    return marks
