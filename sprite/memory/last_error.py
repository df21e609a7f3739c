"""The last error, kept on disk so that `status` can show it during and after the process."""

from __future__ import annotations

from pathlib import Path

from sprite.privacy.redaction import redact

#: File name in the folder of the running process.
LAST_ERROR = "last_error"


def note_error(run: Path, words: str | None) -> None:
    """Write an error to disk, or clear it if `words` is None. Errors of the disk are ignored."""
    try:
        # Remove a pipe, too: opening it would block.
        (run / LAST_ERROR).unlink(missing_ok=True)
        if words is not None:
            (run / LAST_ERROR).write_text(f"{redact(words)}\n", encoding="utf-8")
    except OSError:
        return


def last_error(run: Path) -> str | None:
    """Return the text of the last error, or None."""
    if not (run / LAST_ERROR).is_file():
        return None
    try:
        return (run / LAST_ERROR).read_text(encoding="utf-8", errors="replace").strip() or None
    except FileNotFoundError:
        return None
