"""The folders of a workspace: `.os/` for what is ours, and the person's own."""

from __future__ import annotations

from sprite.config import Settings
from sprite.errors import OperatorError

#: The person's folders beside `.os/` and `documents/`.
USER_FOLDERS = ("ocr", "extractions", "artifacts", "skills")


def make_folders(settings: Settings) -> None:
    """Makes what is missing; OperatorError if the workspace cannot be written to."""
    try:
        for folder in (settings.system, settings.memory, settings.run):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
        for folder in (settings.documents, *(settings.workspace / name for name in USER_FOLDERS)):
            folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OperatorError(
            f"The workspace {settings.workspace} cannot be written to ({error.strerror}). "
            "Choose another with --workspace DIR, or change its owner."
        ) from error
