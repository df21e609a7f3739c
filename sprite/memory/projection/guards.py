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

from sprite.memory.projection.disguises import told_apart
from sprite.memory.projection.given import ADDRESS
from sprite.memory.sections import PIN, UNPIN
from sprite.memory.unkept import known_among
from sprite.memory.words import RUN, Run, Text, content_words, is_spaceless, plain, run_words, runs, share, words_in

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
