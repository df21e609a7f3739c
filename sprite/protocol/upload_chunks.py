"""Split a file into upload messages (pure)."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator

from sprite.protocol.messages import UPLOAD_CHUNK_BYTES, FileUpload


def upload_chunks(name: str, data: bytes) -> Iterator[FileUpload]:
    """Yield the messages in order, at least one. The answer to the last contains the file's path."""
    upload_id = str(uuid.uuid4())
    last = max(0, (len(data) - 1) // UPLOAD_CHUNK_BYTES)
    for index in range(last + 1):
        chunk = data[index * UPLOAD_CHUNK_BYTES : (index + 1) * UPLOAD_CHUNK_BYTES]
        yield FileUpload(upload_id, name, index, index == last, base64.b64encode(chunk).decode())
