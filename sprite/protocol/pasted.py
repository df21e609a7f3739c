"""Spans of a message that its person pasted: checked, moved with edits of the text, and left out of it (pure).

A span is half-open and counts Unicode code points. Spans are sorted and disjoint. Whenever an edit makes the place
of a span uncertain, the span grows: pasted words never count as the person's own.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Spans = tuple[tuple[int, int], ...]
#: A replaced part of a text and its replacement: start, end, new text.
Edit = tuple[int, int, str]

#: Far more pastes than a person makes in one message.
MAX_PASTED_SPANS = 1000


def problem_of(text: str, spans: Spans) -> str | None:
    """Return why these are no valid spans of a text, or None if they are."""
    if len(spans) > MAX_PASTED_SPANS:
        return f"`pasted` has {len(spans):,} spans, {MAX_PASTED_SPANS:,} are allowed."
    last = 0
    for start, end in spans:
        if not last <= start < end:
            return f"`pasted` must be sorted, without empty or overlapping spans; [{start}, {end}] is not."
        last = end
    if last > len(text):
        return f"`pasted` ends at {last:,}, but the text has {len(text):,} characters."
    return None


def joined(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return spans sorted and disjoint: touching ones become one, empty ones are dropped."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif start < end:
            found.append((start, end))
    return tuple(found)


def to_spans(value: Iterable[Sequence[int]]) -> Spans:
    """Return spans from their form in JSON."""
    return tuple((start, end) for start, end in value)


def read_spans(column: str | None) -> Spans:
    """Return the spans in a column of a database."""
    return () if column is None else to_spans(json.loads(column))


def write_spans(spans: Spans) -> str | None:
    """Return spans as a column of a database: None if there are none."""
    return json.dumps(spans) if spans else None


def limited(spans: Spans) -> Spans:
    """Return the spans as a message may have them: if there are too many, one from the first to the last."""
    return spans if len(spans) <= MAX_PASTED_SPANS else ((spans[0][0], spans[-1][1]),)


def clipped(spans: Iterable[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Return the spans of the first `length` characters of a text."""
    return [(start, min(end, length)) for start, end in spans if start < length]


def own_text(text: str, pasted: Spans) -> str:
    """Return the person's own words: the text with a newline instead of each pasted span."""
    starts = [0, *(end for _, end in pasted)]
    ends = [*(start for start, _ in pasted), len(text)]
    return "\n".join(text[start:end] for start, end in zip(starts, ends, strict=True))


@dataclass(frozen=True, slots=True)
class Marked:
    """A text with its pasted spans."""

    text: str
    pasted: Spans = ()

    @property
    def own(self) -> str:
        """The person's own words, see `own_text`."""
        return own_text(self.text, self.pasted)

    def replaced(self, edits: Sequence[Edit]) -> Marked:
        """Return the text with sorted, disjoint edits made, and its spans moved.

        A span that shares a character with an edit covers all of it.
        """
        if not edits:
            return self
        parts, at = [], 0
        for start, end, new in edits:
            parts += [self.text[at:start], new]
            at = end
        return Marked("".join([*parts, self.text[at:]]), _moved(self.pasted, edits) if self.pasted else ())

    def rewritten(self, text: str) -> Marked:
        """Return this new version of the text, with the spans moved as if one edit had made all changes."""
        if text == self.text or not self.pasted:
            return Marked(text, self.pasted)
        shorter = min(len(self.text), len(text))
        same_start = _common_prefix(self.text, text)
        same_end = _common_prefix(self.text[::-1], text[::-1])
        if same_start + same_end > shorter:
            # A deletion or repetition could have happened at several places: take in all of them.
            same_start, same_end = shorter - same_end, shorter - same_start
        return self.replaced([(same_start, len(self.text) - same_end, text[same_start : len(text) - same_end])])

    def stripped(self) -> Marked:
        """Return the text without white space at both ends, and its spans moved accordingly."""
        start, end = len(self.text) - len(self.text.lstrip()), len(self.text.rstrip())
        if start >= end:
            return Marked("")
        return self.replaced([edit for edit in ((0, start, ""), (end, len(self.text), "")) if edit[0] < edit[1]])


def _common_prefix(one: str, other: str) -> int:
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def _moved(spans: Spans, edits: Sequence[Edit]) -> Spans:
    starts = [start for start, _, _ in edits]
    ends = [end for _, end, _ in edits]
    #: The distance by which text is moved after so many edits.
    shifts = list(accumulate((len(new) - (end - start) for start, end, new in edits), initial=0))

    def moved(span: tuple[int, int]) -> tuple[int, int]:
        # The edits from `first` to before `past` share a character with the span.
        first, past = bisect_right(ends, span[0]), bisect_left(starts, span[1])
        start, end = span
        if first < past:
            start, end = min(start, starts[first]), max(end, ends[past - 1])
        return start + shifts[first], end + shifts[past]

    return joined(map(moved, spans))
