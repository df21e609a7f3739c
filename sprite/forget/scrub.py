"""Remove forgotten words from lines, texts, JSON values and curator answers (pure)."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from sprite.curation.answer import read_learning
from sprite.curation.answer_files import read_header
from sprite.memory.action_rows import Added, Changed, Known, Noted, Resolved, Updated, read_record, write_record
from sprite.memory.answers import read_answer, write_answer
from sprite.memory.apply import MADE_IDS
from sprite.memory.words import FORGOTTEN, content_words, said, share

#: Share of common words, in either direction, from which a text is about a learning.
ABOUT_SHARE = 0.6
#: Share of a learning's words from which a text states it.
SAYS_SHARE = 0.8
#: Below this share of its words in a line, the line does not state a learning.
_CLOSE = 0.5
#: A learning of one word ("Ada.") is too short to protect a text.
_SPARED_WORDS = 2
#: Learnings of a group that are compared before all others.
_FEW = 4
_Words = frozenset[str]
#: Size, number of rarer words, and whether it is a quote.
_Group = tuple[int, int, bool]


@dataclass(frozen=True, slots=True)
class Said:
    """A learning as text: its content and its quote."""

    content: str
    quote: str = ""


class Spared:
    """An index of the remaining learnings by their words.

    Sets that overlap enough share one of their rarest words ("prefix filtering", Chaudhuri et al., ICDE 2006). Only
    those sets are compared, however many contain the common words.
    """

    def __init__(self, learnings: Iterable[Said] = ()) -> None:
        self._cores: set[str] = set()
        #: The words of each content and each quote; True for a quote.
        sets: list[tuple[_Words, bool]] = []
        self.contents: list[str] = []
        for learning in learnings:
            self._cores.add(core(learning.content))
            self.contents.append(learning.content)
            for text, is_quote in ((learning.content, False), (learning.quote, True)):
                if len(words := content_words(text)) >= _SPARED_WORDS:
                    sets.append((words, is_quote))
        self._number_with = Counter(word for words, _ in sets for word in words)
        #: The sets with a word, by their size, the number of rarer words in them, and whether they are quotes.
        self._with: defaultdict[str, defaultdict[_Group, list[_Words]]] = defaultdict(lambda: defaultdict(list))
        for words, is_quote in sets:
            for place, word in enumerate(self._rarest_first(words)):
                self._with[word][len(words), place, is_quote].append(words)

    def _rarest_first(self, words: _Words) -> list[str]:
        return sorted(words, key=lambda word: (self._number_with[word], word))

    def says(self, text: str) -> bool:
        """Return whether a text equals one of the learnings."""
        return core(text) in self._cores

    def is_said_in(self, words: _Words) -> bool:
        """Return whether a text with these words states one of the learnings."""
        return any(
            len(words & other) >= SAYS_SHARE * len(other)
            for (_, _, is_quote), others in self._near(words, 1.0)
            if not is_quote
            for other in others
        )

    def kept_in(
        self, words: _Words, rest: _Words, close: float, *, of: _Words, is_gone: Callable[[_Words], bool]
    ) -> set[str]:
        """Return the words of each content and quote that a text states. Stop when these have all words `of` the text.

        A content also counts if it is closer to the text than `close`, or contains all of `rest`: the words of the text
        that no forgotten learning has. A quote that `is_gone` does not count.
        """
        kept: set[str] = set()
        for (size, _, is_quote), others in self._near(words, close):
            # Many learnings of one form have the same words in common with a text: the first few often suffice.
            parts = (set(map(words.intersection, part)) for part in (others[:_FEW], others[_FEW:]))
            for both in chain.from_iterable(parts):
                common = len(both)
                is_close = not is_quote and common > close * (size + len(words) - common)
                if both <= kept or not (common >= SAYS_SHARE * size or is_close):
                    continue
                if not is_quote or not all(is_gone(other) for other in others if words & other == both):
                    kept |= both
                    if kept >= of:
                        return kept
        if rest:
            rarest = min(rest, key=lambda word: self._number_with[word])
            for (_, _, is_quote), others in self._with.get(rarest, _NOWHERE).items():
                for other in () if is_quote else others:
                    if other >= rest and len(words & other) >= _CLOSE * len(other):
                        kept |= words & other
        return kept

    def _near(self, words: _Words, close: float) -> Iterator[tuple[_Group, list[_Words]]]:
        """Yield groups with all candidates that a text may state, or that may be closer to it than `close`."""
        for at, word in enumerate(self._rarest_first(words)):
            for group, others in self._with.get(word, _NOWHERE).items():
                size, place, _ = group
                least = _least_common(size, len(words), close)
                if at <= len(words) - least and place <= size - least:
                    yield group, others


_NOWHERE: Final[Mapping[_Group, list[_Words]]] = {}


@lru_cache(maxsize=20_000)
def _least_common(other: int, words: int, close: float) -> int:
    """Return the minimum overlap of sets of these sizes, if one states the other or is that close."""
    is_close = int(close * (other + words) / (1 + close) - 1e-9) + 1
    return min(math.ceil(SAYS_SHARE * other), is_close)


class Scrubber:
    """Remove `phrases` everywhere, and text about the `gone` learnings.

    Phrases match in any case and white space. `is_exact` phrases match whole words only, and not inside `spared` text.
    A line is about a gone learning if it equals it, has most of its words, or has one of `words` (which no remaining
    text has). Statements of spared learnings stay, even inside such a line. Curated learnings go if they cite `turns`
    or equal a gone one.
    """

    def __init__(
        self,
        phrases: Iterable[str] = (),
        *,
        turns: Collection[int] = (),
        words: Collection[str] = (),
        gone: Iterable[Said] = (),
        sources: Collection[int] = (),
        spared: Spared | None = None,
        is_exact: bool = False,
    ) -> None:
        self.phrases = tuple(dict.fromkeys(phrase for phrase in phrases if phrase.strip()))
        self.turns = frozenset(turns)
        self.words = frozenset(words)
        self.gone = tuple(gone)
        #: The turns that taught the forgotten learnings.
        self.sources = frozenset(sources)
        self.spared = spared or Spared()
        self._cores = {core(learning.content) for learning in self.gone} - {""}
        self._is_exact = is_exact
        self._contents = [words for learning in self.gone if (words := content_words(learning.content))]
        quotes = [content_words(learning.quote) for learning in self.gone]
        # A quote in the learning's own words may state more than it.
        self._about = [*self._contents, *(words for words in quotes if words and not self._has_gone(words))]
        self._gone_words = frozenset[str]().union(self.words, *self._about)
        self._patterns = [_pattern(phrase, is_exact=is_exact) for phrase in self.phrases]
        contents = self.spared.contents if is_exact else []
        self._held = _any_of([text for text in contents if any(found.search(text) for found in self._patterns)])
        #: Caches of scrubbed lines and sentences: all stores contain the same ones.
        self._taken: dict[str, str | None] = {}
        self._left_of_sentences: dict[str, str] = {}

    # --- phrases ---

    def finds(self, text: str) -> bool:
        """Return whether a phrase occurs in the text outside of spared parts."""
        # The mark of an earlier forget is not text.
        return any(map(self.stands_in, self._open(text.replace(FORGOTTEN, ""))))

    def stands_in(self, text: str) -> bool:
        """Return whether a phrase occurs in the text, including spared parts."""
        return any(pattern.search(text) for pattern in self._patterns)

    def text(self, text: str) -> str:
        """Return the text with every phrase replaced."""
        return self._without_phrases(text, FORGOTTEN)

    def value(self, value: Any) -> Any:
        """Return a JSON value with every phrase replaced in all strings and keys."""
        return map_strings(value, self.text)

    def _open(self, text: str) -> list[str]:
        """Return the parts of a text that are searched for phrases."""
        return self._held.split(text)[::2] if self._held is not None else [text]

    def _without_phrases(self, text: str, mark: str) -> str:
        parts = self._held.split(text) if self._held is not None else [text]
        for at in range(0, len(parts), 2):
            for pattern in self._patterns:
                parts[at] = FORGOTTEN.join(pattern.sub(mark, part) for part in parts[at].split(FORGOTTEN))
        return "".join(parts)

    # --- learnings ---

    def takes_learning(self, content: str, turn_id: int | None) -> bool:
        """Return whether a learning goes. It stays if another turn taught it as well."""
        if turn_id in self.turns or core(content) in self._cores:
            return True
        if self.spared.says(content):
            return False
        words = content_words(content)
        if self.finds(content) or not words.isdisjoint(self.words):
            return True
        return turn_id in self.sources and any(share(gone, words) >= ABOUT_SHARE for gone in self._contents)

    # --- sentences ---

    def sentences(self, text: str) -> str:
        """Return a text without the sentences about a gone learning. Their other statements stay."""
        return "".join(part if at % 2 else self._sentence(part) for at, part in enumerate(_SENTENCES.split(text)))

    def _sentence(self, sentence: str) -> str:
        if sentence not in self._left_of_sentences:
            self._left_of_sentences[sentence] = self._left_of_sentence(sentence)
        return self._left_of_sentences[sentence]

    def _left_of_sentence(self, sentence: str) -> str:
        found = self._about_it(sentence)
        if found is None:
            return self.text(sentence)
        own, kept = found
        if not kept:
            return FORGOTTEN
        return _cut(self.text(sentence), own, kept, FORGOTTEN)

    def _about_it(self, text: str) -> tuple[_Words, _Words] | None:
        """Return (the words to remove, the words that stay), or None for an unrelated text."""
        words = content_words(text.replace(FORGOTTEN, ""))
        nearest = max((_alike(words, gone) for gone in self._about), default=0.0)
        is_about = any(share(gone, words) >= ABOUT_SHARE or share(words, gone) >= ABOUT_SHARE for gone in self._about)
        has_own = not words.isdisjoint(self.words)
        if not words or not (is_about or has_own or self.finds(text)):
            return None
        rest = words - self._gone_words
        gone = self._gone_words & words
        kept = self.spared.kept_in(words, rest, max(nearest, _CLOSE), of=gone, is_gone=self._has_gone)
        if kept and not is_about and not self.finds(text):
            # The text shares one word, but states something else.
            return None
        own = gone - kept
        return (own, frozenset(kept)) if own or not kept else None

    def _has_gone(self, words: _Words) -> bool:
        """Return whether a quote states a forgotten learning. Such a quote protects no text."""
        return any(share(gone, words) >= ABOUT_SHARE for gone in self._contents)

    # --- lines ---

    def takes_line(self, line: str) -> bool:
        """Return whether a file's line changes."""
        return self._line(line) != line

    def lines(self, text: str, *, keep: Collection[str] = ()) -> str:
        """Return a file without removed lines and phrases; `keep` lines go only if they match exactly."""
        kept = []
        for line in text.split("\n"):
            left = self._typed_line(line) if line.strip() in keep else self._line(line)
            if left is not None:
                kept.append(left)
        return self.text("\n".join(kept))

    def _typed_line(self, line: str) -> str | None:
        return None if self.finds(line) or core(line) in self._cores else line

    def _line(self, line: str) -> str | None:
        """Return the rest of a line, or None if nothing is left."""
        if line not in self._taken:
            self._taken[line] = self._left_of(line)
        return self._taken[line]

    def _left_of(self, line: str) -> str | None:
        # Headings and the motto in italics are not the person's text.
        if not line.strip() or line.lstrip().startswith("#") or (line.startswith("*") and line.endswith("*")):
            return None if self.finds(line) else line
        if core(line) in self._cores:
            return None
        if self.spared.says(line):
            return line
        own, kept = self._about_it(line) or (frozenset(), None)
        if kept is None and not self.finds(line):
            return line
        if not kept and not (kept is None and self._is_exact):
            return None
        left = _tidy(_cut(self._without_phrases(line, ""), own, kept or frozenset(), ""))
        return left if content_words(left) else None

    def answer(self, text: str, *, keep: Collection[str] = ()) -> str:
        """Return a curator's answer without forgotten text.

        A removed learning leaves a placeholder, so that later ones keep their numbers.
        """
        lines = text.split("\n")
        start = next((at for at, line in enumerate(lines) if read_header(line) is not None), len(lines))
        head = []
        for line in lines[:start]:
            learning = read_learning(line)
            if learning is None:
                head.append(line if not self.takes_line(line) else "")
            elif self.takes_learning(learning.content, learning.turn_id):
                head.append(f"{learning.type}: {FORGOTTEN}")
            elif learning.quote and (quote := self.sentences(learning.quote)) != learning.quote:
                head.append(line.replace(learning.quote, quote))
            else:
                head.append(line)
        files = [self.lines("\n".join(lines[start:]), keep=keep)] if lines[start:] else []
        return self.text("\n".join([*head, *files]))


#: Sentences and their separators, alternating.
_SENTENCES = re.compile(r"((?<=[.!?])\s+|\n+)")
_WORD = re.compile(r"\w+")
_MARK = re.compile(r"\s*(?:[-*+•]\s+|[0-9]{1,3}[.)]\s+)?")
_SUBJECT = re.compile(r"^(?:the\s+)?user(?:['’]s)?\s+", re.IGNORECASE)  # noqa: RUF001 - as people write it
_JOINS = r"\b(?:and|but|or|who|und|aber|oder|och|et|y)\b"
_LOOSE_END = re.compile(rf"(?:[\s,;:(/–—-]+|{_JOINS})+([.!?]?)\s*$")  # noqa: RUF001
_LOOSE_START = re.compile(rf"^(\s*(?:[-*+•]\s+)?)(?:[\s,;:)/.–—]+|{_JOINS})+")  # noqa: RUF001


def core(text: str) -> str:
    """Normalize a learning or line: no list mark, subject ("The user ..."), case or punctuation."""
    return said(bare(text))


def bare(text: str) -> str:
    """Return the same part of the text in its original form."""
    return _SUBJECT.sub("", _MARK.sub("", text.strip(), count=1)).rstrip(".!? ")


def _alike(one: _Words, other: _Words) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


def _cut(text: str, own: _Words, kept: _Words, mark: str) -> str:
    """Return a text without `own` words and the text between them; `kept` words and earlier text stay.

    After the last such word, the rest of the text goes as well, up to a kept word.
    """
    parts: list[str] = []
    begun: int | None = None
    at = ended = 0
    for word in _WORD.finditer(text):
        forms = content_words(word[0])
        if forms & kept:
            if begun is not None:
                parts += [text[at:begun], mark]
                at, begun = ended, None
        elif forms & own:
            begun, ended = word.start() if begun is None else begun, word.end()
    if begun is not None:
        stop = re.search(r"[.!?)\s]*$", text)
        rest = text[stop.start() :] if stop is not None else ""
        return "".join([*parts, text[at:begun], mark, rest])
    return "".join([*parts, text[at:]])


def _tidy(line: str) -> str:
    """Return a line without dangling separators from the cut."""
    line = re.sub(r"(?<=\S)\s{2,}(?=\S)", " ", line)
    return _LOOSE_START.sub(r"\1", _LOOSE_END.sub(r"\1", line))


def _pattern(phrase: str, *, is_exact: bool) -> re.Pattern[str]:
    words = r"\s+".join(re.escape(word) for word in phrase.split())
    return re.compile(rf"(?<!\w){words}(?!\w)" if is_exact else words, re.IGNORECASE)


def _any_of(texts: Collection[str]) -> re.Pattern[str] | None:
    if not texts:
        return None
    longest = sorted({bare(text) for text in texts}, key=len, reverse=True)
    patterns = (r"\s+".join(map(re.escape, text.split())) for text in longest)
    return re.compile(f"({'|'.join(patterns)})", re.IGNORECASE)


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return the JSON value with every string changed, including object keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(str(key)): map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    return value


class ActionScrubber:
    """Scrub rows in order, oldest first, and track which actions are gone.

    `missions` are the missions of whole forgotten turns. `learnings` maps forgotten learnings' numbers to their
    contents.
    """

    def __init__(self, scrubber: Scrubber, missions: Collection[str], learnings: Mapping[int, str]) -> None:
        self._scrubber = scrubber
        self._missions = missions
        self._learnings = learnings
        self._gone: set[int] = set()

    def row(self, curation_id: int, response: str) -> str:
        """Return a row's new text, unchanged if it keeps everything."""
        try:
            record = read_record(response)
        except ValueError:
            return self._scrubber.text(response)
        if isinstance(record, Added):
            if record.content == FORGOTTEN or not self._takes(record.content, record):
                return response
            self._gone.add(MADE_IDS + curation_id)
            return write_record(Added(by=record.by, content=FORGOTTEN))
        if not isinstance(record, Changed):
            return response
        return response if not self._empty(record) else write_record(record)

    def _empty(self, record: Changed) -> bool:
        """Scrub a row in place. Return whether anything was removed."""
        is_gone = record.action in self._gone or self._is_of_gone_learning(record)
        if is_gone:
            record.of = Known(FORGOTTEN)
        changed = is_gone
        text = text_of(record)
        if text and text != FORGOTTEN and (is_gone or self._takes(text, record)):
            match record:
                case Updated():
                    record.content = UNSET
                case Resolved():
                    record.note = FORGOTTEN
                case Noted():
                    record.what = FORGOTTEN
            changed = True
        return changed

    def _is_of_gone_learning(self, record: Changed) -> bool:
        of = record.of
        if of is None or of.content == FORGOTTEN:
            return False
        known = self._learnings.get(record.action) == of.content
        return known or self._scrubber.takes_learning(of.content, of.turn)

    def _takes(self, text: str, record: Added | Changed) -> bool:
        if record.mission in self._missions:
            return True
        # A person's text goes only if it has the exact words, not similar ones.
        return self._scrubber.finds(text) if record.by == "person" else self._scrubber.takes_line(text)


def scrubbed_answer(response: str, scrubber: Scrubber, learnings: Mapping[int, str]) -> str:
    """Return the new text of a person's word on a learning. `learnings` are the forgotten ones' contents by number."""
    try:
        answer = read_answer(response)
    except ValueError:
        return scrubber.text(response)
    of = answer.of
    if learnings.get(answer.learning) == of.content or scrubber.takes_learning(of.content, of.turn):
        of = Known(FORGOTTEN)
    is_kept = not answer.content or not scrubber.takes_learning(answer.content, None)
    left = replace(answer, of=of, content=answer.content if is_kept else FORGOTTEN)
    return response if left == answer else write_answer(left)


def text_of(record: Changed) -> str:
    """Return the text that a change of an action contains."""
    match record:
        case Updated(content=str(content)):
            return content
        case Resolved(note=note):
            return note
        case Noted(what=what):
            return what
        case _:
            return ""
