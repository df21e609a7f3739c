"""Which questions may be allowed from a notification: those of which it shows everything (pure).

A notification is short, and the person who presses its button has seen nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sprite.protocol.messages import PermissionRequest

#: More is cut off on some phones.
_SEEN_CHARS = 160
#: What else a command may come with: neither changes what it does.
_HARMLESS = {"description", "timeout"}


def is_seen_whole(request: PermissionRequest, body: str) -> bool:
    """Whether `body` is all of what would run: a short command in the workspace, without a character that hides."""
    return (
        request.tool == "Bash"
        and request.folder is None
        and not request.redacted
        and set(request.input) - _HARMLESS == {"command"}
        and request.input["command"] == body
        and 0 < len(body) <= _SEEN_CHARS
        # Nor anything that changes the order of what is seen; among them is every kind of line end.
        and body.isprintable()
    )
