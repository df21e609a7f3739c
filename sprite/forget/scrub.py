"""Remove forgotten text from lines, texts, JSON values and curator answers (pure)."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from sprite.curation.answer import parse_response, read_learning
from sprite.curation.answer_files import read_header, read_line
from sprite.forget.statements import Span, Statement, Statements, core, statement, without
from sprite.memory.action_rows import Added, Changed, Known, Noted, Resolved, Updated, read_record
from sprite.memory.answers import Answer
from sprite.memory.decision import MADE_IDS
from sprite.memory.rule_rows import Offer, read_rule
from sprite.memory.words import FORGOTTEN, content_words, plain
from sprite.storage.connection import to_json


class Scrubber:
    """Remove a `text` in any case and white space, or `statements`, from texts.

    Learnings with a content in `stays` stay, even where a statement contains or overlaps them. Sentences and lines with
    one of `words`, which occur only in forgotten text, are removed; so are learnings that cite `turns`, or `sources` by
    one of the `quotes` (they repeat the forgotten one), and lines and learnings that equal one of `lines`.
    """

    def __init__(
        self,
        text: str = "",
        *,
        statements: Iterable[Statement | None] = (),
        stays: Sequence[str] = (),
        lines: Collection[str] = (),
        words: Collection[str] = (),
        turns: Collection[int] = (),
        sources: Collection[int] = (),
        quotes: Collection[str] = (),
    ) -> None:
        self.words = frozenset(words)
        self.turns = frozenset(turns)
        self._sources = frozenset(sources)
        self._quotes = {core(quote) for quote in quotes} - {""}
        self._pattern = _pattern(text) if text.strip() else None
        self._gone = Statements(statements)
        self._kept = Statements(map(statement, stays))
        self._kept_cores = {core(content) for content in stays}
        self._cores = {core(line) for line in lines} - self._kept_cores - {""}
        # Cached, because all stores contain the same lines and sentences.
        self._line = functools.cache(self._left_of_line)
        self._sentence = functools.cache(self._left_of_sentence)

    # --- text ---

    def finds(self, text: str) -> bool:
        """Return whether a text contains forgotten words, outside of statements that stay."""
        return self.text(text) != text

    def stands_in(self, text: str) -> bool:
        """Return whether a text contains forgotten words, even within a statement that stays."""
        return bool(self._gone.spans(text)) or (self._pattern is not None and self.finds(text))

    def text(self, text: str) -> str:
        """Return a text without the forgotten words."""
        return self._without(text, FORGOTTEN)

    def value(self, value: Any) -> Any:
        """Return a JSON value, scrubbed in all strings and keys."""
        return map_strings(value, self.text)

    def _without(self, text: str, mark: str) -> str:
        if self._pattern is not None:
            # The mark of an earlier forget is not text.
            text = FORGOTTEN.join(self._pattern.sub(mark, part) for part in text.split(FORGOTTEN))
        gone = self._gone.spans(text)
        return _replaced(text, without(gone, self._kept.spans(text)), mark) if gone else text

    # --- learnings ---

    def takes_learning(self, content: str, turn_id: int | None, quote: str = "") -> bool:
        """Return whether a learning is removed. It stays if another turn taught it as well."""
        same = core(content)
        if turn_id in self.turns or same in self._cores:
            return True
        if same in self._kept_cores:
            return False
        return (
            self.finds(content) or self.has_own(content) or (turn_id in self._sources and core(quote) in self._quotes)
        )

    def takes_rule(self, words: str, turn_id: int | None, quote: str) -> bool:
        """Return whether a rule is removed: its words or its evidence are forgotten."""
        return self.takes_learning(words, turn_id, quote) or self.finds(quote)

    # --- sentences ---

    def sentences(self, text: str) -> str:
        """Return a text without the forgotten words and without sentences that contain one of `words`."""
        text = self.text(text)
        if not self._may_have_own(text) and FORGOTTEN not in text:
            return text
        return "".join(part if at % 2 else self._sentence(part) for at, part in enumerate(_SENTENCES.split(text)))

    def _left_of_sentence(self, sentence: str) -> str:
        left = _replaced(sentence, self._own(sentence), FORGOTTEN)
        is_empty = FORGOTTEN in left and not content_words(left.replace(FORGOTTEN, ""))
        return FORGOTTEN if is_empty else left

    def _may_have_own(self, text: str) -> bool:
        # A word's form occurs in it: most texts are spared the costly split into words.
        visible = plain(text) if self.words else ""
        return any(word in visible for word in self.words)

    def has_own(self, text: str) -> bool:
        """Return whether a text has one of the `words` that occur only in forgotten text."""
        return self._may_have_own(text) and not self.words.isdisjoint(content_words(text.replace(FORGOTTEN, "")))

    def _own(self, text: str) -> list[Span]:
        """Return the parts of a sentence that contain one of `words`, between statements that stay."""
        if not self.has_own(text):
            return []
        whole = (len(text) - len(text.lstrip()), len(text.rstrip(" \t.!?\"')")))
        return [part for part in without([whole], self._kept.spans(text)) if self.has_own(text[slice(*part)])]

    # --- lines ---

    def takes_line(self, line: str) -> bool:
        """Return whether a line of a file is removed or changed."""
        return self._line(line) != line

    def lines(self, text: str, *, keep: Collection[str] = ()) -> str:
        """Return a file's text without forgotten lines; one in `keep` is removed only if it says what is forgotten."""
        kept = []
        for line in text.split("\n"):
            if line.strip() in keep and not self.finds(line) and core(line) not in self._cores:
                kept.append(line)
            elif (left := self._line(line)) is not None:
                kept.append(left)
        return self.text("\n".join(kept))

    def _left_of_line(self, line: str) -> str | None:
        """Return the rest of a line without the forgotten words, or None if nothing is left."""
        # Headings and the motto in italics are not the person's text.
        if not line.strip() or line.lstrip().startswith("#") or (line.startswith("*") and line.endswith("*")):
            return None if self.finds(line) else line
        same = core(line)
        if same in self._cores:
            return None
        if same in self._kept_cores:
            return line
        left = self._without(line, "")
        left = _replaced(left, self._own(left), "")
        if left == line:
            return line
        left = _tidy(left)
        return left if self._kept.spans(left) and content_words(left) else None

    def answer(self, text: str, *, keep: Collection[str] = ()) -> str:
        """Return a curator's answer without forgotten text. Placeholders keep the numbers of later learnings."""
        lines = text.split("\n")
        start = next((at for at, line in enumerate(lines) if read_header(line) is not None), len(lines))
        head = []
        for line in lines[:start]:
            learning = read_learning(line)
            if learning is None and any(
                self.takes_rule(rule.text, rule.turn_id, rule.quote or "")
                for rule in map(read_line, parse_response(line).rules)
            ):
                head.append("")
            elif learning is None:
                head.append(line if not self.takes_line(line) else "")
            elif self.takes_learning(learning.content, learning.turn_id, learning.quote or ""):
                head.append(f"{learning.type}: {FORGOTTEN}")
            elif learning.quote and (quote := self.sentences(learning.quote)) != learning.quote:
                head.append(line.replace(learning.quote, quote))
            else:
                head.append(line)
        files = [self.lines("\n".join(lines[start:]), keep=keep)] if lines[start:] else []
        return self.text("\n".join([*head, *files]))


#: Sentences and their separators, alternating.
_SENTENCES = re.compile(r"((?<=[.!?])\s+|\n+)")
_JOINS = r"\b(?:and|but|or|who|und|aber|oder|och|et|y)\b"
_LOOSE_END = re.compile(rf"(?:[\s,;:(/–—-]+|{_JOINS})+([.!?]?)\s*$")  # noqa: RUF001
_LOOSE_START = re.compile(rf"^(\s*(?:[-*+•]\s+)?)(?:[\s,;:)/.–—]+|{_JOINS})+")  # noqa: RUF001


def _replaced(text: str, spans: Sequence[Span], mark: str) -> str:
    """Return a text with `mark` in place of each span; the white space around each span stays."""
    parts, at = [], 0
    for start, end in spans:
        inner = text[start:end]
        lead, trail = len(inner) - len(inner.lstrip()), len(inner.rstrip())
        parts += [text[at : start + lead], mark if trail > lead else ""]
        at = start + max(trail, lead)
    return "".join([*parts, text[at:]])


def _tidy(line: str) -> str:
    """Return a line without separators and spaces that dangle after a removal."""
    line = re.sub(r"(?<=\S)\s{2,}(?=\S)", " ", line)
    return _LOOSE_START.sub(r"\1", _LOOSE_END.sub(r"\1", line))


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)


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
    """Scrub logged changes of actions in order, oldest first, and track which actions are gone.

    `missions` are those of whole forgotten turns, `learnings` the forgotten ones' contents by number.
    """

    def __init__(self, scrubber: Scrubber, missions: Collection[str], learnings: Mapping[int, str]) -> None:
        self._scrubber = scrubber
        self._missions = missions
        self._learnings = learnings
        self._gone: set[int] = set()

    def row(self, curation_id: int, response: str) -> str:
        """Return a row's new text; unchanged if it has no forgotten text."""
        try:
            record = read_record(response)
        except ValueError:
            return self._scrubber.text(response)
        if isinstance(record, Added):
            if record.content == FORGOTTEN or not self._takes(record.content, record):
                return response
            self._gone.add(MADE_IDS + curation_id)
            return msgspec.json.encode(Added(by=record.by, content=FORGOTTEN)).decode()
        if not isinstance(record, Changed):
            return response
        return response if not self._empty(record) else msgspec.json.encode(record).decode()

    def _empty(self, record: Changed) -> bool:
        """Remove forgotten text from a record in place. Return whether anything was removed."""
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
    """Return the new text of a person's answer to a learning; `learnings` are the forgotten contents by number."""
    try:
        answer = msgspec.json.decode(response, type=Answer)
    except (ValueError, RecursionError):
        return scrubber.text(response)
    of = answer.of
    if learnings.get(answer.learning) == of.content or scrubber.takes_learning(of.content, of.turn):
        of = Known(FORGOTTEN)
    is_kept = not answer.content or not scrubber.takes_learning(answer.content, None)
    left = replace(answer, of=of, content=answer.content if is_kept else FORGOTTEN)
    return response if left == answer else msgspec.json.encode(left).decode()


def rule_without(response: str, scrubber: Scrubber) -> str:
    """Return the new text of a rule's row: without a rule that rests on forgotten text, or examples that have it."""
    try:
        offer = read_rule(response)
    except ValueError:
        return scrubber.text(response)
    if not isinstance(offer, Offer):
        return response
    rule = offer.rule
    if scrubber.takes_rule(f"{rule.words}: {rule.reason}", rule.turn, rule.quote):
        return to_json({"op": FORGOTTEN})
    kept = [
        each
        for each in rule.examples
        if each.turn not in scrubber.turns and not any(scrubber.takes_line(text) for text in each.input.values())
    ]
    if kept == rule.examples:
        return response
    rule.examples = kept
    return msgspec.json.encode(offer).decode()


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
