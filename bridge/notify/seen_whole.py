"""Decide which questions can be allowed from a notification: those that it shows completely (pure).

A notification is short, and the person who presses its button has seen nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sprite.protocol.messages import PermissionRequest

#: Some phones cut off longer texts.
_SEEN_CHARS = 160
#: Other members of a command's input that do not change its effect.
_HARMLESS = {"description", "timeout"}


def is_seen_whole(request: PermissionRequest, body: str) -> bool:
    """Return whether `body` is all that would run: a short command in the workspace without invisible characters."""
    return (
        request.tool == "Bash"
        and request.folder is None
        and not request.redacted
        and set(request.input) - _HARMLESS == {"command"}
        and request.input["command"] == body
        and 0 < len(body) <= _SEEN_CHARS
        # Characters that reorder the visible text are excluded, too, among them every kind of line end.
        and body.isprintable()
    )
