"""A text of the agent's as it grows, so that an editor gets each part of it once (pure)."""

from __future__ import annotations

from os.path import commonprefix


class TextStream:
    """`feed` deltas, `finish` with the whole text; each returns what is to be shown."""

    def __init__(self, *, has_hole: bool = False) -> None:
        """`has_hole`: the beginning of the text was missed."""
        #: What is on the screen of the text that grows.
        self.shown = ""
        self._has_hole = has_hole

    @property
    def is_open(self) -> bool:
        """Whether a text has begun, and its whole has not come."""
        return bool(self.shown)

    def lose(self) -> None:
        """Deltas were missed: nothing more is shown until the whole text comes."""
        self._has_hole = True

    def feed(self, delta: str) -> str:
        """Takes the next piece."""
        if self._has_hole:
            return ""
        self.shown += delta
        return delta

    def resync(self, growing: str) -> str:
        """Goes on from the text as it has grown by now: what of it is not shown yet."""
        if not growing.startswith(self.shown):
            self._has_hole = True
            return ""
        missed = growing[len(self.shown) :]
        self.shown, self._has_hole = growing, False
        return missed

    def finish(self, whole: str) -> str:
        """Ends the text: what of it is not shown yet."""
        shown, self.shown, self._has_hole = self.shown, "", False
        return rest(whole, shown)


def rest(whole: str, shown: str) -> str:
    """What of a whole text is not shown yet."""
    if whole.startswith(shown):
        return whole[len(shown) :]
    inner, done = whole.strip(), shown.strip()
    if inner.startswith(done):
        # The whole may be trimmed where the stream was not.
        return inner[len(done) :]
    # A secret that came in pieces is taken out of the whole alone.
    return whole[len(commonprefix([whole, shown])) :]  # noqa: RUF071 - letter by letter is what is meant
