"""Taking words out of texts (pure): what forgetting does to a line, a text, a JSON value, a curator's answer."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from sprite.memory.curation.answer import read_learning
from sprite.memory.curation.answer_files import read_header
from sprite.memory.words import FORGOTTEN, content_words, said, share

#: A text that has this part of a learning's words, or a learning that has this part of the text's, is about it.
ABOUT_SHARE = 0.6
#: A text that has this part of a learning's words says it.
SAYS_SHARE = 0.8
#: With a smaller part of its words in a line, a learning is not what the line says.
_CLOSE = 0.5
#: A learning of one word ("Ada.") says too little to keep a text for it.
_SPARED_WORDS = 2
_Words = frozenset[str]


@dataclass(frozen=True, slots=True)
class Said:
    """A learning as far as its words go: what it says, and the quote that it rests on."""

    content: str
    quote: str = ""


class Spared:
    """The learnings that stay, looked up by their words.

    Sets of words that have enough in common have one of their rarest words in common ("prefix filtering", Chaudhuri
    et al., ICDE 2006): only those sets are compared, however many have the common words.
    """

    def __init__(self, learnings: Iterable[Said] = ()) -> None:
        self._cores: set[str] = set()
        #: The words of each content and of each quote, and which of the two it is.
        self._sets: list[tuple[_Words, bool]] = []
        self.contents: list[str] = []
        for learning in learnings:
            self._cores.add(core(learning.content))
            self.contents.append(learning.content)
            self._add(learning.content, is_quote=False)
            self._add(learning.quote, is_quote=True)
        self._number_with = Counter(word for words, _ in self._sets for word in words)
        #: The sets with a word, by their size and how many of their words are rarer than it.
        self._with: defaultdict[str, defaultdict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
        for number, (words, _) in enumerate(self._sets):
            for place, word in enumerate(self._rarest_first(words)):
                self._with[word][len(words), place].append(number)

    def _add(self, text: str, *, is_quote: bool) -> None:
        words = content_words(text)
        if len(words) >= _SPARED_WORDS:
            self._sets.append((words, is_quote))

    def _rarest_first(self, words: _Words) -> list[str]:
        return sorted(words, key=lambda word: (self._number_with[word], word))

    def says(self, text: str) -> bool:
        """Whether a text is one of these learnings, word for word."""
        return core(text) in self._cores

    def is_said_in(self, words: _Words) -> bool:
        """Whether a text of these words says one of the learnings."""
        return any(
            not is_quote and len(words & other) >= SAYS_SHARE * len(other) for other, is_quote in self._near(words, 1.0)
        )

    def kept_in(self, words: _Words, rest: _Words, close: float) -> Iterator[tuple[_Words, bool]]:
        """Yield the words of each content and quote that a text of these words says, and whether it is a quote.

        A content is also said if it is closer to the text than `close`, or has all of `rest`, the words of the text
        that nothing forgotten has.
        """
        for other, is_quote in self._near(words, close):
            common = len(words & other)
            is_close = not is_quote and common > close * (len(other) + len(words) - common)
            if common >= SAYS_SHARE * len(other) or is_close:
                yield other, is_quote
        if rest:
            rarest = min(rest, key=lambda word: self._number_with[word])
            for numbers in self._with.get(rarest, _NOWHERE).values():
                for number in numbers:
                    other, is_quote = self._sets[number]
                    if not is_quote and other >= rest and len(words & other) >= _CLOSE * len(other):
                        yield other, is_quote

    def _near(self, words: _Words, close: float) -> Iterator[tuple[_Words, bool]]:
        """Yield each content and quote that a text of these words may say, or be closer to than `close`."""
        found: set[int] = set()
        for at, word in enumerate(self._rarest_first(words)):
            for (size, place), numbers in self._with.get(word, _NOWHERE).items():
                least = _least_common(size, len(words), close)
                if at <= len(words) - least and place <= size - least:
                    found.update(numbers)
        for number in found:
            yield self._sets[number]


_NOWHERE: Final[Mapping[tuple[int, int], list[int]]] = {}


@lru_cache(maxsize=20_000)
def _least_common(other: int, words: int, close: float) -> int:
    """Return how many words sets of these sizes have in common at least, if one says the other or is that close."""
    is_close = int(close * (other + words) / (1 + close) - 1e-9) + 1
    return min(math.ceil(SAYS_SHARE * other), is_close)


class Scrubber:
    """What has to go: `phrases` wherever they stand, and what is about the `gone` learnings.

    Phrases are found whatever their case and white space; `is_exact` ones only as whole words, and not inside what
    is `spared`. A line is about a gone learning if it is that learning word for word, has most of its words, or has
    one of `words` (which nothing that stays has). What a spared learning says stays, also inside such a line. Of a
    curator's learnings, those go that cite `turns` or are one of the gone.
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
        #: The turns that taught what goes.
        self.sources = frozenset(sources)
        self.spared = spared or Spared()
        self._cores = {core(learning.content) for learning in self.gone} - {""}
        self._is_exact = is_exact
        self._contents = [words for learning in self.gone if (words := content_words(learning.content))]
        quotes = [content_words(learning.quote) for learning in self.gone]
        # A quote in the learning's own words may say more than it.
        self._about = [*self._contents, *(words for words in quotes if words and not self._has_gone(words))]
        self._gone_words = frozenset[str]().union(self.words, *self._about)
        self._patterns = [_pattern(phrase, is_exact=is_exact) for phrase in self.phrases]
        contents = self.spared.contents if is_exact else []
        self._held = _any_of([text for text in contents if any(found.search(text) for found in self._patterns)])
        #: Caches of scrubbed lines and sentences: every store has the same ones.
        self._taken: dict[str, str | None] = {}
        self._left_of_sentences: dict[str, str] = {}

    # --- phrases ---

    def finds(self, text: str) -> bool:
        """Whether a phrase stands in the text."""
        # The mark of an earlier forget is not text.
        return any(map(self.stands_in, self._open(text.replace(FORGOTTEN, ""))))

    def stands_in(self, text: str) -> bool:
        """Whether a phrase stands in the text, also inside of what is spared."""
        return any(pattern.search(text) for pattern in self._patterns)

    def text(self, text: str) -> str:
        """The text with every phrase replaced."""
        return self._without_phrases(text, FORGOTTEN)

    def value(self, value: Any) -> Any:
        """A JSON value with every phrase replaced in all its strings, names included."""
        return map_strings(value, self.text)

    def _open(self, text: str) -> list[str]:
        """The parts of a text in which phrases are looked for."""
        return self._held.split(text)[::2] if self._held is not None else [text]

    def _without_phrases(self, text: str, mark: str) -> str:
        parts = self._held.split(text) if self._held is not None else [text]
        for at in range(0, len(parts), 2):
            for pattern in self._patterns:
                parts[at] = FORGOTTEN.join(pattern.sub(mark, part) for part in parts[at].split(FORGOTTEN))
        return "".join(parts)

    # --- learnings ---

    def takes_learning(self, content: str, turn_id: int | None) -> bool:
        """Whether a learning has to go: what another turn taught as well stays."""
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
        """A text without the sentences that are about it; what else they say stays."""
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
        """(the words to be taken out, the words of what stays), or None for a text that is not about it."""
        words = content_words(text.replace(FORGOTTEN, ""))
        nearest = max((_alike(words, gone) for gone in self._about), default=0.0)
        is_about = any(share(gone, words) >= ABOUT_SHARE or share(words, gone) >= ABOUT_SHARE for gone in self._about)
        has_own = not words.isdisjoint(self.words)
        if not words or not (is_about or has_own or self.finds(text)):
            return None
        rest = words - self._gone_words
        close = max(nearest, _CLOSE)
        others = [
            other
            for other, is_quote in self.spared.kept_in(words, rest, close)
            if not (is_quote and self._has_gone(other))
        ]
        kept = frozenset[str]().union(*others) & words
        if kept and not is_about and not self.finds(text):
            # One word of it in what says something else.
            return None
        own = (self._gone_words & words) - kept
        return (own, kept) if own or not kept else None

    def _has_gone(self, words: _Words) -> bool:
        """Whether a quote says what is forgotten, too: it keeps nothing."""
        return any(share(gone, words) >= ABOUT_SHARE for gone in self._contents)

    # --- lines ---

    def takes_line(self, line: str) -> bool:
        """Whether a line of a file has to go, or a part of it."""
        return self._line(line) != line

    def lines(self, text: str, *, keep: Collection[str] = ()) -> str:
        """A file without the lines that have to go, and without phrases that span lines; `keep` only lose phrases."""
        kept = []
        for line in text.split("\n"):
            left = self._typed_line(line) if line.strip() in keep else self._line(line)
            if left is not None:
                kept.append(left)
        return self.text("\n".join(kept))

    def _typed_line(self, line: str) -> str | None:
        return None if self.finds(line) or core(line) in self._cores else line

    def _line(self, line: str) -> str | None:
        """What is left of a line; None where nothing is."""
        if line not in self._taken:
            self._taken[line] = self._left_of(line)
        return self._taken[line]

    def _left_of(self, line: str) -> str | None:
        if not line.strip() or line.lstrip().startswith("#"):
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
        """A curator's answer without what has to go.

        A learning leaves its place behind, so that those after it keep their numbers.
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


#: Sentences and what stands between them, alternating.
_SENTENCES = re.compile(r"((?<=[.!?])\s+|\n+)")
_WORD = re.compile(r"\w+")
_MARK = re.compile(r"\s*(?:[-*+•]\s+|[0-9]{1,3}[.)]\s+)?")
_SUBJECT = re.compile(r"(?:the\s+)?user(?:['’]s)?\s+", re.IGNORECASE)  # noqa: RUF001 - as people write it
_JOINS = r"\b(?:and|but|or|who|und|aber|oder|och|et|y)\b"
_LOOSE_END = re.compile(rf"(?:[\s,;:(/–—-]+|{_JOINS})+([.!?]?)\s*$")  # noqa: RUF001
_LOOSE_START = re.compile(rf"^(\s*(?:[-*+•]\s+)?)(?:[\s,;:)/.–—]+|{_JOINS})+")  # noqa: RUF001


def core(text: str) -> str:
    """What a learning or a line says, without a list's mark, its subject ("The user ..."), case and punctuation."""
    return said(bare(text))


def bare(text: str) -> str:
    """The same as it is written."""
    return _SUBJECT.sub("", _MARK.sub("", text.strip(), count=1), count=1).rstrip(".!? ")


def _alike(one: _Words, other: _Words) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


def _cut(text: str, own: _Words, kept: _Words, mark: str) -> str:
    """A text without its own words and what stands between them; words that are kept, and what is before, stay.

    What follows the last of them goes to the end of the text, unless a kept word comes.
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
    """A line of a file without what the cut left hanging."""
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
    """The same JSON value with every string changed, the names in objects included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(str(key)): map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    return value
