"""Uploads in chunks: collected aside, then moved to documents/ in one step, never over another file."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import os
import re
import time
from pathlib import Path

from sprite.common.files import clear
from sprite.errors import PeerError, StorageError
from sprite.protocol.messages import MAX_UPLOAD_BYTES, FileUpload
from sprite.workspace.user_files import folder_of

DOCUMENTS = "documents"
#: Concurrent uploads; each costs a file.
MAX_OPEN = 16
#: Limit for an id, which is stored during its upload; a UUID has 36 characters.
MAX_ID_CHARS = 200
#: Limit for a file name in bytes: below the file systems' limit, with room for a number.
MAX_NAME_BYTES = 200
#: A longer suffix counts as part of the name.
MAX_SUFFIX_BYTES = 20
#: After this time without a chunk, an upload may be evicted for another.
ABANDONED_SECONDS = 600.0
_HIDING = re.compile(r"^[\s.]+")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\:*?\"<>|]+")


class Uploads:
    """Track the running uploads of one workspace."""

    def __init__(self, workspace: Path, parts: Path) -> None:
        self._workspace = workspace
        self._parts = parts
        self._next_index: dict[str, int] = {}
        # One lock for all: a lock per id would let a peer allocate memory at will.
        self._one_chunk = asyncio.Lock()

    def prepare(self) -> None:
        """Create the folder for unfinished uploads, and delete those that an earlier process left."""
        self._parts.mkdir(parents=True, exist_ok=True)
        clear(self._parts)

    async def take(self, chunk: FileUpload) -> str | None:
        """Add a chunk to its upload. After the last one, return the file's path below the workspace, else None.

        Raises PeerError for a chunk out of order, too much data or invalid base64, StorageError if the disk fails.
        """
        if len(chunk.upload_id) > MAX_ID_CHARS:
            raise PeerError(f"An upload's id may have at most {MAX_ID_CHARS} characters.")
        async with self._one_chunk:
            try:
                return await asyncio.to_thread(self._take, chunk)
            except OSError as error:
                self._forget(chunk.upload_id)
                raise StorageError(f"The file could not be stored ({error.strerror}).") from error

    def _take(self, chunk: FileUpload) -> str | None:
        expected = self._next_index.get(chunk.upload_id, 0)
        if chunk.index != expected:
            self._forget(chunk.upload_id)
            raise PeerError(f"Chunk {expected} was expected, {chunk.index} came; send the file again.")
        if expected == 0 and len(self._next_index) >= MAX_OPEN:
            self._forget_abandoned()
        if expected == 0 and len(self._next_index) >= MAX_OPEN:
            raise PeerError(f"{MAX_OPEN} uploads are under way already.", code="too_many_uploads")
        try:
            data = base64.b64decode(chunk.data, validate=True)
        except (binascii.Error, ValueError) as error:
            self._forget(chunk.upload_id)
            raise PeerError("The data is not base64; send the file again.") from error
        part = self._part(chunk.upload_id)
        with part.open("ab" if expected else "wb") as stream:
            stream.write(data)
            size = stream.tell()
            if chunk.last:
                stream.flush()
                os.fsync(stream.fileno())
        if size > MAX_UPLOAD_BYTES:
            self._forget(chunk.upload_id)
            raise PeerError(f"A file may have at most {MAX_UPLOAD_BYTES // 2**20} MiB.", code="file_too_large")
        self._next_index[chunk.upload_id] = expected + 1
        if not chunk.last:
            return None
        path = self._place(part, safe_name(chunk.name))
        self._forget(chunk.upload_id)
        return path

    def _place(self, part: Path, name: str) -> str:
        """Move the finished file to documents/, which must be no link; a taken name gets a number."""
        stem, suffix = Path(name).stem, Path(name).suffix
        part.chmod(0o644)
        with folder_of(self._workspace, DOCUMENTS) as (at, folder), contextlib.suppress(FileExistsError):
            os.mkdir(folder, dir_fd=at)
        with folder_of(self._workspace, f"{DOCUMENTS}/{name}") as (at, _):
            for number in range(1, 10_000):
                target = name if number == 1 else f"{stem} ({number}){suffix}"
                # link fails if the name is taken, so no file is overwritten, not even in a race.
                with contextlib.suppress(FileExistsError):
                    os.link(part, target, dst_dir_fd=at)
                    return f"{DOCUMENTS}/{target}"
        raise PeerError(f"There are too many files named {name}.")

    def _forget(self, upload_id: str) -> None:
        self._next_index.pop(upload_id, None)
        self._part(upload_id).unlink(missing_ok=True)

    def _forget_abandoned(self) -> None:
        for upload_id in tuple(self._next_index):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - self._part(upload_id).stat().st_mtime > ABANDONED_SECONDS:
                    self._forget(upload_id)

    def _part(self, upload_id: str) -> Path:
        # The peer chooses the id, so it is never used as a file name.
        return self._parts / hashlib.sha256(upload_id.encode("utf-8", "replace")).hexdigest()


def safe_name(name: str) -> str:
    """Return a name without folders, control characters or a leading dot, short enough for any file system."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    clean = _HIDING.sub("", _UNSAFE.sub("_", last.encode("utf-8", "replace").decode())).rstrip()
    stem, suffix = Path(clean).stem, Path(clean).suffix
    if len(suffix.encode()) > MAX_SUFFIX_BYTES:
        stem, suffix = clean, ""
    stem = stem.encode()[: MAX_NAME_BYTES - len(suffix.encode())].decode(errors="ignore")
    return stem + suffix or "unnamed"
