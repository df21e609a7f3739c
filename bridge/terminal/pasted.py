"""Track the pasted parts of an input line while the person edits it (pure)."""

from sprite.protocol.pasted import Spans, joined

#: Earlier texts that are remembered for undo and for the line history: number, and characters in total.
_MOST_TEXTS = 500
_MOST_CHARS = 2_000_000


class PastedSpans:
    """The pasted spans of a line.

    Keys add one character at a time. Any longer piece comes from a paste, from the kill ring or from the history: it
    counts as pasted, unless the line was exactly like this before.
    """

    def __init__(self) -> None:
        self.spans: Spans = ()
        self._text = ""
        self._known: dict[str, Spans] = {}
        self._chars = 0

    def changed(self, text: str, cursor: int, *, is_paste: bool = False) -> None:
        """Take the line's new text, with the cursor after the edit."""
        start, end = _edited(self._text, text, cursor)
        grown = len(text) - len(self._text)
        added = end + grown - start
        known = None if is_paste else self._known.get(text)
        if known is not None and added > 1:
            self.spans = known
        else:
            spans = _moved(self.spans, start, end, grown, is_pasted=is_paste or added > 1)
            # An undo may bring back a single pasted character.
            self.spans = joined((*spans, *(known or ()))) if added else spans
        self._text = text
        self._remember()

    def cleared(self) -> None:
        """Begin an empty line; earlier ones stay known, because the history brings them back."""
        self._text, self.spans = "", ()

    def _remember(self) -> None:
        before = self._known.pop(self._text, None)
        if before is None:
            self._chars += len(self._text)
        # The same words may have been typed once and pasted once.
        self._known[self._text] = joined((*(before or ()), *self.spans))
        while len(self._known) > _MOST_TEXTS or self._chars > _MOST_CHARS:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._chars -= len(oldest)


def _edited(old: str, new: str, cursor: int) -> tuple[int, int]:
    """Return the part of the old text that the new one replaced."""
    grown = len(new) - len(old)
    if grown > 0 and old == new[: max(0, cursor - grown)] + new[cursor:]:
        return cursor - grown, cursor - grown
    # A deletion, or an edit elsewhere. Of repeated characters, the cursor tells which one went.
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    tail = next((at for at in range(shorter) if old[-1 - at] != new[-1 - at]), shorter)
    if head + tail > shorter:
        tail = max(shorter - head, min(tail, len(new) - cursor))
        head = min(head, shorter - tail)
    return head, len(old) - tail


def _moved(spans: Spans, start: int, end: int, grown: int, *, is_pasted: bool) -> Spans:
    left: list[tuple[int, int]] = [(start, end + grown)] if is_pasted else []
    for first, last in spans:
        if first < start and last > end:
            # Words that are typed into the middle of a paste belong to it.
            left.append((first, last + grown))
        else:
            left += [(first, min(last, start)), (max(first, end) + grown, last + grown)]
    return joined(span for span in left if span[0] < span[1])
