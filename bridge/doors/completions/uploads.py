"""Upload of a mission's files into the person's documents/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.doors.asking import AskError
from sprite.protocol.messages import Ack, Error
from sprite.protocol.upload_chunks import upload_chunks

if TYPE_CHECKING:
    from bridge.doors.completions.asked import Attachment
    from bridge.relay.room import Room


async def uploaded(room: Room, attachments: list[Attachment]) -> list[str]:
    """Upload the files and return their paths in order. Raises AskError if the sprite refuses one."""
    return [await _uploaded(room, attachment) for attachment in attachments]


async def _uploaded(room: Room, attachment: Attachment) -> str:
    path = None
    for chunk in upload_chunks(attachment.name, attachment.data):
        answer = await room.ask(chunk)
        if not isinstance(answer, Ack):
            words = answer.message if isinstance(answer, Error) else "The sprite's answer makes no sense."
            raise AskError(answer.code if isinstance(answer, Error) else "bad_answer", words)
        path = answer.path
    if path is None:
        raise AskError("bad_answer", "The sprite does not say where the file is.")
    return path
