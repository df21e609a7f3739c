"""What went wrong last, kept on disk so that `status` knows it beside and after the process that met it."""

from __future__ import annotations

from pathlib import Path

from sprite.privacy.redaction import redact

#: Its name in the folder of what belongs to the running process.
LAST_ERROR = "last_error"


def note_error(run: Path, words: str | None) -> None:
    """Keeps an error in words; None says that all is well again. A disk that refuses is not worth a second error."""
    try:
        # Also a pipe that somebody put there: it would be waited for.
        (run / LAST_ERROR).unlink(missing_ok=True)
        if words is not None:
            (run / LAST_ERROR).write_text(f"{redact(words)}\n", encoding="utf-8")
    except OSError:
        return


def last_error(run: Path) -> str | None:
    """The last error in words, None if there is none."""
    if not (run / LAST_ERROR).is_file():
        return None
    try:
        return (run / LAST_ERROR).read_text(encoding="utf-8", errors="replace").strip() or None
    except FileNotFoundError:
        return None
