"""The person's folders, and their files' names on the wire (pure).

A file's name on disk is bytes. The wire is UTF-8, so a name that is none has its odd bytes there as the private-use
characters U+F780 to U+F7FF, one each (as Cygwin does it); every other name is on the wire what it is on disk.
"""

from __future__ import annotations

#: The folders whose files are the person's: listed, shown, downloaded and deleted.
FILE_FOLDERS = ("documents", "artifacts", "ocr", "extractions")

#: Of a name, so much is shown.
MAX_SHOWN_CHARS = 200
#: What Python makes of an odd byte (PEP 383), and how far the wire's character for it is from that.
_FIRST_ODD, _LAST_ODD = 0xDC80, 0xDCFF
_APART = 0xF780 - _FIRST_ODD
_TO_WIRE = {odd: odd + _APART for odd in range(_FIRST_ODD, _LAST_ODD + 1)}
_TO_DISK = {wired: odd for odd, wired in _TO_WIRE.items()}


def on_wire(path: str) -> str:
    """A path as Python has it from the disk, in characters that UTF-8 has."""
    return path.translate(_TO_WIRE)


def on_disk(path: str) -> tuple[str, ...]:
    """What a path from the wire may be called on disk, the likeliest first: it may hold such a character itself."""
    odd = path.translate(_TO_DISK)
    return (path,) if odd == path else (path, odd)


def is_below_folders(path: str) -> bool:
    """Whether a path names something in one of the folders, by its own parts and none that lead elsewhere."""
    folder, *parts = path.split("/")
    return (
        folder in FILE_FOLDERS
        and parts != []
        and all(part not in {"", ".", ".."} and "\0" not in part for part in parts)
    )


def shown(path: str, most: int = MAX_SHOWN_CHARS) -> str:
    """A path as it may stand in a text: on one line, without characters that cannot be seen, `most` of the others."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]}…{text[-half:]}"
    return text
