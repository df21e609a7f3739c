"""Observers of sprites' messages, beside the pages and terminals, and also without any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sprite.protocol.frames import ServerMessage


class Observer(Protocol):
    """Receives the events of every room. No method may block, wait or raise.

    A sprite may send any messages at any rate.
    """

    def opened(self, sprite: str) -> None:
        """Handle that a connection to the sprite is wanted from now on."""

    def closed(self, sprite: str, *, at_rest: bool) -> None:
        """Handle that no connection is wanted any more; `at_rest` tells whether the sprite had no work then."""

    def arrived(self, sprite: str) -> None:
        """Handle the first page or terminal."""

    def left(self, sprite: str) -> None:
        """Handle that the last page or terminal has left."""

    def heard(self, sprite: str, message: ServerMessage) -> None:
        """Handle a message of the sprite: an event, a state, or an answer to any client."""
