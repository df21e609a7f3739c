"""Changed files for people: unified diffs of text, and previews of small images. Blocks, so use a thread."""

from __future__ import annotations

import base64
import difflib
import stat
from typing import Final

from sprite.protocol.files import on_wire, picture_kind
from sprite.protocol.shapes import ChangedFile
from sprite.undo.contents import Contents
from sprite.workspace.file_changes import FileChange

#: Limits for a compared text, since comparing takes quadratic time at worst, and for a preview.
_TEXT_BYTES: Final = 128 * 1024
_TEXT_LINES: Final = 2_000
_IMAGE_BYTES: Final = 96 * 1024
#: Limit for all diffs and previews of one answer; a frame takes 1 MiB.
_MOST_CHARS: Final = 400_000


class Diffs:
    """Convert file changes to rows of one answer; later rows have no diff once the answer is full."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._room = _MOST_CHARS

    def file(self, change: FileChange) -> ChangedFile:
        """Return a file change as a row for clients, with its diff or image previews."""
        has_before = change.mode_before is None or self._contents.holds(change.before)
        has_after = change.mode is None or self._contents.holds(change.after)
        row = ChangedFile(
            on_wire(change.path),
            change.kind,
            size_before=change.size_before,
            size=change.size,
            kept=has_before and has_after,
            yours=change.is_yours,
            mode_before=None if change.mode_before is None else stat.filemode(change.mode_before),
            mode=None if change.mode is None else stat.filemode(change.mode),
        )
        if row.kept and max(change.size_before or 0, change.size or 0) <= _TEXT_BYTES:
            self._show(row, self._content(change.before), self._content(change.after))
        return row

    def _show(self, row: ChangedFile, before: bytes, after: bytes) -> None:
        images = picture_kind(before), picture_kind(after)
        if any(images):
            for name, data, media_type in zip(("preview_before", "preview"), (before, after), images, strict=True):
                url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
                if media_type and len(data) <= _IMAGE_BYTES and len(url) <= self._room:
                    self._room -= len(url)
                    setattr(row, name, url)
            return
        try:
            old, new = _lines(before), _lines(after)
        except UnicodeDecodeError:
            return
        if b"\0" in before + after or len(old) + len(new) > 2 * _TEXT_LINES:
            return
        diff = "\n".join([*difflib.unified_diff(old, new, n=3, lineterm="")][2:])
        if len(diff) <= self._room:
            self._room -= len(diff)
            row.diff = diff

    def _content(self, sha256: str | None) -> bytes:
        if not sha256:
            return b""
        try:
            with self._contents.reading(sha256) as stream:
                return stream.read(_TEXT_BYTES + 1)
        except OSError:
            return b"\0"


def _lines(data: bytes) -> list[str]:
    """Return the lines of a text; a last line without an end is marked as `diff` does."""
    lines = data.decode().split("\n")
    if lines[-1]:
        return [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]
    return lines[:-1]
