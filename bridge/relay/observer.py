"""Who else hears what sprites say: beside the pages and terminals, and also while there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sprite.protocol.frames import ServerMessage


class Observer(Protocol):
    """Told of every room; nothing here may block, wait or raise, and a sprite may say anything as often as it likes."""

    def opened(self, sprite: str) -> None:
        """A connection to the sprite is wanted from here on."""
        ...

    def closed(self, sprite: str, *, at_rest: bool) -> None:
        """None is wanted any more; `at_rest` says whether the sprite had nothing under way then."""
        ...

    def arrived(self, sprite: str) -> None:
        """The first page or terminal has come."""
        ...

    def left(self, sprite: str) -> None:
        """The last page or terminal has gone."""
        ...

    def heard(self, sprite: str, message: ServerMessage) -> None:
        """The sprite said something: an event, a state, or an answer to whomever."""
        ...
