"""Files that go along with a mission, on their way into the person's documents/."""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING

from bridge.doors.asking import AskError
from sprite.protocol.messages import UPLOAD_CHUNK_BYTES, Ack, Error, FileUpload

if TYPE_CHECKING:
    from bridge.doors.completions.asked import Attachment
    from bridge.relay.room import Room


async def uploaded(room: Room, attachments: list[Attachment]) -> list[str]:
    """Where the files are by then, in their order. AskError where the sprite does not take one."""
    return [await _uploaded(room, attachment) for attachment in attachments]


async def _uploaded(room: Room, attachment: Attachment) -> str:
    upload_id = str(uuid.uuid4())
    last = (len(attachment.data) - 1) // UPLOAD_CHUNK_BYTES
    path = None
    for index in range(last + 1):
        data = attachment.data[index * UPLOAD_CHUNK_BYTES : (index + 1) * UPLOAD_CHUNK_BYTES]
        chunk = FileUpload(upload_id, attachment.name, index, index == last, base64.b64encode(data).decode())
        answer = await room.ask(chunk)
        if not isinstance(answer, Ack):
            words = answer.message if isinstance(answer, Error) else "The sprite's answer makes no sense."
            raise AskError(answer.code if isinstance(answer, Error) else "bad_answer", words)
        path = answer.path
    if path is None:
        raise AskError("bad_answer", "The sprite does not say where the file is.")
    return path
