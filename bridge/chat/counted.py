"""Numbers with nouns, and sizes, for people."""

_UNIT = 1024


def counted(number: int, noun: str) -> str:
    """Return `1 turn`, `2 turns`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def sized(size: int) -> str:
    """Return `512 B`, `12 KB`, `3.4 GB` for a number of bytes."""
    value = float(size)
    for unit in ("B", "KB", "MB"):
        if value < _UNIT:
            return f"{value:.0f} {unit}"
        value /= _UNIT
    return f"{value:.1f} GB"
