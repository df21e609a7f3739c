"""Track the pasted parts of an input line while the person edits it (pure)."""

from sprite.protocol.pasted import Spans, joined


class PastedSpans:
    """The pasted spans of a line.

    Keys add one character at a time. Any longer piece comes from a paste, from the kill ring or from the history: it
    counts as pasted.
    """

    def __init__(self) -> None:
        self.spans: Spans = ()
        self._text = ""

    def changed(self, text: str, cursor: int, *, is_paste: bool = False) -> None:
        """Take the line's new text, with the cursor after the edit."""
        start, end = _edited(self._text, text, cursor)
        grown = len(text) - len(self._text)
        self.spans = _moved(self.spans, start, end, grown, is_pasted=is_paste or end + grown - start > 1)
        self._text = text

    def cleared(self) -> None:
        """Begin an empty line."""
        self._text, self.spans = "", ()


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
