"""Find where a text says a sentence: its words follow one another in it, apart from articles, copulas and pronouns."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sprite.memory.words import SPACELESS, plain, said

#: Start and end in a text.
Span = tuple[int, int]

#: Words, single characters of scripts without spaces, and signs that change a meaning: C++ is not C.
_TOKEN = re.compile(rf"(?P<word>[{SPACELESS}]|[^\W{SPACELESS}]+)|[.,:](?=\d)|[^\w\s.,:;!?'\"\u2018-\u201d()\[\]…`*]")
_ARTICLES = frozenset("a an the".split())
#: The words of the user, and of an agent that speaks to the user or about them.
_USER = frozenset("i me my we us our you your user".split())
_FILLERS = _ARTICLES | _USER | frozenset("is are am be s m re of to that he him his she her they them their".split())
#: The user may be the subject after these, too: "Lives in Lund and prefers tea".
_JOINS = frozenset("and but or und aber oder och et y".split())
#: A clause may begin after these. An apostrophe is none of them.
_PAUSE = re.compile(r"[.,:;!?()\[\]…\"“”`*\n]")
_SHORT = 3
#: Up to this many sentences, a text is first searched for the words of each.
_FEW = 20

_MARK = re.compile(r"\s*(?:[-*+•]\s+|[0-9]{1,3}[.)]\s+)?")
_SUBJECT = re.compile(r"(?:the\s+)?user(?:['’]s)?\s+", re.IGNORECASE)  # noqa: RUF001 - as people write it


def core(text: str) -> str:
    """Normalize a learning or line, without list mark, subject ("The user ..."), case and punctuation."""
    return said(_SUBJECT.sub("", _unmarked(text), count=1))


def _unmarked(text: str) -> str:
    return _MARK.sub("", text.strip(), count=1)


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence by the forms of its words.

    If it is about the user ("lives in Lund"), it is found at the start of a clause, after a word for the user, or after
    its own article (`lead`): "My sister lives in Lund" says something else.
    """

    forms: tuple[str, ...]
    lead: str = ""
    #: Whether it names its subject ("Bo lives in Lund"), so that it is also found elsewhere in a clause.
    names: bool = False


def statement(text: str) -> Statement | None:
    """Read a learning, a line or a quote. Return None for a text without words."""
    whole = _unmarked(text)
    left = _SUBJECT.sub("", whole, count=1)
    forms = tuple(form for form, _, _ in _tokens(left))
    if not any(form.isalnum() for form in forms):
        return None
    word = next(match[0].casefold() for match in _TOKEN.finditer(left) if match["word"])
    lead = word if word in _ARTICLES else ""
    return Statement(forms, lead, names=left == whole and word not in _FILLERS and not left[:1].islower())


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the form, start and end of each word and sign of a text, without fillers."""
    for match in _TOKEN.finditer(text):
        if form := _form(match[0]):
            yield form, match.start(), match.end()


@lru_cache(maxsize=20_000)
def _form(word: str) -> str:
    """Return a word in one form for singular and plural, or an empty string for a filler."""
    word = plain(word)
    if word in _FILLERS:
        return ""
    return word[:-1] if len(word) > _SHORT and word.endswith("s") and not word.endswith("ss") else word


class Statements:
    """Find sentences in texts by their rarest words."""

    def __init__(self, statements: Iterable[Statement | None]) -> None:
        self.all = list(dict.fromkeys(each for each in statements if each is not None))
        number = Counter(form for each in self.all for form in set(each.forms))
        #: The sentences with a word as their rarest one, and its place in them.
        self._with: defaultdict[str, list[tuple[int, Statement]]] = defaultdict(list)
        for each in self.all:
            rarest = min(each.forms, key=lambda form: (number[form], -len(form)))
            self._with[rarest].append((each.forms.index(rarest), each))

    def found(self, text: str) -> dict[Statement, list[Span]]:
        """Return the sentences that a text says, with their places."""
        found: dict[Statement, list[Span]] = {}
        if len(self.all) <= _FEW:
            # Most texts are spared the costly split into words.
            visible = plain(text)
            if not any(all(form in visible for form in each.forms) for each in self.all):
                return found
        tokens = list(_tokens(text))
        forms = tuple(form for form, _, _ in tokens)
        for place, form in enumerate(forms):
            for at, each in self._with.get(form, ()):
                first = place - at
                last = first + len(each.forms)
                if first >= 0 and forms[first:last] == each.forms and _says(each, text, tokens, first, last):
                    found.setdefault(each, []).append((tokens[first][1], tokens[last - 1][2]))
        return found

    def spans(self, text: str) -> list[Span]:
        """Return the places at which a text says one of the sentences."""
        return [span for spans in self.found(text).values() for span in spans]


def _says(each: Statement, text: str, tokens: Sequence[tuple[str, int, int]], first: int, last: int) -> bool:
    """Return whether the tokens from `first` to before `last` say a statement about the same subject."""
    start, end = tokens[first][1], tokens[last - 1][2]
    if last < len(tokens) and tokens[last][1] == end and not tokens[last][0].isalnum():
        # A sign that belongs to the last word: "C++", "4.5".
        return False
    if first == 0 or (each.names and not text[start].islower()):
        return True
    before, _, stop = tokens[first - 1]
    gap = text[stop:start]
    if not before.isalnum() or _PAUSE.search(gap) or (before in _JOINS and len(each.forms) > 1):
        return True
    words = {word.casefold() for word in re.findall(r"\w+", gap)}
    return not words.isdisjoint(_USER) or (bool(each.lead) and each.lead in words)


def without(spans: Iterable[Span], kept: Iterable[Span]) -> list[Span]:
    """Return the spans, sorted and joined, without the parts inside `kept` spans. An equal span keeps nothing."""
    kept = sorted(set(kept))
    left: list[Span] = []
    for span in sorted(set(spans)):
        start, end = span
        if any(k[0] <= start and end <= k[1] and k != span for k in kept):
            continue
        for k in kept:
            if k != span and k[0] < end and k[1] > start:
                left.append((start, k[0]))
                start = k[1]
        left.append((start, end))
    joined: list[Span] = []
    for start, end in sorted(span for span in left if span[0] < span[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
