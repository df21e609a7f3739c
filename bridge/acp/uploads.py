"""Files that come with a message, on their way into the agent's `documents/`."""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING

from sprite.protocol.messages import UPLOAD_CHUNK_BYTES, Ack, FileUpload

if TYPE_CHECKING:
    from bridge.acp.conversation import Conversation
    from bridge.acp.prompt import Attachment

_CHUNK_SECONDS = 60.0


async def upload(conversation: Conversation, file: Attachment) -> str:
    """Sends a file; where it has arrived, from the workspace. RequestError where it does not arrive."""
    upload_id = str(uuid.uuid4())
    last = max(0, (len(file.data) - 1) // UPLOAD_CHUNK_BYTES)
    path = None
    for index in range(last + 1):
        chunk = file.data[index * UPLOAD_CHUNK_BYTES : (index + 1) * UPLOAD_CHUNK_BYTES]
        part = FileUpload(upload_id, file.name, index, index == last, base64.b64encode(chunk).decode())
        path = (await conversation.ask(part, Ack, _CHUNK_SECONDS)).path
    return path or f"documents/{file.name}"
