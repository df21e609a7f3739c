"""What a person has said in confidence since this process began, and how it is kept out of what is written down.

`redaction` knows a secret by its shape or its place. The agent repeats what it was told without either ("I used
hunter2", "so you leave the company in May"): what was said in private is known here by its words, three in a row,
and a password by itself. All of it is in memory only; after a restart shape and place are left.
"""

from __future__ import annotations

import re
from collections import OrderedDict

from sprite.privacy.redaction import (
    PRIVATE,
    private_spans,
    redact,
    secrets_in,
    without_private,
)

#: Shorter words stand in too many texts by chance.
_SHORTEST = 6
#: So many letters have three words in a row that nobody says by chance ("I want to" has seven).
_SHORTEST_RUN = 10
_RUN = 3
#: The oldest are forgotten: each word costs every text a search, and runs take room.
_MOST_WORDS = 200
_MOST_RUNS = 20_000
_WORD = re.compile(r"\w+")
_TAG = re.compile(r"\A<[^>]*>|<[^>]*>\Z")
#: A word that nobody uses by chance: letters with digits or signs among them.
_MADE_WORD = re.compile(r"(?=\S*[A-Za-z])(?=\S*[\d@#$%^&*_-]\S)[^\s\"'`,;()<>]{6,}")

_Run = tuple[str, ...]


class Confidences:
    """What missions said in private: remembered as it is heard, and taken out of every text that is written down."""

    def __init__(self) -> None:
        self._words: OrderedDict[str, str] = OrderedDict()
        self._runs: OrderedDict[_Run, None] = OrderedDict()
        #: Counts what was heard: what was made discreet under another number may have to be made so again.
        self.version = 0

    def hear(self, mission: str, *, by_person: bool = True) -> None:
        """Remembers what of a mission must not be written down wherever it turns up again.

        One that is not `by_person` has secrets like any other, and nothing of it is private.
        """
        for start, end in private_spans(mission) if by_person else ():
            self._hear_private(_TAG.sub("", mission[start:end]).strip())
        said = without_private(mission) if by_person else mission
        for start, end, kind in secrets_in(said):
            if _MADE_WORD.fullmatch(said, start, end):
                self._remember(said[start:end], f"[redacted:{kind}]")

    def person(self, message: str) -> str:
        """A person's message without secrets and without what it says in private."""
        return self.others(without_private(message))

    def others(self, text: str) -> str:
        """Anybody else's text without secrets and without what the person said in private.

        Only the person says what is private: a page that could would have its words read and not written down.
        """
        # A long text is read in a thread, while another mission may be heard.
        for words, mark in tuple(self._words.items()):
            if words in text:
                text = text.replace(words, mark)
        return redact(self._without_runs(text) if self._runs else text)

    def _hear_private(self, passage: str) -> None:
        self.version += 1
        for run, _, _ in _runs(passage):
            if sum(map(len, run)) >= _SHORTEST_RUN:
                self._runs[run] = None
        while len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)
        if len(_WORD.findall(passage)) < _RUN:
            self._remember(passage, PRIVATE)
        for word in _MADE_WORD.finditer(passage):
            self._remember(word[0].rstrip(".:!?"), PRIVATE)

    def _remember(self, words: str, mark: str) -> None:
        if len(words) >= _SHORTEST and words not in self._words:
            self._words[words] = mark
            self.version += 1
        if len(self._words) > _MOST_WORDS:
            self._words.popitem(last=False)

    def _without_runs(self, text: str) -> str:
        parts: list[str] = []
        at = 0
        for run, start, end in _runs(text):
            if run not in self._runs:
                continue
            # A run that overlaps the one before it is part of the same passage.
            if not parts or start > at:
                parts += [text[at:start], PRIVATE]
            at = max(at, end)
        return "".join([*parts, text[at:]]) if parts else text


def _runs(text: str) -> list[tuple[_Run, int, int]]:
    """Every three words in a row, in lower case, and where they stand."""
    words = list(_WORD.finditer(text))
    return [
        (tuple(word[0].lower() for word in words[i : i + _RUN]), words[i].start(), words[i + _RUN - 1].end())
        for i in range(len(words) - _RUN + 1)
    ]
