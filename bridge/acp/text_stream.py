"""The agent's growing text, split so that an editor gets each part once (pure)."""

from __future__ import annotations

from os.path import commonprefix


class TextStream:
    """One stream of text: `feed` deltas, `finish` with the whole text. Each returns the text to show."""

    def __init__(self, *, has_hole: bool = False) -> None:
        """`has_hole`: the start of the text was missed."""
        #: The shown part of the current text.
        self.shown = ""
        self._has_hole = has_hole

    @property
    def is_open(self) -> bool:
        """Return whether a text has started and its whole has not arrived."""
        return bool(self.shown)

    def lose(self) -> None:
        """Stop showing deltas until the whole text arrives, because some were missed."""
        self._has_hole = True

    def feed(self, delta: str) -> str:
        """Add the next delta and return the text to show."""
        if self._has_hole:
            return ""
        self.shown += delta
        return delta

    def resync(self, growing: str) -> str:
        """Continue with the text so far, after a gap. Return its part that was not shown."""
        if not growing.startswith(self.shown):
            self._has_hole = True
            return ""
        missed = growing[len(self.shown) :]
        self.shown, self._has_hole = growing, False
        return missed

    def finish(self, whole: str) -> str:
        """End the text and return its part that was not shown."""
        shown, self.shown, self._has_hole = self.shown, "", False
        return rest(whole, shown)


def rest(whole: str, shown: str) -> str:
    """Return the part of a whole text that was not shown."""
    if whole.startswith(shown):
        return whole[len(shown) :]
    inner, done = whole.strip(), shown.strip()
    if inner.startswith(done):
        # The whole may be trimmed, unlike the stream.
        return inner[len(done) :]
    # A secret split over deltas is redacted in the whole only.
    return whole[len(commonprefix([whole, shown])) :]  # noqa: RUF071 - letter by letter is what is meant
