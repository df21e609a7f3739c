"""Taking words out of texts (pure): what forgetting does to a line, a text, a JSON value, a curator's answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from sprite.memory.curation.answer import read_learning
from sprite.memory.curation.answer_edits import forgetful
from sprite.memory.curation.answer_files import read_header
from sprite.memory.words import FORGOTTEN, content_words, said, share

#: A line that has this part of a forgotten learning's words rests on it, unless it has more of another's.
ABOUT_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Scrubber:
    """What has to go: `phrases` wherever they stand, and lines that are about what is forgotten.

    Phrases are found whatever their case and white space. A line is about it if it has one of `words` (which nothing
    else in memory has), or rests on one of the forgotten learnings (`contents`) more than on any that stays
    (`spared`). Of a curator's learnings, those go that cite `turns` or say one of `sayings`.
    """

    phrases: tuple[str, ...] = ()
    turns: frozenset[int] = frozenset()
    words: frozenset[str] = frozenset()
    sayings: frozenset[str] = frozenset()
    contents: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    _patterns: tuple[re.Pattern[str], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Compiles the phrases once."""
        object.__setattr__(self, "_patterns", tuple(_pattern(phrase) for phrase in self.phrases if phrase.strip()))

    def finds(self, text: str) -> bool:
        """Whether a phrase stands in the text."""
        # The mark of an earlier forget is not text.
        plain = text.replace(FORGOTTEN, "")
        return any(pattern.search(plain) for pattern in self._patterns)

    def text(self, text: str) -> str:
        """The text with every phrase replaced."""
        for pattern in self._patterns:
            text = FORGOTTEN.join(pattern.sub(FORGOTTEN, part) for part in text.split(FORGOTTEN))
        return text

    def value(self, value: Any) -> Any:
        """A JSON value with every phrase replaced in all its strings, names included."""
        return map_strings(value, self.text)

    def takes_line(self, line: str) -> bool:
        """Whether a line of a file has to go."""
        if self.finds(line):
            return True
        words = content_words(line)
        if not words or line.lstrip().startswith("#"):
            return False
        if not words.isdisjoint(self.words):
            return True
        rests = _closest(words, self.contents)
        return rests >= ABOUT_SHARE and rests > _closest(words, self.spared)

    def takes_learning(self, content: str, quote: str | None, turn_id: int | None) -> bool:
        """Whether a learning has to go: what another turn taught as well stays."""
        if turn_id in self.turns or said(content) in self.sayings:
            return True
        text = f"{content}\n{quote or ''}"
        return self.finds(text) or not content_words(text).isdisjoint(self.words)

    def sentences(self, text: str) -> str:
        """A text without the sentences that have one of the phrases or of the words."""
        return "".join(
            FORGOTTEN if self.finds(part) or not content_words(part).isdisjoint(self.words) else part
            for part in _SENTENCES.split(text)
        )

    def lines(self, text: str, *, keep: Collection[str] = ()) -> str:
        """A file without the lines that have to go, and without phrases that span lines; `keep` only lose phrases."""
        kept = [
            line
            for line in text.split("\n")
            if not (self.finds(line) if line.strip() in keep else self.takes_line(line))
        ]
        return self.text("\n".join(kept))

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
            elif self.takes_learning(learning.content, learning.quote, learning.turn_id):
                head.append(f"{learning.type}: {FORGOTTEN}")
            else:
                head.append(line)
        # An edit whose words go still takes away the lines it meant, or they would stand again.
        rest = [
            forgetful(line, FORGOTTEN) or line if line.strip() not in keep and self.takes_line(line) else line
            for line in lines[start:]
        ]
        files = [self.lines("\n".join(rest), keep=keep)] if rest else []
        return self.text("\n".join([*head, *files]))


#: Sentences and what stands between them, alternating.
_SENTENCES = re.compile(r"((?<=[.!?])\s+|\n+)")


def _closest(words: frozenset[str], texts: Collection[str]) -> float:
    return max((share(words, content_words(text)) for text in texts), default=0.0)


def _pattern(phrase: str) -> re.Pattern[str]:
    return re.compile(r"\s+".join(re.escape(word) for word in phrase.split()), re.IGNORECASE)


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """The same JSON value with every string changed, the names in objects included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(str(key)): map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    return value
