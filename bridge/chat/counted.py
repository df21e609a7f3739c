"""Numbers with their nouns, as people write them."""


def counted(number: int, noun: str) -> str:
    """Returns `1 turn`, `2 turns`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
