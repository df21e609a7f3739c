"""What a curator's rewrite of a file may not do (pure): drop lines, touch pins, take in strangers' words.

The prompt asks for all of this; here it is made so, whatever the model answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import pairwise

from sprite.capture.truncated_hashes import known_among
from sprite.capture.truncated_hashes import known_among as hashed_among
from sprite.curation.provenance.vocabulary import SAME, told_apart
from sprite.memory.sections import PIN, UNPIN
from sprite.memory.words import RUN, Run, Text, content_words, is_spaceless, plain, run_words, runs, share, words_in

ADDRESS = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]*\w|\b(?:https?://|www\.)[^\s<>\"')\]]*[\w/]", re.IGNORECASE)
_NUMBER = re.compile(r"\d[\d.,:'\u2019/\u00a0]*\d|\d")
GROUPED = re.compile(r"(?:\+?\d{1,4}|[A-Z]{2}\d{2})(?:[ -]?[A-Z0-9]{2,}){2,}")
DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_CLOCK = re.compile(r"\b([01]?\d|2[0-4])[:.h]([0-5]\d)\b")
#: A shorter one is a number like others.
_ACCOUNT_SIGNS = 7
#: Up to here people count by themselves.
_COUNTED = 100
#: So many digits are read as a number; of thousands, Python reads none.
_SHORT = 3
#: A number that is said not to be it harms nobody.
NEGATED = re.compile(r"\b(?:not|nicht|no|pas|niet|instead of|statt|rather than)\s+(?:\w+\s+)?\d[\d.,]*", re.IGNORECASE)
#: What tells that a date was meant that has to be worked out.
DATED = re.compile(
    r"\b(?:today|tomorrow|tonight|yesterday|next|this|last|week|month|year|mon|tue|wed|thu|fri|sat|sun|\w+days?|heute|"
    r"morgen|gestern|nächste\w*|woche|monat|jahr|\w+tags?|demain|hier|semaine|mois|lundi|mardi|mercredi|jeudi|vendredi|"
    r"samedi|dimanche|mañana|hoy|semana|mes|lunes|martes|miércoles|jueves|viernes|sábado|domingo|volgende|"
    r"vandaag|\w+dag)\b",
    re.IGNORECASE,
)


_NAME_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
#: Fewer letters are a form or a unit ("KE-0412", "mm").
_NAME_LETTERS = 3
_TITLES = frozenset("mrs miss herr frau mme madame monsieur prof señor señora mevrouw meneer".split())
#: What people say for parts of a hundred, of an hour, of a month.
_PARTS_OF = {
    "quarter": ("25", "15", "4"), "viertel": ("25", "15"), "half": ("50", "30"), "halb": ("30",), "hälfte": ("50",),
    "moitié": ("50",), "mitad": ("50",), "helft": ("50",), "third": ("33", "3"), "drittel": ("33", "3"),
    "end": ("28", "29", "30", "31"), "ende": ("28", "29", "30", "31"), "fin": ("28", "29", "30", "31"),
    "einde": ("28", "29", "30", "31"), "final": ("28", "29", "30", "31"), "double": ("2",), "doppelt": ("2",),
}  # fmt: skip
#: German and Dutch say the ones first: neunundzwanzig, negenentwintig.
_ONES = {
    "ein": 1, "een": 1, "zwei": 2, "twee": 2, "drei": 3, "drie": 3, "vier": 4, "fünf": 5, "vijf": 5, "sechs": 6,
    "zes": 6, "sieben": 7, "zeven": 7, "acht": 8, "neun": 9, "negen": 9,
}  # fmt: skip
_COMPOUND = re.compile(
    rf"({'|'.join(_ONES)})(?:und|en|ën)(zwanzig|dreißig|vierzig|fünfzig|sechzig|siebzig|achtzig|neunzig|twintig|"
    r"dertig|veertig|vijftig|zestig|zeventig|tachtig|negentig)"
)
_HALF_A_DAY = 12
_HOURS = 24


class Given:
    """A text in which names, numbers and addresses are looked for; it is taken apart when it is asked for each kind."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.as_written = " ".join(texts)

    @cached_property
    def text(self) -> str:
        """All of it in lower case."""
        return self.as_written.casefold()

    @cached_property
    def signs(self) -> str:
        """Its letters and digits alone: people group accounts as they like."""
        return "".join(filter(str.isalnum, self.text))

    @cached_property
    def numbers(self) -> frozenset[str]:
        """Its numbers, and those that its words and times stand for."""
        return numbers_in(self.text)


class WorkWord:
    """What may be named in lines about the work: what people said, the agent did, and tools showed here.

    `unseen`: hashes of words in results of commands here that are not written down.
    """

    def __init__(self, given: Given, unseen: AbstractSet[int]) -> None:
        self._given = given
        self._unseen = unseen

    def lacks(self, line: str, old: str = "") -> str | None:
        """Why a line names what nobody named, or None; what the `old` file has is named."""
        if (what := exchanged_in(line, self._given)) is not None and exchanged_in(line, Given([old])) is not None:
            return f"nobody gave {what}"
        # Days and hours are worked out, and small numbers counted.
        rest = _CLOCK.sub(" ", without_given(without_given(DATE.sub(" ", line), self._given.text), old))
        for number in sorted(numbers_in(rest, as_written=True)):
            is_small = number.isdecimal() and len(number) <= _SHORT and int(number) <= _COUNTED
            if not is_small and number not in self._given.numbers and not hashed_among({number}, self._unseen):
                return f"nobody gave the number {number}"
        return None


def without_given(line: str, text: str) -> str:
    """A line without the accounts in it, and without numbers that stand in the text, in lower case, as they do here."""
    rest = GROUPED.sub(" ", line)
    return _NUMBER.sub(lambda found: " " if _stands_in(found[0], text) else found[0], rest)


def _stands_in(number: str, text: str) -> bool:
    return re.search(rf"(?<!\d){re.escape(number)}(?!\d)", text) is not None


def exchanged_in(line: str, given: Given) -> str | None:
    """An address or an account in a line that was not given."""
    for address in ADDRESS.findall(line):
        if address.casefold() not in given.text:
            return f"the address {address}"
    for account in GROUPED.findall(DATE.sub(" ", line)):
        plain = "".join(filter(str.isalnum, account.casefold()))
        if len(plain) >= _ACCOUNT_SIGNS and any(sign.isdigit() for sign in plain) and plain not in given.signs:
            return f"the number {account}"
    return None


def names_in(line: str) -> list[str]:
    """Words with a capital that do not merely begin a sentence."""
    found: list[str] = []
    body = re.sub(r"^[\s\-*+#>]*(?:[^:]{1,24}:\s)?", "", line)
    for sentence in re.split(r"(?<=[.!?:;(])\s+", body):
        words = _NAME_WORD.findall(sentence)
        found += [word for word in words[1:] if word[0].isupper() and _is_name(word)]
    return [re.sub(r"['\u2019]s$", "", name) for name in found]


def _is_name(word: str) -> bool:
    has_digits = any(sign.isdigit() for sign in word)
    known = word.casefold() in SAME or word.casefold() in _TITLES
    # "YYYY" is a form.
    is_form = len(set(word)) < _NAME_LETTERS
    return word[0].isupper() and not (has_digits or known or is_form) and len(word) >= _NAME_LETTERS


def numbers_in(text: str, *, as_written: bool = False) -> frozenset[str]:
    """The numbers of a text in one form; unless `as_written`, also those that its words and times stand for."""
    found: set[str] = set()
    for hour, minute in _CLOCK.findall(text):
        found |= {_trimmed(hour), _trimmed(minute)}
    for number in _NUMBER.findall(_CLOCK.sub(" ", text) if as_written else text):
        plain = re.sub(r"[.,'\u2019\u00a0](?=\d{3}(?!\d))", "", number)
        parts = [part for part in re.split(r"[.,:/]", plain) if part]
        found.add(_trimmed(plain.replace(",", ".")))
        if not as_written:
            found.update(_trimmed(part) for part in (*parts, *re.split(r"[.,:/'\u2019\u00a0]", number)) if part)
    if as_written:
        return frozenset(found)
    words = [word.casefold() for word in _NAME_WORD.findall(text)]
    spelled = [SAME[word] for word in words if SAME.get(word, "").isdigit()]
    found.update(spelled)
    found.update(number for word in words for number in _PARTS_OF.get(word, ()))
    found.update(str(_ONES[ones] + int(SAME[tens])) for ones, tens in _COMPOUND.findall(text.casefold()))
    for tens, ones in pairwise(spelled):
        found.update({str(int(tens) + int(ones)), str(int(tens) * int(ones))})
    for word in re.findall(r"\b(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)-\w+", text, re.IGNORECASE):
        tens, ones = word.casefold().split("-", 1)
        found.add(str(int(SAME[tens]) + int(SAME.get(ones, "0") if SAME.get(ones, "").isdigit() else 0)))
    # "Half past seven", "halb acht", "7 pm".
    hours = {int(number) for number in found if number.isdecimal() and len(number) <= _SHORT and int(number) <= _HOURS}
    hours |= {hour - 1 for hour in hours}
    found.update(map(str, hours), (str(hour + _HALF_A_DAY) for hour in hours if hour <= _HALF_A_DAY))
    found.update({"0", "00", "15", "30", "45"} if hours else ())
    found.update(str(12 * hour) for hour in hours if "dozen" in words or "dutzend" in words)
    return frozenset(found)


def _trimmed(number: str) -> str:
    whole, point, rest = number.strip(".:/").partition(".")
    whole = whole.lstrip("0") or "0"
    rest = rest.rstrip("0")
    return f"{whole}.{rest}" if point and rest else whole


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

#: So many words of a refused line are named.
_MOST_LISTED = 10

#: A path, a package, a version: words with signs between them and no space. Its classes are possessive, so that no text
#: takes long; its group is not, since Python before 3.11.5 matches those wrongly (CPython gh-106052).
_BOUND = re.compile(r"(?<!\w)[~.]{0,3}/?\w++(?:[-/._:=@+~]++\w++)+/?")
_WORD = re.compile(r"\w")
_PART = re.compile(r"[^\W_]+")
#: So many words a name has that is no path.
_LONGEST_NAME = 4


class Work:
    """A text of the agent's work: its own words (`is_own`), or what a tool showed it."""

    def __init__(self, text: Text, *, is_own: bool) -> None:
        self.text = text
        self.is_own = is_own

    @cached_property
    def names(self) -> frozenset[str]:
        """Paths, packages and the like that stand in it."""
        return frozenset(_names(self.text.text))

    @cached_property
    def prose(self) -> Text:
        """Its sentences without names: a path has many words and says nothing."""
        return Text(_without(self.names, self.text.text))


class Sources:
    """Whose words a file's new lines may rest on: `trusted` texts, and `foreign` ones that need the person's word.

    Words tell whose a line is however it is put, and runs of words tell it where each word for itself is anybody's.
    Words found in no text are the curator's own phrasing, and pass. The agent's `work`, in its order, is between the
    two: what tools showed may be told in the curator's words (versions, paths, errors), but no sentence of theirs
    may be copied, since anybody may have written it; one that the agent wrote first is its own, read again.
    `sentences` are the person's. `own_words` are words that the agent used before any stranger did, and `unseen` the
    hashes of strangers' words that are not written down.
    """

    def __init__(
        self,
        trusted: Iterable[Text],
        foreign: Iterable[Text],
        work: Iterable[Work] = (),
        *,
        own_words: AbstractSet[str] = frozenset(),
        unseen: AbstractSet[int] = frozenset(),
        sentences: Iterable[Text] = (),
    ) -> None:
        self._trusted = tuple(trusted)
        self._foreign = tuple(foreign)
        self._work = tuple(work)
        shown = words_in(work.text for work in self._work if not work.is_own)
        #: Every word that a stranger used.
        self.foreign = words_in(self._foreign) | shown
        # Scripts without spaces have no runs by which a sentence would be known: there the words tell.
        strange = words_in(self._foreign) | {word for word in shown if is_spaceless(word)}
        self._vouched = words_in(self._trusted) | own_words
        self._strange = strange - self._vouched
        self._unseen = unseen
        self._sentences = tuple(sentences)

    def own(self, words: AbstractSet[str]) -> bool:
        """Whether strangers' words make up too much of these."""
        return len(self.strange(words)) > MAX_FOREIGN * len(words)

    def strange(self, words: AbstractSet[str]) -> frozenset[str]:
        """Those of these words that are a stranger's alone."""
        unseen = known_among(frozenset(words) - self._vouched, self._unseen)
        return self._strange.intersection(words) | unseen

    def strangers_address(self, line: str) -> str | None:
        """A mail or web address in this line that is a stranger's alone."""
        given = [found.casefold() for found in ADDRESS.findall(line)]
        return next((address for address in given if self._is_strangers(address)), None)

    def _is_strangers(self, address: str) -> bool:
        if any(_mentions(text, address) for text in self._trusted):
            return False
        first = next((work for work in self._work if _mentions(work.text, address)), None)
        shown = first is not None and not first.is_own
        return shown or any(_mentions(text, address) for text in self._foreign)

    def say(self, text: str) -> bool:
        """Whether somebody trusted said this: then it does not matter any more who else did, and in the same words."""
        words = content_words(text)
        # A fragment is in everybody's mouth.
        return len(words) >= RUN and any(share(words, said.words) >= SAYS_IT for said in self._trusted)

    def copied_from(self, run: Run) -> Text | None:
        """The stranger who used words in this order, where no trusted text has them."""
        if not self.foreign.issuperset(run):
            return None
        stranger = next((text for text in self._foreign if _has(text, run)), None)
        return stranger if stranger is not None and not self._is_trusted(run) else None

    def shown(self, run: Run) -> bool:
        """Whether a tool showed words in this order before the agent itself or anybody trusted used them."""
        if not self.foreign.issuperset(run):
            return False
        first = next((work for work in self._work if _has(work.prose, run)), None)
        return first is not None and not first.is_own and not self._is_trusted(run)

    def without_names(self, line: str) -> str:
        """A line without the paths and packages that stand so in what tools showed."""
        return _without(self._names, line)

    def _is_trusted(self, run: Run) -> bool:
        # Who condenses a sentence puts its words in another order, and adds one.
        said = any(len(text.words.intersection(run)) >= RUN - 1 for text in self._sentences)
        return said or any(_has(text, run) for text in self._trusted)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset[str]().union(*(work.names for work in self._work))


def repeats(told: str, shown: str) -> bool:
    """Whether a sentence was copied from what a tool showed."""
    work = Work(Text(shown), is_own=False)
    return not work.prose.runs.isdisjoint(runs(run_words(_without(work.names, told))))


def _names(text: str) -> Iterator[str]:
    """Words that signs bind together, unless it is a sentence in disguise."""
    for found in _BOUND.findall(plain(text)):
        if "/" in found or len(_PART.findall(found)) <= _LONGEST_NAME:
            yield found


def _without(names: AbstractSet[str], text: str) -> str:
    return _BOUND.sub(lambda found: " " if found[0] in names else found[0], plain(text))


def _mentions(text: Text, address: str) -> bool:
    return address in text.text.casefold()


def _has(text: Text, run: Run) -> bool:
    return text.words.issuperset(run) and run in text.runs


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


def may_drop(old: str) -> float:
    """How many lines of this file a rewrite may lose unexplained."""
    return max(1, MAX_DROPPED * len(_lines(old)))


def lines_to_put_back(
    old: str, new: str, retired: Iterable[str], explained: AbstractSet[str], refused: Iterable[str]
) -> list[str]:
    """Lines of the old file that a rewrite may not lose.

    All that are gone without a reason if those are too many, and otherwise those whose new wording was refused.
    `retired` is what was superseded or completed, `explained` the old lines for whose removal there is a reason.
    """
    reasons = {_normal(line) for line in explained}
    lost = [line for line in dropped_lines(old, new, retired) if _normal(line) not in reasons]
    if len(lost) > may_drop(old):
        return lost
    wordings = [content_words(line) for line in refused]
    return [line for line in lost if any(_lives_on(content_words(line), words) for words in wordings)]


def put_back(old: str, new: str, lost: Iterable[str]) -> str:
    """The new file with these lines of the old one at their place: behind what they stood behind."""
    before, after = old.split("\n"), new.split("\n")
    blocks = SequenceMatcher(
        None, [*map(_normal, before)], [*map(_normal, after)], autojunk=False
    ).get_matching_blocks()
    place_of = {block.a + step: block.b + step for block in blocks for step in range(block.size)}
    wanted = Counter(lost)
    behind: dict[int, list[str]] = {}
    last = -1
    for at, line in enumerate(before):
        if at in place_of:
            last = place_of[at] if line.strip() else last
        elif wanted[line]:
            wanted[line] -= 1
            behind.setdefault(_outside_pins(after, last), []).append(line)
    lines = [*behind.get(-1, ())]
    for at, line in enumerate(after):
        lines += [line, *behind.get(at, ())]
    return "\n".join(lines)


def _outside_pins(lines: Sequence[str], at: int) -> int:
    """This place, or if it is inside a block of the person's, the end of that block."""
    inside = False
    for place, line in enumerate(lines if at >= 0 else ()):
        inside = line.strip() != UNPIN if inside else line.strip() == PIN
        if place >= at and not inside:
            return place
    return at


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


@dataclass(frozen=True, slots=True)
class Refused:
    """A line that may not enter a file, and why, in words for who wrote it."""

    line: str
    reason: str


def without_foreign_lines(
    old: str,
    new: str,
    sources: Sources,
    lacks: Callable[[str], str | None],
    carries: Callable[[str], bool] | None,
) -> tuple[str, list[Refused]]:
    """Return the new file without lines that no trusted text supports, and those lines.

    Lines that the file already had are not asked again. `lacks` says what else a line lacks, if anything. The file
    about the person has `carries`: whether their word carries a line, which may then repeat others' words.
    """
    found = new_lines(old, new)
    asked = {at: told_apart(line) for at, line in found.items()}
    lines = {at: run_words(line) for at, line in asked.items()}
    told = {at: run_words(sources.without_names(line)) for at, line in asked.items()}
    copied = [*_copied(lines, lambda run: sources.copied_from(run) is not None), *_copied(told, sources.shown)]
    reasons = {at: f"it repeats word for word: {run}" for at, run in copied if not sources.say(asked[at])}
    if carries is not None:
        reasons = {at: why for at, why in reasons.items() if not carries(found[at])}
    else:
        reasons |= {at: why for at, line in asked.items() if (why := _foreign(line, sources))}
    reasons = {at: why for at, line in found.items() if (why := lacks(line))} | reasons
    kept = [line for at, line in enumerate(new.split("\n")) if at not in reasons]
    refused = [Refused(found[at].strip(), reasons[at]) for at in sorted(reasons)]
    return "\n".join(kept).rstrip("\n") + "\n", refused


def new_lines(old: str, new: str) -> dict[int, str]:
    """The lines that the old file did not have and that say something, by their place in the new one."""
    known = {_normal(line) for line in old.split("\n")}
    return {at: line for at, line in enumerate(new.split("\n")) if _normal(line) not in known and _WORD.search(line)}


def rests_on(line: str, texts: Iterable[Text]) -> bool:
    """Whether one of these texts alone carries a line."""
    words = content_words(line)
    return any(share(words, text.words) >= RESTS_ON for text in texts)


def _foreign(line: str, sources: Sources) -> str | None:
    """Why a line is a stranger's, or None."""
    words = content_words(line)
    if sources.own(words):
        return f"nobody but others said {_listed(sources.strange(words))}"
    if (address := sources.strangers_address(line)) is not None:
        return f"nobody but others gave the address {address}"
    return None


def _listed(words: AbstractSet[str]) -> str:
    return ", ".join([*sorted(words)[:_MOST_LISTED], *(["…"] if len(words) > _MOST_LISTED else [])])


def _copied(lines: Mapping[int, Sequence[str]], is_strangers: Callable[[Run], bool]) -> Iterator[tuple[int, str]]:
    """Lines that, together, repeat a stranger's sentence, however it was cut into lines, and words that tell it."""
    words = [(word, at) for at, line in lines.items() for word in line]
    for start, run in enumerate(runs([word for word, _ in words])):
        if is_strangers(run):
            yield from ((at, " ".join(run)) for at in sorted({at for _, at in words[start : start + RUN]}))
