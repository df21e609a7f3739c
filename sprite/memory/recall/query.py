"""A search in natural language -> FTS5 expression and filters (pure). Whatever is typed, it is never an error.

Filters stand inside the query: `type:PREFERENCE`, `since:2026-11-01`, `before:2026-12-01`, `session:ID`,
`around:31` (the conversation around turn 31), `project:web` (a folder's name, or a whole key; `project:"/a/my web"`
where it has spaces).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sprite.database.full_text import UNSPACED, Filters, phrase
from sprite.memory.recall.when import NO_TIME, When, when_asked
from sprite.memory.recall.word_forms import forms

#: The expression's length is bounded whatever is pasted into a search.
MAX_TERMS = 32
MAX_TERM_CHARS = 64
#: Where no spaces say where words end, pairs of signs are looked for: 32 would cut a question in Chinese off.
MAX_NEEDLES = 64
#: When a question is about is looked for so far into it.
MAX_TIMED_CHARS = 1000

_FILTER = re.compile(r'(?<!\S)(type|since|before|session|project|around):("[^"\n]+"(?!\S)|\S+)', re.IGNORECASE)
_WORD = re.compile(r"\w+")
_UNSPACED = re.compile(f"([{UNSPACED}]+)")

#: So many words of a sentence, each so many tokens from the next at most, are that sentence.
NEAR_TERMS, NEAR_DISTANCE = 4, 6
#: Words that say nothing about what is asked for (the usual English function words, and question words).
STOP_WORDS = frozenset(
    """a about after again all also am an and any are as at be because been before being but by can could did do
    does doing done down during each else ever every few for from further had has have having he her here hers him
    his how i if in into is it its itself just let like me might more most must my no nor not now of off on once only
    or other our out over own please same she should so some such tell than that the their them then there these they
    this those through to too under until up us very was we were what when where which while who whom why will with
    would you your""".split()
)

#: Words by which one asks about a talk and who talked: they stand in the question whatever it is about.
ASKING_WORDS = frozenset(
    """chat chats conversation conversations describe described detail details discuss discussed discussion
    discussions earlier explain explained list listed mention mentioned mentioning mentions order previous previously
    provide provided recall remember said say says summarise summarize summary talk talked talking told user""".split()
)
#: "don't" leaves nothing to look for, "Ada's" and "they've" leave what stands before.
_CONTRACTED = re.compile(r"\b\w+n['\u2019]t\b|(?<=\w)['\u2019](?:s|ve|ll|re|d|m)\b", re.IGNORECASE)
#: Where user.md says what the user is called. "The user is Dutch" is no name, "The user is Ana Lindqvist" is.
_NAME = r"[^\W\d_a-z][\w'\u2019-]*"
_CALLED = re.compile(
    rf"(?:\b[Uu]ser['\u2019]s(?: \w+)? name is|\b[Mm]y name is|\bName:) ({_NAME}(?: {_NAME})*)"
    rf"|\b[Uu]ser is ({_NAME}(?: {_NAME})+)"
)


@dataclass(frozen=True, slots=True)
class Query:
    """What is searched for: `terms` in their order, and the filters (times in Unix seconds).

    `also` are other spellings to look for, each with the term that it is near to; `names` are the person's own.
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
    #: As it was typed, and the keys that it stands for (see `search`).
    project: str | None = None
    projects: tuple[str, ...] | None = None

    @property
    def filters(self) -> Filters:
        """What a hit must be."""
        return Filters(self.since, self.before, self.session, self.types, self.projects)

    @property
    def needles(self) -> list[tuple[str, ...]]:
        """What to look for: for each word the FTS5 phrases that stand for it, the word itself first."""
        return [needle for needle, _ in self._looked_for]

    @property
    def asking(self) -> list[bool]:
        """For each of the needles whether it is a word of asking about a talk, not of what is asked about."""
        return [term in ASKING_WORDS or term in self.names for _, term in self._looked_for]

    @property
    def _looked_for(self) -> list[tuple[tuple[str, ...], str]]:
        """Each needle with the term it stands for."""
        others: dict[str, tuple[str, ...]] = {}
        for term, other in self.also:
            others[term] = (*others.get(term, ()), phrase(other))
        return [(needle + others.get(term, ()), term) for term in self._named for needle in _needles(term)][
            :MAX_NEEDLES
        ]

    @property
    def _named(self) -> tuple[str, ...]:
        """The terms without "last week" and the like, which turns of that week do not say."""
        return tuple(term for term in self.terms if term not in self.when.words)

    def unknown(self, having: Sequence[int]) -> list[str]:
        """The terms of which no needle stands in any turn; `having` is in how many turns each needle does."""
        known = {term for (_, term), turns in zip(self._looked_for, having, strict=True) if turns}
        return [term for term in self._named if term not in known]

    @property
    def empty(self) -> bool:
        """Whether it asks for nothing at all, neither by words nor by a filter."""
        return self == Query(())


def own_names(profile: str) -> frozenset[str]:
    """The words of the person's name, as far as user.md says it: whatever is asked is about them."""
    found = (match[1] or match[2] for match in _CALLED.finditer(profile))
    return frozenset(word.casefold() for name in found for word in _WORD.findall(name))


def parse_query(text: str, now: datetime | None = None, names: frozenset[str] = frozenset()) -> Query:
    """Reads a query; a filter that makes no sense is searched for as words.

    `now` is as in `when_asked`, `names` are the words of the person's own name.
    """
    types: list[str] = []
    since: float | None = None
    before: float | None = None
    session: str | None = None
    around: int | None = None
    project: str | None = None
    words: list[str] = []
    text = text.encode("utf-8", "replace").decode()  # half a surrogate pair is nothing that SQLite could look for
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
    """The words of a text worth searching for, each once; all of them where only function words are left."""
    words = list(dict.fromkeys(word.casefold()[:MAX_TERM_CHARS] for word in _WORD.findall(text)))
    return tuple(word for word in words if word not in STOP_WORDS)[:limit] or tuple(words[:limit])


def any_term(terms: Iterable[str]) -> str:
    """An FTS5 expression that matches any of the terms; quoted, so that nothing in them is syntax."""
    return " OR ".join(phrase(term) for term in terms)


def near_each_other(texts: Iterable[str]) -> str:
    """An FTS5 expression for rows that have words of any of the texts as they follow each other there."""
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
            # No spaces say where its words end: a text that shares two neighbouring characters is about the same.
            yield from ((phrase(part[at : at + 2]),) for at in range(max(1, len(part) - 1)))
        elif part:
            yield tuple(phrase(form) for form in (part, *forms(part)))


def _moment(value: str) -> float | None:
    """A date, or a date and time, as Unix seconds; UTC where it says nothing else."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
