"""What a curator's rewrite of a file may not do (pure): drop lines, touch pins, take in strangers' words.

The prompt asks for all of this; here it is made so, whatever the model answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from sprite.memory.words import RUN, Run, Text, content_words, run_words, runs, share

#: A rewrite may lose this part of a file's lines unexplained; more is taken for forgetfulness. One line may always go:
#: in a file of three, a quarter would be none.
MAX_DROPPED = 0.25
#: An old line lives on in a new one that has this part of its words: reworded, not dropped.
LIVES_ON = 0.6
#: A line is a stranger's if so many of its words come only from untrusted text.
MAX_FOREIGN = 1 / 3
#: A line rests on a text that has so many of its words.
RESTS_ON = 0.5
#: A text that has so many of a line's words says it, in whatever order.
SAYS_IT = 0.8

#: A mail or web address: where somebody else's stands in a line, the rest of the line does not excuse it.
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w|\b(?:https?://|www\.)[^\s<>\"')\]]*[\w/]", re.IGNORECASE)

PIN = "<!-- pin -->"
UNPIN = "<!-- /pin -->"


class Sources:
    """Whose words a file's new lines may rest on: `trusted` texts, and `foreign` ones that need the person's word.

    Words tell whose a line is however it is put, and runs of words tell it where each word for itself is anybody's.
    Words found in no text are the curator's own phrasing, and pass.
    """

    def __init__(self, trusted: Iterable[Text], foreign: Iterable[Text]) -> None:
        self._trusted = tuple(trusted)
        self._foreign = tuple(foreign)
        #: Every word that a stranger used.
        self.foreign = frozenset[str]().union(*(text.words for text in self._foreign))
        self._strange = self.foreign.difference(*(text.words for text in self._trusted))

    def own(self, words: AbstractSet[str]) -> bool:
        """Whether strangers' words make up too much of these."""
        return len(words & self._strange) > MAX_FOREIGN * len(words)

    def touch(self, words: AbstractSet[str]) -> bool:
        """Whether any of these is a stranger's alone."""
        return not words.isdisjoint(self._strange)

    def carry(self, line: str) -> bool:
        """Whether somebody trusted carries a line, in one sentence of theirs."""
        return rests_on(line, self._trusted)

    def gave_address(self, line: str) -> bool:
        """Whether a mail or web address in this line is a stranger's alone."""
        given = [found.casefold() for found in _ADDRESS.findall(line)]
        return any(_mentions(self._foreign, found) and not _mentions(self._trusted, found) for found in given)

    def say(self, text: str) -> bool:
        """Whether somebody trusted said this: then it does not matter any more who else did, and in the same words."""
        words = content_words(text)
        # A fragment is in everybody's mouth.
        return len(words) >= RUN and any(share(words, said.words) >= SAYS_IT for said in self._trusted)

    def copied_from(self, run: Run) -> Text | None:
        """The stranger who used words in this order, where no trusted text has them."""
        if not self.foreign.issuperset(run):
            return None
        stranger = next((text for text in self._foreign if text.words.issuperset(run) and run in text.runs), None)
        if any(text.words.issuperset(run) and run in text.runs for text in self._trusted):
            return None
        return stranger


# --- dropped lines ---


def dropped_lines(old: str, new: str, explained: Iterable[str]) -> list[str]:
    """Lines of the old file that are gone: in no form in the new one, nor superseded or completed (`explained`)."""
    remaining = Counter(_normal(line) for line in _lines(new))
    lost = []
    for line in _lines(old):
        if remaining[_normal(line)]:
            remaining[_normal(line)] -= 1
        else:
            lost.append(line)
    later = [content_words(line) for line in _lines(new)] + [content_words(text) for text in explained]
    return [line for line in lost if not any(_lives_on(content_words(line), words) for words in later)]


def drops_too_much(old: str, new: str, explained: Iterable[str]) -> str | None:
    """Why this rewrite loses too much, or None."""
    total = len(_lines(old))
    dropped = dropped_lines(old, new, explained)
    if len(dropped) <= max(1, MAX_DROPPED * total):
        return None
    return f"it drops {len(dropped)} of {total} lines without superseding or completing them"


def _lives_on(line: AbstractSet[str], other: AbstractSet[str]) -> bool:
    return bool(line) and share(line, other) >= LIVES_ON


def _lines(text: str) -> list[str]:
    """The lines that say something: headings and empty ones may come and go."""
    return [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]


def _normal(line: str) -> str:
    return " ".join(line.split())


# --- pins ---


def pinned_blocks(text: str) -> list[str]:
    """The person's blocks with their markers; one that is not closed reaches to the end."""
    blocks: list[list[str]] = []
    inside = False
    for line in text.split("\n"):
        if not inside and line.strip() == PIN:
            inside = True
            blocks.append([])
        if inside:
            blocks[-1].append(line)
            inside = line.strip() != UNPIN
    return ["\n".join(block) if block[-1].strip() == UNPIN else _closed(block) for block in blocks]


def _closed(block: list[str]) -> str:
    return "\n".join(block).rstrip("\n") + f"\n{UNPIN}"


def with_pins_of(old: str, new: str) -> str:
    """The new file with every pinned block of the old one as it was; pins of the curator's own are taken off.

    A block whose markers were kept stands where they stand; one that is gone comes to the end.
    """
    blocks = pinned_blocks(old)
    if not blocks and PIN not in new:
        return new
    lines: list[str] = []
    inside = False
    for line in new.rstrip("\n").split("\n"):
        if line.strip() == PIN and not inside:
            if blocks:
                lines += blocks.pop(0).split("\n")
                inside = True
            continue
        if line.strip() == UNPIN:
            inside = False
            continue
        if not inside:
            lines.append(line)
    for block in blocks:
        lines += ["", *block.split("\n")]
    return "\n".join(lines).strip("\n") + "\n"


# --- strangers' words ---


def without_foreign_lines(old: str, new: str, sources: Sources, *, personal: bool) -> tuple[str, list[str]]:
    """The new file without lines that no trusted text supports, and those lines.

    Lines the file already had are not asked again; where no stranger has spoken, none is asked. In a `personal` file
    a line with any word of a stranger's needs a sentence of the person's that carries it, so that a page cannot be
    reworded into it.
    """
    if not sources.foreign:
        return new, []
    lines = new.split("\n")
    asked = new_lines(old, new)
    refused = {at for at, line in asked.items() if _foreign(line, sources, personal=personal)}
    refused |= _copied(asked, sources)
    kept = [line for at, line in enumerate(lines) if at not in refused]
    return "\n".join(kept).rstrip("\n") + "\n", [asked[at].strip() for at in sorted(refused)]


def new_lines(old: str, new: str) -> dict[int, str]:
    """The lines that the old file did not have and that say something, by their place in the new one."""
    known = {_normal(line) for line in old.split("\n")}
    return {at: line for at, line in enumerate(new.split("\n")) if _normal(line) not in known and content_words(line)}


def rests_on(line: str, texts: Iterable[Text]) -> bool:
    """Whether one of these texts alone carries a line."""
    words = content_words(line)
    return any(share(words, text.words) >= RESTS_ON for text in texts)


def _foreign(line: str, sources: Sources, *, personal: bool) -> bool:
    words = content_words(line)
    if sources.own(words) or sources.gave_address(line):
        return True
    return personal and sources.touch(words) and not sources.carry(line)


def _mentions(texts: Iterable[Text], address: str) -> bool:
    return any(address in text.text.casefold() for text in texts)


def _copied(asked: Mapping[int, str], sources: Sources) -> set[int]:
    """Lines that, together, repeat a stranger's sentence: however it was cut into lines."""
    words = [(word, at) for at, line in asked.items() for word in run_words(line)]
    found: set[int] = set()
    for start, run in enumerate(runs([word for word, _ in words])):
        if sources.copied_from(run) is not None:
            found.update(at for _, at in words[start : start + RUN])
    return {at for at in found if not sources.say(asked[at])}
