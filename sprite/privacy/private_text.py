"""Private words of a person since this process began, removed from all text that is stored.

`redaction` needs a secret's shape or place, and the agent repeats it without either ("I used hunter2"). So any three
consecutive private words are recognised, and a password by itself. They are in memory only.
"""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock

import msgspec

from sprite.common.tasks import LARGE_BYTES
from sprite.privacy.redaction import PRIVATE, private_spans, redactions, secrets_in, without_private
from sprite.privacy.secret_formats import Rule
from sprite.privacy.secret_values import read
from sprite.protocol.pasted import Edit, Marked

#: Shorter words occur in too many texts by chance.
_SHORTEST = 6
#: Three consecutive words with at least this many letters rarely occur by chance ("I want to" has seven).
_SHORTEST_RUN = 10
_RUN = 3
#: The oldest are evicted: each word costs every text a search, and runs take memory.
_MOST_WORDS = 200
_MOST_RUNS = 20_000
_WORD = re.compile(r"\w+")
_TAG = re.compile(r"\A<[^>]*>|<[^>]*>\Z")
#: A word that does not occur by chance mixes letters with digits or signs.
_UNSPACED = re.compile(r"\S{6,}")
_PLAIN_WORD = re.compile(r"[^\s\"'`,;()<>]{6,}")
_LAST_LETTER, _LAST_SIGN = re.compile(r".*[A-Za-z]"), re.compile(r".*[\d@#$%^&*_-](?=.)")

_Run = tuple[str, ...]


class PrivateText:
    """Remember private words of missions, and remove them from every text that is stored."""

    def __init__(self) -> None:
        self._words: OrderedDict[str, str] = OrderedDict()
        self._runs: OrderedDict[_Run, None] = OrderedDict()
        #: Grows with each new private word. Text redacted at another version may have to be redacted again.
        self.version = 0
        #: The newest long text: the version, and the text before and after.
        self._last: tuple[int, str, str] | None = None
        self._one_at_a_time = Lock()

    def hear(self, mission: str, *, by_person: bool = True) -> None:
        """Remember the words of a mission that must not be stored; only a person's mission has private passages."""
        for start, end in private_spans(mission) if by_person else ():
            self._hear_private(_TAG.sub("", mission[start:end]).strip())
        said = without_private(mission) if by_person else mission
        for start, end, kind in secrets_in(said):
            if said[start:end] in _made_words(said[start:end]):
                self._remember(said[start:end], f"[redacted:{kind}]")

    def person(self, message: str) -> str:
        """Return a person's message without secrets and private passages."""
        return self.marked(Marked(message)).text

    def others(self, text: str) -> str:
        """Return other text without secrets and without the person's private words."""
        # Only the person can mark text as private. Otherwise a web page could have its text read but not logged.
        if len(text) <= LARGE_BYTES:
            return self.marked(Marked(text), by_person=False).text
        # The hooks, the stream and the feed redact a long reply in threads, at the same time. On the event loop, which
        # must not wait for them, nothing is that long.
        with self._one_at_a_time:
            if self._last is None or self._last[:2] != (self.version, text):
                self._last = self.version, text, self.marked(Marked(text), by_person=False).text
            return self._last[2]

    def marked(self, message: Marked, *, by_person: bool = True) -> Marked:
        """Return a message in the form to store, with its spans; see `person` and `others`."""
        if by_person:
            message = message.replaced([(start, end, PRIVATE) for start, end in private_spans(message.text)])
        # A long text is processed in a thread, while another mission may add words.
        for words, mark in tuple(self._words.items()):
            if words in message.text:
                found = re.finditer(re.escape(words), message.text)
                message = message.replaced([(*match.span(), mark) for match in found])
        if self._runs:
            message = message.replaced(self._edits_of_runs(message.text))
        return message.replaced(redactions(message.text))

    def _hear_private(self, passage: str) -> None:
        self.version += 1
        for run, _, _ in _runs(passage):
            if sum(map(len, run)) >= _SHORTEST_RUN:
                self._runs[run] = None
        while len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)
        if len(_WORD.findall(passage)) < _RUN:
            self._remember(passage, PRIVATE)
        for word in _made_words(passage):
            self._remember(word.rstrip(".:!?"), PRIVATE)

    def _remember(self, words: str, mark: str) -> None:
        if len(words) >= _SHORTEST and words not in self._words:
            self._words[words] = mark
            self.version += 1
        if len(self._words) > _MOST_WORDS:
            self._words.popitem(last=False)

    def _edits_of_runs(self, text: str) -> list[Edit]:
        edits: list[Edit] = []
        for run, start, end in _runs(text):
            if run not in self._runs:
                continue
            # A run that overlaps the one before it is part of the same passage.
            if edits and start <= edits[-1][1]:
                edits[-1] = (edits[-1][0], max(edits[-1][1], end), PRIVATE)
            else:
                edits.append((start, end, PRIVATE))
        return edits


def _made_words(text: str) -> Iterator[str]:
    """Yield words that do not occur by chance, in linear time."""
    for unspaced in _UNSPACED.finditer(text):
        letter, sign = _LAST_LETTER.match(unspaced[0]), _LAST_SIGN.match(unspaced[0])
        if letter is None or sign is None:
            continue
        # A letter and a sign follow the beginning of the word.
        last = min(letter.end(), sign.end())
        yield from (word[0] for word in _PLAIN_WORD.finditer(unspaced[0]) if word.start() < last)


def _runs(text: str) -> list[tuple[_Run, int, int]]:
    """Return every three consecutive words in lower case, with their positions."""
    words = list(_WORD.finditer(text))
    return [
        (tuple(word[0].lower() for word in words[i : i + _RUN]), words[i].start(), words[i + _RUN - 1].end())
        for i in range(len(words) - _RUN + 1)
    ]


#: Shown, quoted or pasted text is not the person's statement: code, quoted mail, and text in quotation marks.
_SHOWN = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]{1,400}`|^[ \t]*>.*$"
    r"|\"[^\"\n]{1,400}\"|\u201c[^\u201c\u201d\n]{1,400}\u201d|«[^«»\n]{1,400}»|„[^„“”\n]{1,400}[“”]"
    r"|(?<!\w)'[^'\n]{1,400}'(?!\w)",
    re.DOTALL | re.MULTILINE,
)
_CURLED = str.maketrans("\u2018\u2019", "''")
#: A longer message is a paste with text around it: only its first and its last paragraph are the person's.
_LONGEST_SAID = 1500
_PARAGRAPH = re.compile(r"\n\s*\n")
#: Every such wish contains one of these in lower case, so most messages are decided here.
_MARKERS = re.compile(
    r"off[ -]the[ -]record|remember|mem|m\u00e9mo|record|notes|\blogs?\b|merk|ged\u00e4chtnis|reti?en|esto\b"
    r"|lembre|guarde|ricord|onthoud|geheugen"
)


def is_off_record(message: str) -> bool:
    """Return whether the person asks not to remember this message and its results."""
    said = message.lower().translate(_CURLED)
    if not _MARKERS.search(said):
        return False
    said = _SHOWN.sub(" … ", said)
    if len(said) <= _LONGEST_SAID:
        return _wish().search(said) is not None
    paragraphs = _PARAGRAPH.split(said.strip())
    return any(_wish().search(end) for end in (paragraphs[0][:_LONGEST_SAID], paragraphs[-1][-_LONGEST_SAID:]))


class WishFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of wishes.toml: patterns for requests not to remember, and the values of their placeholders."""

    start: str
    end: str
    memory: str
    wish: tuple[Rule, ...]


@functools.cache
def _wish() -> re.Pattern[str]:
    rules = read("wishes.toml", WishFile)
    return compiled_wishes(rules, rules.wish)


def compiled_wishes(file: WishFile, rules: tuple[Rule, ...]) -> re.Pattern[str]:
    """Return one pattern that matches any of these wishes of a file."""
    pattern = "|".join(f"(?:{rule.regex})" for rule in rules)
    for name in ("start", "end", "memory"):
        pattern = pattern.replace(f"{{{name}}}", getattr(file, name))
    return re.compile(pattern)
