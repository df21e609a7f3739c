"""Hashes of the words in tool results that the log cuts or redacts (pure).

Results are cut and redacted before they are logged, and images have no words. The source of a sentence must still be
found. Each word of the whole result is kept as a hash of BITS bits: too short to recover a word, long enough to
recognise one.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from sprite.memory.words import forms_of
from sprite.privacy.redaction import redact

#: A word collides in one of 500 comparisons with a page of 2,000 words. Each hash matches ten entries of a list of ten
#: million passwords.
BITS = 20
_BYTES = 3
#: More than the distinct words of any result shown to a model: the CLI cuts at some 30,000 characters.
MOST_WORDS = 20_000
#: A longer word is data.
_LONGEST_WORD = 24
#: Numbers up to this length are useful evidence (a count of tests, an amount); a longer one identifies a person.
_LONGEST_NUMBER = 6
#: Encoded bytes: an image or a document.
_DATA = re.compile(r"[A-Za-z0-9+/_=\r\n-]{400,}")


@dataclass(frozen=True, slots=True)
class Unkept:
    """The hashes of a result's unlogged words; `is_blind` if part of the result had no readable words."""

    hashes: frozenset[int] = frozenset()
    is_blind: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the log's form."""
        packed = b"".join(number.to_bytes(_BYTES, "big") for number in sorted(self.hashes))
        kept: dict[str, Any] = {"words": base64.b64encode(packed).decode()}
        return {**kept, "blind": True} if self.is_blind else kept

    @classmethod
    def from_json(cls, kept: Any) -> Unkept:
        """Parse the log's form. Damaged data gives an `is_blind` result, which supports no learning."""
        try:
            packed = base64.b64decode(kept["words"], validate=True)
            blind = bool(kept.get("blind", False))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls(is_blind=True)
        places = range(0, len(packed) - _BYTES + 1, _BYTES)
        return cls(frozenset(int.from_bytes(packed[at : at + _BYTES], "big") for at in places), blind)

    def without(self, words: Iterable[str]) -> Unkept:
        """Return a copy without these words."""
        return Unkept(self.hashes - {hash_of(word) for word in words}, self.is_blind)


def hash_of(word: str) -> int:
    """Return the hash of a word in its compared form."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) >> (32 - BITS)


def unkept_of(result: Any, kept: str) -> Unkept | None:
    """Return the words of a result that the logged text lacks, or None if it lacks none."""
    words: set[str] = set()
    is_blind = False
    known = forms_of(kept)
    for text in _strings(result):
        if text is None or _DATA.fullmatch(text):
            is_blind = True
            continue
        new = forms_of(text) - known
        # Keep no hashes of numbers beside a secret: with few digits they are easy to guess.
        has_secret = bool(new) and redact(text) != text
        words.update(word for word in new if _is_word(word, numbers=not has_secret))
    if len(words) > MOST_WORDS:
        return Unkept(is_blind=True)
    return Unkept(frozenset(map(hash_of, words)), is_blind) if words or is_blind else None


def known_among(words: AbstractSet[str], hashes: AbstractSet[int]) -> frozenset[str]:
    """Return the words whose hashes are in `hashes`."""
    return frozenset(word for word in words if hash_of(word) in hashes) if hashes else frozenset()


def read_all(kept: Mapping[str, Any]) -> dict[str, Unkept]:
    """Parse the logged hashes of a turn, by tool call."""
    return {call: Unkept.from_json(value) for call, value in kept.items()}


def _is_word(word: str, *, numbers: bool) -> bool:
    if word.isalpha():
        return len(word) <= _LONGEST_WORD
    return numbers and word.isdecimal() and len(word) <= _LONGEST_NUMBER


def _strings(value: Any) -> Iterator[str | None]:
    """Yield every string in a nested result; None for a part without words, such as an image."""
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping):
            if part.get("type") in {"image", "audio", "pdf", "document"}:
                yield None
            yield from (name for name in part if isinstance(name, str))
            left += part.values()
        elif isinstance(part, list | tuple):
            left += part
