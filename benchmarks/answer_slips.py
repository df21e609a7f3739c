"""Slips that a curator's model makes, put into recorded answers: the same ones every time (pure)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping

#: Every so many words of a quote, one is wrong; shorter quotes have none.
WORDS_PER_SLIP = 10
_QUOTE = re.compile(r'(?P<before>\| *")(?P<quote>[^\n]*)(?P<after>" *)$', re.MULTILINE)
#: What follows is about a file: a whole one, or edits to its lines.
_FILE_HEADER = re.compile(r"[A-Z]+_MD_[A-Z]+:\s*")

#: Puts a slip into an answer's text.
Slip = Callable[[str, random.Random], str]


def none(answer: str, _: random.Random) -> str:
    """As recorded."""
    return answer


def full_stops(answer: str, _: random.Random) -> str:
    """A full stop is added to each quote."""
    return _QUOTE.sub(r"\g<before>\g<quote>.\g<after>", answer)


def wrong_words(answer: str, rng: random.Random) -> str:
    """One word in ten of each quote is another."""

    def spoil(found: re.Match[str]) -> str:
        words = found["quote"].split(" ")
        for place in rng.sample(range(len(words)), len(words) // WORDS_PER_SLIP):
            words[place] = words[place][::-1] if words[place][::-1] != words[place] else "something"
        return f"{found['before']}{' '.join(words)}{found['after']}"

    return _QUOTE.sub(spoil, answer)


def lost_line(answer: str, rng: random.Random) -> str:
    """One line that belongs to a file is left out: of a whole file a line, of edits an edit."""
    lines = answer.split("\n")
    places = _file_lines(lines)
    if places:
        del lines[rng.choice(places)]
    return "\n".join(lines)


def _file_lines(lines: list[str]) -> list[int]:
    """Where lines of files stand that say something: no header, no heading, no fence."""
    headers = [place for place, line in enumerate(lines) if _FILE_HEADER.fullmatch(line)]
    if not headers:
        return []
    return [
        place
        for place, line in enumerate(lines)
        if place > headers[0] and place not in headers and line.strip() and not line.startswith(("#", "*", "`"))
    ]


SLIPS: Mapping[str, Slip] = {
    "recorded": none,
    "full stops": full_stops,
    "wrong words": wrong_words,
    "a line lost": lost_line,
}


def seeded(name: str) -> Callable[[str, str], str]:
    """The slip of this name as a function of an answer and the turns it is about, which seed it."""
    return lambda answer, turns: SLIPS[name](answer, random.Random(f"{name} {turns}"))
