"""The person's files on the wire (pure): folders and names."""

from __future__ import annotations

from sprite.protocol.archive import is_plain
from sprite.protocol.shapes import FILE_FOLDERS

#: Limit for a name in messages.
MAX_SHOWN_CHARS = 200
#: Python's characters for invalid bytes (PEP 383), and their distance from the wire's characters.
_FIRST_ODD, _LAST_ODD = 0xDC80, 0xDCFF
_APART = 0xF780 - _FIRST_ODD
_TO_WIRE = {odd: odd + _APART for odd in range(_FIRST_ODD, _LAST_ODD + 1)}
_TO_DISK = {wired: odd for odd, wired in _TO_WIRE.items()}


def on_wire(path: str) -> str:
    """Return a path, as Python decodes it from the disk, in characters that UTF-8 can encode."""
    return path.translate(_TO_WIRE)


def on_disk(path: str) -> tuple[str, ...]:
    """Return the possible names on disk of a path from the wire, likeliest first: both readings are valid."""
    odd = path.translate(_TO_DISK)
    return (path,) if odd == path else (path, odd)


def is_below_folders(path: str) -> bool:
    """Return whether a path names something in one of the folders, without parts that lead elsewhere."""
    folder, slash, _ = path.partition("/")
    return folder in FILE_FOLDERS and bool(slash) and is_plain(path)


#: The pictures that the model's API takes, by the first bytes of a file.
PICTURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}


def picture_kind(data: bytes) -> str | None:
    """Return the media type of image bytes, or None if the model does not accept such an image."""
    return next((kind for beginning, kind in PICTURES.items() if data.startswith(beginning)), None)


def shown(path: str, most: int = MAX_SHOWN_CHARS) -> str:
    """Return a path for display: one line, no invisible characters, at most about `most` characters."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]}…{text[-half:]}"
    return text


_UNIT = 1024


def size_in_words(size: int) -> str:
    """Return a size as text: 12 bytes, 3 kB, 1.2 MB, in units of 1024."""
    if size < _UNIT:
        return f"{size} byte{'' if size == 1 else 's'}"
    value = float(size)
    for unit in ("kB", "MB", "GB"):
        value /= _UNIT
        if value < _UNIT or unit == "GB":
            break
    return f"{value:.1f} {unit}" if value < 10 and unit != "kB" else f"{value:.0f} {unit}"  # noqa: PLR2004 - one digit
