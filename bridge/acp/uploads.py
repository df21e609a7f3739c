"""Upload of a message's files into the agent's `documents/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sprite.protocol.messages import Ack
from sprite.protocol.upload_chunks import upload_chunks

if TYPE_CHECKING:
    from bridge.acp.conversation import Conversation
    from bridge.acp.prompt import Attachment

_CHUNK_SECONDS = 60.0


async def upload(conversation: Conversation, file: Attachment) -> str:
    """Upload a file and return its path in the workspace. Raises RequestError if that fails."""
    path = None
    for part in upload_chunks(file.name, file.data):
        path = (await conversation.ask(part, Ack, _CHUNK_SECONDS)).path
    return path or f"documents/{file.name}"
