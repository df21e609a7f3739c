"""Whether words of the upstream's would show the bridge's key, in whichever of the usual encodings.

Pure. What is looked for is not the key as it is written but any dozen of its letters in a row, letter case and
everything between letters aside; and it is looked for in the words as they are and in what they say when escapes,
percent signs, entities, base64 and hexadecimal digits in them are read.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import zlib
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import unquote_to_bytes

#: Fewer letters of a key open nothing; its public beginning (`sk-ant-`) is shorter.
_LETTERS = 12
#: An escaped JSON in a JSON in an address: as deep as anybody nests.
_LAYERS = 4
_MAX_READINGS = 64

#: How gzip and zlib begin, and zlib's way to say: either.
_PACKED = (b"\x1f", b"\x78")
_ANY_HEADER = 47
_MAX_UNPACKED = 1 << 20

_NOT_LETTERS = re.compile(rb"[^0-9a-z]+")
_ESCAPED = re.compile(rb"\\+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([0-7]{3}))")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{12,}")
_SPACE = re.compile(rb"\s+|\\[nr]|%0[ad]", re.IGNORECASE)
_HEX = re.compile(rb"(?:[0-9a-fA-F]{2}[\s:,-]?){12,}|(?:0?\\?x[0-9a-fA-F]{2}[\s,;]*){12,}")


class KeyTraces:
    """Knows the `secrets`; a secret too short to be recognised is looked for as a whole."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        self._pieces: set[bytes] = set()
        self._samples: set[bytes] = set()
        for secret in secrets:
            letters = _letters((secret or "").encode())
            if letters:
                size = min(_LETTERS, len(letters))
                self._pieces |= {letters[at : at + size] for at in range(len(letters) - size + 1)}
                half = size // 2 or 1
                # Every piece has one of these in it.
                self._samples |= {letters[at : at + half] for at in range(0, len(letters) - half + 1, half)}

    def plainly_in(self, words: bytes) -> bool:
        """Whether the words show a key as they are written."""
        letters = _letters(words)
        return any(one in letters for one in self._samples) and any(piece in letters for piece in self._pieces)

    def in_any(self, words: bytes) -> bool:
        """Whether the words show a key in one of the encodings."""
        if not self._pieces:
            return False
        seen: set[bytes] = set()
        layer = {words}
        for _ in range(_LAYERS):
            if any(self.plainly_in(reading) for reading in layer):
                return True
            seen |= layer
            layer = {read for reading in layer for read in _readings(reading)} - seen
            if len(layer) > _MAX_READINGS:
                # Nobody writes an error so.
                return True
        return any(self.plainly_in(reading) for reading in layer)


def _letters(words: bytes) -> bytes:
    return _NOT_LETTERS.sub(b"", words.lower())


def _readings(words: bytes) -> Iterable[bytes]:
    """What the words say when one kind of encoding in them is read; the words themselves where there is none."""
    yield _ESCAPED.sub(_unescaped, words)
    yield unquote_to_bytes(words)
    if b"&" in words:
        yield html.unescape(words.decode("latin-1")).encode("latin-1", "replace")
    if words[:1] in _PACKED:
        with suppress(zlib.error):
            yield zlib.decompressobj(_ANY_HEADER).decompress(words, _MAX_UNPACKED)
    if b"\0" in words:  # two or four bytes a letter
        yield words.replace(b"\0", b"")
    packed = [text for run in _BASE64.findall(_SPACE.sub(b"", words)) for text in _from_base64(run)]
    if packed:
        yield b"\n".join(packed)
    digits = [re.sub(rb"0?\\?x|[^0-9a-fA-F]", b"", run) for run in _HEX.findall(words)]
    if digits:
        yield b"\n".join(binascii.unhexlify(run[at : at + (len(run) - at) // 2 * 2]) for run in digits for at in (0, 1))


def _unescaped(found: re.Match[bytes]) -> bytes:
    long, short, octal = found.groups()
    code = int(octal, 8) if octal else int(long or short, 16)
    return bytes([code]) if code < 256 else b"?"  # noqa: PLR2004 - a key has letters of one byte


def _from_base64(run: bytes) -> Iterable[bytes]:
    """The run read from each of four places: what stands before the packed words may look like a part of them."""
    plain = run.translate(bytes.maketrans(b"-_", b"+/"))
    for at in range(4):
        part = plain[at:]
        if len(part) >= _LETTERS:
            yield base64.b64decode(part[: len(part) // 4 * 4] or b"")
