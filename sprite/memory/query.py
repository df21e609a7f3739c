"""Parse a search in natural language into an FTS5 expression and filters (pure). No input is an error.

Filters are part of the query: `type:PREFERENCE`, `since:2026-11-01`, `before:2026-12-01`, `session:ID`, `around:31`
(the conversation around turn 31), `project:web` (a folder's name or a whole key; `project:"/a/my web"` with spaces).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache

from sprite.storage.full_text import UNSPACED, Filters, phrase

_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = rf"({'|'.join(_MONTHS)})"
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"

_ISO = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_DAY_MONTH = re.compile(rf"\b{_DAY}(?: of)? {_MONTH}\b(?:,? (\d{{4}}))?", re.IGNORECASE)
_MONTH_DAY = re.compile(rf"\b{_MONTH} {_DAY}\b(?:,? (\d{{4}}))?", re.IGNORECASE)
#: "may" and "march" are months only after such a word.
_IN_MONTH = re.compile(rf"\b(?:in|during|of|since|last|this) {_MONTH}\b(?:,? (\d{{4}}))?", re.IGNORECASE)
_IN_YEAR = re.compile(r"\b(?:in|during|of) (\d{4})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class When:
    """A period that a question asks about, from `since` up to `before` (Unix seconds), if it names one."""

    since: float | None = None
    before: float | None = None


NO_TIME = When()


def when_asked(text: str, now: datetime) -> When:
    """Parse the date, month or year in a question; `now` has the user's zone, or none for the computer's."""
    try:
        start, stop = next(_periods(text, now))
        return When(start.timestamp(), stop.timestamp())
    # No period, the 31st of February, a thousand years ago, or the year 1, which is out of range in some zones.
    except (StopIteration, ValueError, OverflowError):
        return NO_TIME


def _periods(text: str, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield all periods that a question names, the most exact first."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if found := _ISO.search(text):
        yield _day(today, int(found[1]), int(found[2]), int(found[3]))
    if found := _DAY_MONTH.search(text):
        yield _dated(today, found[3], _month(found[2]), int(found[1]))
    if found := _MONTH_DAY.search(text):
        yield _dated(today, found[3], _month(found[1]), int(found[2]))
    if found := _IN_MONTH.search(text):
        month = _month(found[1])
        year = int(found[2]) if found[2] else today.year - (month > today.month)
        start = today.replace(year=year, month=month, day=1)
        yield start, (start + timedelta(days=32)).replace(day=1)
    if found := _IN_YEAR.search(text):
        start = today.replace(year=int(found[1]), month=1, day=1)
        yield start, start.replace(year=start.year + 1)


def _day(today: datetime, year: int, month: int, day: int) -> tuple[datetime, datetime]:
    start = today.replace(year=year, month=month, day=day)
    return start, start + timedelta(days=1)


def _dated(today: datetime, year: str | None, month: int, day: int) -> tuple[datetime, datetime]:
    """Return a day of a month, in the last twelve months if no year is named."""
    return _day(today, int(year) if year else today.year - ((month, day) > (today.month, today.day)), month, day)


def _month(name: str) -> int:
    return _MONTHS.index(name.casefold()) + 1


_IRREGULAR = """become became|begin began begun|bend bent|bite bit bitten|blow blew blown|break broke broken|
bring brought|build built|burn burnt|buy bought|catch caught|choose chose chosen|come came|deal dealt|dig dug|
draw drew drawn|dream dreamt|drink drank drunk|drive drove driven|eat ate eaten|fall fell fallen|feed fed|feel felt|
fight fought|find found|fly flew flown|forget forgot forgotten|forgive forgave forgiven|freeze froze frozen|
get got gotten|give gave given|go went gone|grow grew grown|hang hung|hear heard|hide hid hidden|hold held|keep kept|
know knew known|lay laid|lead led|learn learnt|leave left|lend lent|lie lay lain|light lit|lose lost|make made|
mean meant|meet met|pay paid|ride rode ridden|ring rang rung|rise rose risen|run ran|say said|see saw seen|
seek sought|sell sold|send sent|shake shook shaken|shine shone|shoot shot|show shown|shrink shrank|sing sang sung|
sink sank sunk|sit sat|sleep slept|speak spoke spoken|spend spent|stand stood|steal stole stolen|stick stuck|
strike struck|swear swore sworn|sweep swept|swim swam swum|swing swung|take took taken|teach taught|tear tore torn|
tell told|think thought|throw threw thrown|understand understood|wake woke woken|wear wore worn|win won|
write wrote written|child children|man men|woman women|person people|foot feet|tooth teeth|mouse mice|wife wives|
knife knives|leaf leaves|shelf shelves|half halves|thief thieves|wolf wolves"""
#: Short and long forms of words from home and from software development.
_SHORT = """mother mom mum mama|father dad papa|grandmother grandma|grandfather grandpa|child kid|
photo photograph picture pic|favorite favourite fave|business biz|television tv|bicycle bike|movie film|doctor doc|
information info|application app|telephone phone|refrigerator fridge|veterinarian vet|advertisement ad|
examination exam|laboratory lab|gymnasium gym|vegetable veggie|brother bro|sister sis|husband hubby|
birthday bday|university uni|airplane plane|repository repo|configuration config|database db|documentation docs|
directory folder dir|environment env|message msg|package pkg|authentication auth|administrator admin|
javascript js|typescript ts|kubernetes k8s|postgresql postgres"""
_ORDINAL = re.compile(r"(\d{1,2})(?:st|nd|rd|th)")
_SUFFIXES = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
_LAST_DAY = 31
#: The same words recur: a fold looks up each a thousand times.
_REMEMBERED = 16_384


@lru_cache(_REMEMBERED)
def forms(word: str) -> tuple[str, ...]:
    """Return the other forms of a lower-case word: none for most words."""
    if ordinal := _ORDINAL.fullmatch(word):
        return (ordinal[1],)
    if word.isascii() and word.isdecimal() and 1 <= int(word) <= _LAST_DAY:
        return (f"{int(word)}{_SUFFIXES.get(int(word), 'th')}",)
    groups = _groups()
    return next((groups[base] for base in _bases(word) if base in groups), ())


def _bases(word: str) -> list[str]:
    """Return the possible bases of a regular form: buying, buys -> buy; making -> make; running -> run."""
    bases = [word]
    if word.endswith("s"):
        bases += [word[:-1], word[:-2]]
    if word.endswith("ing"):
        bases += [word[:-3], f"{word[:-3]}e", word[:-4]]
    return bases


@cache
def _groups() -> dict[str, tuple[str, ...]]:
    groups: dict[str, list[str]] = {}
    for line in f"{_IRREGULAR}|{_SHORT}".split("|"):
        words = line.split()
        for word in words:
            others = groups.setdefault(word, [])
            others += [other for other in words if other != word and other not in others]
    return {word: tuple(others) for word, others in groups.items()}


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
    """A parsed search: `terms` in order, the filters (times in Unix seconds), and the words of the user's name."""

    terms: tuple[str, ...]
    types: tuple[str, ...] = ()
    since: float | None = None
    before: float | None = None
    session: str | None = None
    around: int | None = None
    when: When = NO_TIME
    names: frozenset[str] = field(default=frozenset(), compare=False)
    #: The project as typed, and the keys that it can mean (see `search`).
    project: str | None = None
    projects: tuple[str, ...] | None = None
    #: The question without its filters.
    text: str = field(default="", compare=False)

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
        """Return for each of `needles` whether its word is not the subject: it asks, or is the user's name."""
        return [term in ASKING_WORDS or term in self.names for _, term in self._looked_for]

    @property
    def _looked_for(self) -> list[tuple[tuple[str, ...], str]]:
        """Return each search word with its FTS5 phrases."""
        return [(needle, term) for term in self.terms for needle in _needles(term)][:MAX_NEEDLES]

    @property
    def empty(self) -> bool:
        """Return whether the query has neither words nor filters."""
        return self == Query(())


def own_names(profile: str) -> frozenset[str]:
    """Return the words of the user's name in user.md. They do not distinguish turns."""
    found = (match[1] or match[2] for match in _CALLED.finditer(profile))
    return frozenset(word.casefold() for name in found for word in _WORD.findall(name))


def parse_query(text: str, now: datetime | None = None, names: frozenset[str] = frozenset()) -> Query:
    """Parse a query; an invalid filter is searched for as words. `now` is as in `when_asked`, `names` as in `Query`."""
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
        elif name == "since" and (at := moment(value)) is not None:
            since = at
        elif name == "before" and (at := moment(value)) is not None:
            before = at
        else:
            words.append(found[0])
    words.append(text[end:])
    kinds = tuple(dict.fromkeys(types))[:MAX_TERMS]
    said = " ".join(words)
    terms = significant(_CONTRACTED.sub(" ", said)) or significant(said)
    when = NO_TIME if now is None else when_asked(said[:MAX_TIMED_CHARS], now)
    return Query(
        terms, kinds, since, before, session, around, when, names=names, project=project, text=" ".join(said.split())
    )


def significant(text: str, limit: int = MAX_TERMS) -> tuple[str, ...]:
    """Return at most `limit` distinct search words of a text; all its words if it has only function words."""
    words = list(dict.fromkeys(word.casefold()[:MAX_TERM_CHARS] for word in _WORD.findall(text)))
    return tuple(word for word in words if word not in STOP_WORDS)[:limit] or tuple(words[:limit])


def any_term(terms: Iterable[str]) -> str:
    """Return an FTS5 expression that matches any of the terms, quoted against syntax."""
    return " OR ".join(phrase(term) for term in terms)


def _needles(term: str) -> Iterable[tuple[str, ...]]:
    for place, part in enumerate(_UNSPACED.split(term)):
        if place % 2:
            # Without spaces, word ends are unknown. Texts that share two neighbouring characters have about the same
            # subject.
            yield from ((phrase(part[at : at + 2]),) for at in range(max(1, len(part) - 1)))
        elif part:
            yield tuple(phrase(form) for form in (part, *forms(part)))


def moment(value: str) -> float | None:
    """Parse a date or a date and time to Unix seconds, or return None. The default zone is UTC."""
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
