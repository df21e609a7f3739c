"""Slips that a curator's model makes, put into recorded answers: the same ones every time (pure)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping

#: Every so many words of a quote, one is wrong; shorter quotes have none.
WORDS_PER_SLIP = 10
_QUOTE = re.compile(r'(?P<before>\| *")(?P<quote>[^\n]*)(?P<after>" *)$', re.MULTILINE)
#: The header of a whole file, or of edits to its lines.
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


_TURN = re.compile(r"\[t(\d+)\]")
_REFERENCE = re.compile(r"(?<=supersedes )L\d+(?:, L\d+)*|(?<=DONE )L\d+(?:, L\d+)*|(?<=\[)L\d+(?=\])")
_NUMBERED = re.compile(r"^((?:DELETE|REPLACE) )(\d+)", re.MULTILINE)
_TYPE = re.compile(r"^(?:PATTERN|CORRECTION|PREFERENCE|ACTION|TOOL_INSTALL)(?= \[)", re.MULTILINE)


def _next(found: re.Match[str]) -> str:
    return re.sub(r"\d+", lambda number: str(int(number[0]) + 1), found[0])


def turns_off(answer: str, _: random.Random) -> str:
    """Each turn's number is one too high."""
    return _TURN.sub(_next, answer)


def learnings_off(answer: str, _: random.Random) -> str:
    """Each learning's number is one too high."""
    return _REFERENCE.sub(_next, answer)


def lines_off(answer: str, _: random.Random) -> str:
    """Each line's number is one too high."""
    return _NUMBERED.sub(lambda found: f"{found[1]}{int(found[2]) + 1}", answer)


def all_facts(answer: str, _: random.Random) -> str:
    """Every learning is a FACT."""
    return _TYPE.sub("FACT", answer)


SLIPS: Mapping[str, Slip] = {
    "recorded": none,
    "full stops": full_stops,
    "wrong words": wrong_words,
    "a line lost": lost_line,
    "turns off": turns_off,
    "ids off": learnings_off,
    "lines off": lines_off,
    "all FACT": all_facts,
}


def seeded(name: str) -> Callable[[str, str], str] | None:
    """Return the slip of this name as a function of an answer and its turns, which seed it, or None for no slip."""
    return None if SLIPS[name] is none else lambda answer, turns: SLIPS[name](answer, random.Random(f"{name} {turns}"))
