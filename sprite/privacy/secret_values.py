"""Rate how much a value looks like a secret, without its name: one scale for every place (reads values.toml)."""

# ruff: noqa: PLR0911, PLR2004 - a scale with its cases in order
from __future__ import annotations

import functools
import math
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import TypeVar

import msgspec

_FOLDER = Path(__file__).with_name("rules")
_F = TypeVar("_F")
#: A file of words and patterns by what they are for.
Patterns = dict[str, tuple[str, ...]]

#: Nothing secret; a word; what a person chooses as a password or as a name (hunter2, blue-otter); what only a password
#: is (Blue-Otter-42, gr8escape); what a machine made.
NOTHING, WORD, CHOSEN, ODD, MADE = range(5)

#: A longer value is judged by its beginning.
_LONGEST = 200
#: Words and numbers of identifiers: camelCase is two.
_PIECE = re.compile(r"[A-ZÀ-Þ]?[^\W\d_A-ZÀ-Þ]+|[A-ZÀ-Þ]+|\d+")
#: A token has a digit or both cases, and its pieces are short.
_TOKEN, _SHORTEST_TOKEN, _LONGEST_PIECES = re.compile(r"(?a)[\w+/=.~-]+"), 16, 3.0
#: A key of numbers alone.
_GROUPS = re.compile(r"\d{5,6}(?:-\d{5,6}){5,}")
_SIGN = re.compile(r"\w[!#$%&*+=@^~;:?,|<>\\(){}][^\s]|\w[!#$%&*^~+]\Z")
_INNER_DIGIT = re.compile(r"[^\W\d_]\d+[^\W\d_]")
_EXAMPLE = re.compile(r"EXAMPLE|ABC-DEF")
_JOINT = re.compile(r"\w[-_.]\w")
#: Keys with all kinds of signs, which frameworks make.
_SIGNED, _SIGNED_ENTROPY = range(32, 129), 4.5
_GLUE = frozenset(
    "the a an and or to your my is are for with of in on it this that must be not you can as at from too".split()
)


def read(name: str, form: type[_F]) -> _F:
    """Return the rules of one file. Raise ValidationError if a rule lacks a field or has an unknown one."""
    return msgspec.convert(tomllib.loads((_FOLDER / name).read_text("utf-8")), form)


@functools.cache
def _compiled() -> dict[str, re.Pattern[str]]:
    whole = {"references", "said", "terms"}
    return {
        name: re.compile(rf"(?is)(?:{'|'.join(patterns)})" + (r"\Z" if name in whole else ""))
        for name, patterns in read("values.toml", Patterns).items()
    }


def entropy(text: str) -> float:
    """Return the bits per character (Shannon)."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def is_placeholder(value: str) -> bool:
    """Return whether the value asks to be replaced, and is not so random that such words are there by chance."""
    return _compiled()["placeholders"].search(value, 0, _LONGEST) is not None and not (
        len(value) >= 40 and entropy(value) >= 4.5 and not _EXAMPLE.search(value)
    )


def stands_for_value(value: str) -> bool:
    """Return whether the value leads to a secret or hides it: a variable, a template, a path, a mask, a placeholder."""
    rules = _compiled()
    return (
        "${" in value
        or rules["references"].match(value) is not None
        or rules["patterns"].search(value, 0, _LONGEST) is not None
        or is_placeholder(value)
    )


def is_expression(value: str) -> bool:
    """Return whether code without quotes is more than a literal."""
    return _compiled()["expressions"].search(value, 0, _LONGEST) is not None


def is_prose(value: str) -> bool:
    """Return whether letters alone are an adjective or a name of code: "case-sensitive", "user_name", "maxLength"."""
    return "/" in value or (
        re.fullmatch(r"[a-z]+(?:[A-Z][a-z]+)*|[a-z_]+|[a-z]{1,4}-[a-z]+", value) is not None
        or re.search(rf"\A(?:[^-]*-){{0,2}}[^-]*(?:{_compiled()['endings'].pattern[5:]})\Z", value) is not None
    )


def strength(value: str) -> int:
    """Return how much a value looks like a secret: NOTHING, WORD, CHOSEN, ODD or MADE."""
    rules, has_digit = _compiled(), re.search(r"\d", value) is not None
    if len(value) in _SIGNED and value.count(" ") < 3 and has_digit and entropy(value) >= _SIGNED_ENTROPY:
        return NOTHING if "${" in value or is_placeholder(value) or rules["references"].match(value) else MADE
    if len(value) < 4 or stands_for_value(value) or rules["said"].match(value):
        return NOTHING
    if " " in value:
        return _of_words(value)
    if len(value) < 2 * _SHORTEST_TOKEN and rules["terms"].match(value):
        return NOTHING
    pieces = _PIECE.findall(value[:_LONGEST])
    if not any(piece[0].isalpha() for piece in pieces):
        is_long = len(value) >= 6
        return MADE if _GROUPS.fullmatch(value) else (CHOSEN if is_long else WORD) if value.isdigit() else NOTHING
    if len(value) >= _SHORTEST_TOKEN and _TOKEN.fullmatch(value) and _is_made(pieces, has_digit=has_digit):
        return MADE
    is_mixed = has_digit and len(value) >= 8 and (_JOINT.search(value) or _SIGN.search(value))
    if rules["about"].search(value) and not is_mixed:
        return NOTHING
    if is_mixed or (_SIGN.search(value) and value[-1] not in "?=") or (has_digit and _INNER_DIGIT.search(value)):
        return ODD
    return CHOSEN if has_digit or len(pieces) > 1 else WORD


def _is_made(pieces: list[str], *, has_digit: bool) -> bool:
    length, numbers = sum(map(len, pieces)), sum(piece.isdigit() for piece in pieces)
    # Base 32 has few digits.
    return length < (_LONGEST_PIECES if has_digit else 2.3) * len(pieces) or (
        numbers > 3 and length < 6 * len(pieces) and length > 23
    )


def _of_words(value: str) -> int:
    words = value.split()
    glue = len(_GLUE.intersection(value.lower().split()))
    is_text = value[-1] in ".:?!" or re.search(r"\s[^\w&+]", value) is not None or _compiled()["about"].search(value)
    if is_text or glue > 1:
        return NOTHING
    if max(strength(word) for word in words) >= ODD:
        return ODD
    if re.search(r"\d", value):
        return CHOSEN if glue or len(words) < 3 else ODD
    return NOTHING if len(words) < 3 else CHOSEN if len(words) > 3 and value.islower() else WORD
