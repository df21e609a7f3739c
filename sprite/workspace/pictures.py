"""Pictures of the person's files, as the model gets them."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sprite.errors import PeerError
from sprite.protocol.files import is_below_folders, picture_kind
from sprite.protocol.messages import MAX_PICTURE_BYTES, MAX_PICTURES_BYTES, MOST_PICTURES
from sprite.workspace.user_files import folder_of


def picture_blocks(workspace: Path, paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return the image blocks of files. Raises PeerError for one that is missing, too large or no picture."""
    if len(paths) > MOST_PICTURES:
        raise PeerError(f"A message may have {MOST_PICTURES} pictures at most.", code="too_many")
    blocks, left = [], MAX_PICTURES_BYTES
    for path in paths:
        data = _read(workspace, path)
        kind = picture_kind(data)
        if kind is None:
            raise PeerError(f"{path} is not a PNG, JPEG, GIF or WebP picture.", code="bad_picture")
        left -= len(data)
        if len(data) > MAX_PICTURE_BYTES or left < 0:
            raise PeerError(
                f"A picture may have {MAX_PICTURE_BYTES / 2**20:.1f} MiB, and those of a message "
                f"{MAX_PICTURES_BYTES // 2**20} MiB: send it as a file only.",
                code="too_large",
            )
        source = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
        blocks.append({"type": "image", "source": source})
    return blocks


def _read(workspace: Path, path: str) -> bytes:
    try:
        if not is_below_folders(path):
            raise FileNotFoundError(path)
        with folder_of(workspace, path) as (folder, name):
            # Not a link, and no pipe that would block.
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            with os.fdopen(file, "rb") as stream:
                if stat.S_ISREG(os.fstat(file).st_mode):
                    return stream.read(MAX_PICTURE_BYTES + 1)
    except (OSError, ValueError):
        pass
    raise PeerError(f"There is no file {path}.", code="not_found")
