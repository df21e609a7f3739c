"""What the model saw of tools' results and the log does not keep: hashes of its words (pure).

Results are cut and redacted before they are written down, and images have no words at all. Whose a sentence is can
still be told: the words of the whole result are kept as hashes of BITS bits, too short to give a word back, long
enough to know one again.
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

#: A word is taken for another one once in 500 comparisons with a page of 2,000 words; a list of ten million passwords
#: fits each hash ten times.
BITS = 20
_BYTES = 3
#: More different words than any result has that a model is shown (the CLI cuts at some 30,000 characters).
MOST_WORDS = 20_000
#: A longer word is data.
_LONGEST_WORD = 24
#: A number this long may be looked for in the files (a count of tests, an amount); a longer one identifies somebody.
_LONGEST_NUMBER = 6
#: Bytes as text: an image, a document.
_DATA = re.compile(r"[A-Za-z0-9+/_=\r\n-]{400,}")


@dataclass(frozen=True, slots=True)
class Unkept:
    """Of one result: the hashes of words that are not written down; `is_blind`: part of it had no words to read."""

    hashes: frozenset[int] = frozenset()
    is_blind: bool = False

    def to_json(self) -> dict[str, Any]:
        """The form in which the log has it."""
        packed = b"".join(number.to_bytes(_BYTES, "big") for number in sorted(self.hashes))
        kept: dict[str, Any] = {"words": base64.b64encode(packed).decode()}
        return {**kept, "blind": True} if self.is_blind else kept

    @classmethod
    def from_json(cls, kept: Any) -> Unkept:
        """Reads it; what is damaged counts as not readable, which trusts nothing."""
        try:
            packed = base64.b64decode(kept["words"], validate=True)
            blind = bool(kept.get("blind", False))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls(is_blind=True)
        places = range(0, len(packed) - _BYTES + 1, _BYTES)
        return cls(frozenset(int.from_bytes(packed[at : at + _BYTES], "big") for at in places), blind)

    def without(self, words: Iterable[str]) -> Unkept:
        """The same without some words."""
        return Unkept(self.hashes - {hash_of(word) for word in words}, self.is_blind)


def hash_of(word: str) -> int:
    """The hash of a word in the form in which words are compared."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) >> (32 - BITS)


def unkept_of(result: Any, kept: str) -> Unkept | None:
    """What of a result is not in the text that is kept of it, or None if all of it is."""
    words: set[str] = set()
    is_blind = False
    known = forms_of(kept)
    for text in _strings(result):
        if text is None or _DATA.fullmatch(text):
            is_blind = True
            continue
        new = forms_of(text) - known
        # Beside a secret no number is kept, not even so: few digits are soon tried.
        has_secret = bool(new) and redact(text) != text
        words.update(word for word in new if _is_word(word, numbers=not has_secret))
    if len(words) > MOST_WORDS:
        return Unkept(is_blind=True)
    return Unkept(frozenset(map(hash_of, words)), is_blind) if words or is_blind else None


def known_among(words: AbstractSet[str], hashes: AbstractSet[int]) -> frozenset[str]:
    """Those of these words whose hashes are among the others."""
    return frozenset(word for word in words if hash_of(word) in hashes) if hashes else frozenset()


def read_all(kept: Mapping[str, Any]) -> dict[str, Unkept]:
    """What a turn did not keep, by tool call."""
    return {call: Unkept.from_json(value) for call, value in kept.items()}


def _is_word(word: str, *, numbers: bool) -> bool:
    if word.isalpha():
        return len(word) <= _LONGEST_WORD
    return numbers and word.isdecimal() and len(word) <= _LONGEST_NUMBER


def _strings(value: Any) -> Iterator[str | None]:
    """Every text in a result, however deep; None for a part that has no words, such as an image."""
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
