"""Parse a search in natural language into an FTS5 expression and filters (pure). No input is an error.

Filters are part of the query: `type:PREFERENCE`, `since:2026-11-01`, `before:2026-12-01`, `session:ID`, `around:31`
(the conversation around turn 31), `project:web` (a folder's name or a whole key; `project:"/a/my web"` with spaces).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sprite.database.full_text import UNSPACED, Filters, phrase
from sprite.memory.recall.when import NO_TIME, When, when_asked
from sprite.memory.recall.word_forms import forms

#: Bounds the expression, whatever is pasted into a search.
MAX_TERMS = 32
MAX_TERM_CHARS = 64
#: Scripts without spaces are searched by character pairs: 32 would truncate a question in Chinese.
MAX_NEEDLES = 64
#: Only the beginning of a question, up to this length, is searched for a time.
MAX_TIMED_CHARS = 1000

_FILTER = re.compile(r'(?<!\S)(type|since|before|session|project|around):("[^"\n]+"(?!\S)|\S+)', re.IGNORECASE)
_WORD = re.compile(r"\w+")
_UNSPACED = re.compile(f"([{UNSPACED}]+)")

#: This many words of a sentence, each at most this many tokens from the next, identify the sentence.
NEAR_TERMS, NEAR_DISTANCE = 4, 6
#: Words without information for a search: the usual English function words and question words.
STOP_WORDS = frozenset(
    """a about after again all also am an and any are as at be because been before being but by can could did do
    does doing done down during each else ever every few for from further had has have having he her here hers him
    his how i if in into is it its itself just let like me might more most must my no nor not now of off on once only
    or other our out over own please same she should so some such tell than that the their them then there these they
    this those through to too under until up us very was we were what when where which while who whom why will with
    would you your""".split()
)

#: Words about a conversation and its speakers. They occur in questions on any subject.
ASKING_WORDS = frozenset(
    """chat chats conversation conversations describe described detail details discuss discussed discussion
    discussions earlier explain explained list listed mention mentioned mentioning mentions order previous previously
    provide provided recall remember said say says summarise summarize summary talk talked talking told user""".split()
)
#: "don't" leaves no search word; "Ada's" and "they've" leave the part before the apostrophe.
_CONTRACTED = re.compile(r"\b\w+n['\u2019]t\b|(?<=\w)['\u2019](?:s|ve|ll|re|d|m)\b", re.IGNORECASE)
#: The user's name in user.md. "The user is Dutch" is no name, "The user is Ana Lindqvist" is.
_NAME = r"[^\W\d_a-z][\w'\u2019-]*"
_CALLED = re.compile(
    rf"(?:\b[Uu]ser['\u2019]s(?: \w+)? name is|\b[Mm]y name is|\bName:) ({_NAME}(?: {_NAME})*)"
    rf"|\b[Uu]ser is ({_NAME}(?: {_NAME})+)"
)


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed search: `terms` in order, and the filters (times in Unix seconds).

    `also` are other spellings with the terms that they replace; `names` are the user's own.
    """

    terms: tuple[str, ...]
    types: tuple[str, ...] = ()
    since: float | None = None
    before: float | None = None
    session: str | None = None
    around: int | None = None
    when: When = NO_TIME
    also: tuple[tuple[str, str], ...] = ()
    names: frozenset[str] = field(default=frozenset(), compare=False)
    #: The project as typed, and the keys that it can mean (see `search`).
    project: str | None = None
    projects: tuple[str, ...] | None = None

    @property
    def filters(self) -> Filters:
        """Return the conditions that every hit must meet."""
        return Filters(self.since, self.before, self.session, self.types, self.projects)

    @property
    def needles(self) -> list[tuple[str, ...]]:
        """Return the FTS5 phrases for each word, the word itself first."""
        return [needle for needle, _ in self._looked_for]

    @property
    def asking(self) -> list[bool]:
        """Return for each needle whether it only refers to the conversation, not to the subject."""
        return [term in ASKING_WORDS or term in self.names for _, term in self._looked_for]

    @property
    def _looked_for(self) -> list[tuple[tuple[str, ...], str]]:
        """Return each needle with its term."""
        others: dict[str, tuple[str, ...]] = {}
        for term, other in self.also:
            others[term] = (*others.get(term, ()), phrase(other))
        return [(needle + others.get(term, ()), term) for term in self._named for needle in _needles(term)][
            :MAX_NEEDLES
        ]

    @property
    def _named(self) -> tuple[str, ...]:
        """Return the terms without time words such as "last week", which turns of that week do not contain."""
        return tuple(term for term in self.terms if term not in self.when.words)

    def unknown(self, having: Sequence[int]) -> list[str]:
        """Return the terms without a match; `having` is the number of turns for each needle."""
        known = {term for (_, term), turns in zip(self._looked_for, having, strict=True) if turns}
        return [term for term in self._named if term not in known]

    @property
    def empty(self) -> bool:
        """Return whether the query has neither words nor filters."""
        return self == Query(())


def own_names(profile: str) -> frozenset[str]:
    """Return the words of the user's name in user.md. They do not distinguish turns."""
    found = (match[1] or match[2] for match in _CALLED.finditer(profile))
    return frozenset(word.casefold() for name in found for word in _WORD.findall(name))


def parse_query(text: str, now: datetime | None = None, names: frozenset[str] = frozenset()) -> Query:
    """Parse a query; an invalid filter is searched for as words.

    `now` is as in `when_asked`, `names` are the words of the user's name.
    """
    types: list[str] = []
    since: float | None = None
    before: float | None = None
    session: str | None = None
    around: int | None = None
    project: str | None = None
    words: list[str] = []
    text = text.encode("utf-8", "replace").decode()  # SQLite cannot search for half of a surrogate pair
    end = 0
    for found in _FILTER.finditer(text):
        words.append(text[end : found.start()])
        end = found.end()
        name, value = found[1].lower(), found[2]
        if name == "type":
            types.append(value.upper())
        elif name == "session":
            session = value
        elif name == "project" and value.strip('"'):
            project = value.strip('"')
        elif name == "around" and value.lstrip("tT").isdecimal():
            around = int(value.lstrip("tT")[:15])
        elif name == "since" and (moment := _moment(value)) is not None:
            since = moment
        elif name == "before" and (moment := _moment(value)) is not None:
            before = moment
        else:
            words.append(found[0])
    words.append(text[end:])
    kinds = tuple(dict.fromkeys(types))[:MAX_TERMS]
    said = " ".join(words)
    terms = significant(_CONTRACTED.sub(" ", said)) or significant(said)
    when = NO_TIME if now is None else when_asked(said[:MAX_TIMED_CHARS], now)
    return Query(terms, kinds, since, before, session, around, when, names=names, project=project)


def significant(text: str, limit: int = MAX_TERMS) -> tuple[str, ...]:
    """Return the distinct search words of a text; all words if it has only function words."""
    words = list(dict.fromkeys(word.casefold()[:MAX_TERM_CHARS] for word in _WORD.findall(text)))
    return tuple(word for word in words if word not in STOP_WORDS)[:limit] or tuple(words[:limit])


def any_term(terms: Iterable[str]) -> str:
    """Return an FTS5 expression that matches any of the terms, quoted against syntax."""
    return " OR ".join(phrase(term) for term in terms)


def near_each_other(texts: Iterable[str]) -> str:
    """Return an FTS5 expression for rows that contain consecutive words of any of the texts."""
    groups: dict[str, None] = {}
    for text in texts:
        terms = significant(text)
        for start in range(0, len(terms) - NEAR_TERMS + 1, NEAR_TERMS // 2):
            near = " ".join(phrase(term) for term in terms[start : start + NEAR_TERMS])
            groups[f"NEAR({near}, {NEAR_DISTANCE})"] = None
    return " OR ".join(groups)


def _needles(term: str) -> Iterable[tuple[str, ...]]:
    for place, part in enumerate(_UNSPACED.split(term)):
        if place % 2:
            # Without spaces, word ends are unknown. Texts that share two neighbouring characters have about the same
            # subject.
            yield from ((phrase(part[at : at + 2]),) for at in range(max(1, len(part) - 1)))
        elif part:
            yield tuple(phrase(form) for form in (part, *forms(part)))


def _moment(value: str) -> float | None:
    """Parse a date or a date and time to Unix seconds; UTC by default."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
