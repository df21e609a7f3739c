"""The six memory files: names, limits, templates and atomic writes, without databases and models."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
import stat
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, Literal

from sprite.common.files import replace_file
from sprite.errors import StorageError
from sprite.memory.sections import Parts, shown, split, views

Reason = Literal["bad", "of-another-log", "of-a-newer-log", "too-large", "no-file"]
_WORDS: Final[dict[Reason, str]] = {
    "bad": "could not be read",
    "of-another-log": "was of another log",
    "of-a-newer-log": "was of a newer state of the log",
    "too-large": "was too large for a memory file",
    "no-file": "was not a file",
}


def name_aside(path: Path, reason: Reason, at: float | None = None) -> Path:
    """Return a free name for a file to quarantine at a time (Unix seconds): `memory.db.bad-20261122T010254Z`."""
    moment = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    stem = f"{path.name}.{reason}-{moment:%Y%m%dT%H%M%SZ}"
    names = (stem, *(f"{stem}-{number}" for number in range(2, 1000)))
    free = (path.with_name(name) for name in names if not os.path.lexists(path.with_name(name)))
    return next(free, path.with_name(f"{stem}-{time.time_ns()}"))


def set_aside(folder: Path) -> list[str]:
    """Return a description of each quarantined file in the folder, sorted by name."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
    found: list[str] = []
    for name in names:
        for reason, words in _WORDS.items():
            whole, separator, _ = name.partition(f".{reason}")
            if separator and not whole.startswith(".") and not name.endswith(("-wal", "-shm")):
                found.append(f"{name}: {whole} {words}; delete it once you do not need it")
                break
    return found


CURATED_TOKENS: Final = 21_500
LEARNINGS_TOKENS: Final = 4_500
#: All four files rewritten, with the learnings.
MAX_ANSWER_TOKENS: Final = CURATED_TOKENS + LEARNINGS_TOKENS
#: The whole prompt of a curator call. A batch that does not fit is split.
PROMPT_BUDGET_TOKENS: Final = 64_000


# Anthropic's glossary gives about 3.5 English characters per token; JSON, code and paths come closer to 3.
ASCII_CHARS_PER_TOKEN = 3.0
# In UTF-8 a CJK character is 3 bytes and about 1 to 1.5 tokens, an emoji 4 bytes and 2 to 3 tokens, a Cyrillic letter 2
# bytes and less than 1 token.
OTHER_BYTES_PER_TOKEN = 2.0


def estimate_tokens(text: str) -> int:
    """Return a conservative token count: ASCII by characters, other text by UTF-8 bytes."""
    ascii_chars = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode("utf-8", "replace")) - ascii_chars
    return math.ceil(ascii_chars / ASCII_CHARS_PER_TOKEN + other_bytes / OTHER_BYTES_PER_TOKEN)


log = logging.getLogger(__name__)

#: Line limits from the memory design: they force what matters to the top.
LINE_LIMITS: Final[dict[str, int]] = {
    "soul.md": 200,
    "os.md": 200,
    "tools.md": 150,
    "user.md": 200,
    "files.md": 200,
    "context.md": 200,
}
#: Byte limit of a curated file: 200 lines of 80 characters. Without it one line could fill the prompt.
BYTE_LIMIT: Final = 16_000
DEPLOYED: Final = ("soul.md", "os.md")
CURATED: Final = ("tools.md", "user.md", "files.md", "context.md")
#: Files with a section per project.
SECTIONED: Final = ("tools.md", "files.md", "context.md")
#: Line and byte limits hold for the view of one session: the user's part with one project's section. This is the limit
#: for a file with the sections of all projects.
WHOLE_BYTE_LIMIT: Final = 128 * 1024
#: A larger file is quarantined unread, whether a person or a program made it.
LARGEST_FILE_BYTES: Final = 256 * 1024
#: Marker file in the folder: present while the agent works, and left behind by a crash.
AT_WORK: Final = ".agent-at-work"
#: File in the folder with the hash of each deployed file as last shipped.
SHIPPED: Final = "shipped.json"
#: Order in the boot prompt: the most stable files come first, for prompt caching.
BOOT_ORDER: Final = (*DEPLOYED, *CURATED)


def sha256(content: str) -> str:
    """Return the SHA-256 of a file's content, by which manual edits are detected."""
    return hashlib.sha256(content.encode()).hexdigest()


def line_count(content: str) -> int:
    """Return the number of lines of a text, as every limit and gauge counts them."""
    return content.rstrip("\n").count("\n") + 1 if content.strip() else 0


def over_limit(name: str, content: str, *, has: str = "would have") -> str | None:
    """Return why this content is over a limit of the file, or None. `has` is the verb of the reason.

    The limits hold for the view of one session: the user's part with one project's section.
    """
    for view in _views(name, content):
        if (reason := _over(name, view, has)) is not None:
            return reason
    size = len(content.encode())
    if size > WHOLE_BYTE_LIMIT:
        return f"{name} {has} {size} bytes with the sections of all projects; {WHOLE_BYTE_LIMIT} are allowed"
    return None


def _over(name: str, content: str, has: str) -> str | None:
    lines, limit = line_count(content), LINE_LIMITS[name]
    if lines > limit:
        return f"{name} {has} {lines} lines; {limit} are allowed"
    size = len(content.encode())
    if size > BYTE_LIMIT:
        return f"{name} {has} {size} bytes; {BYTE_LIMIT} are allowed"
    return None


def _views(name: str, content: str) -> list[str]:
    return views(content) if name in SECTIONED else [content]


def lines_shown(name: str, content: str) -> int:
    """Return the largest number of lines of a file in one session's view."""
    return max(map(line_count, _views(name, content)))


def shown_to(name: str, content: str, projects: Iterable[str]) -> str:
    """Return a session's view of a file: the user's part and as many of these projects' sections as fit.

    A single section always fits, unless a manual edit made the file too large.
    """
    if name not in SECTIONED:
        return content
    return shown(content, projects, lambda view: _over(name, view, "has") is None)


def within_limits(name: str, content: str) -> tuple[str, str | None]:
    """Return (the part of a view that fits into a prompt, a note on the omitted part of a manual edit or None)."""
    over = _over(name, content, "has")
    if over is None:
        return content, None
    kept = "\n".join(content.split("\n")[: LINE_LIMITS[name]]).encode()[:BYTE_LIMIT].decode(errors="ignore")
    return kept, f"{over}: what is over that is on disk and not shown here"


def over_together(name: str, content: str, files: Mapping[str, str]) -> str | None:
    """Return why this content would make the curated files too large for one curator answer, or None.

    `files` has all current contents. A file may always shrink, even while the total is over the limit.
    """
    if estimate_tokens(content) < estimate_tokens(files[name]):
        return None
    return _together({**files, name: content}, "would have")


def over_limits(files: Mapping[str, str]) -> list[str]:
    """Return the limits that the current files exceed, in words. Older versions and manual edits cause this."""
    found = [over_limit(name, content, has="has") for name, content in files.items()] + [_together(files, "have")]
    return [words for words in found if words is not None]


def _together(files: Mapping[str, str], have: str) -> str | None:
    """Return why the curated files, with one project's sections, are too large for one session's view, or None."""
    parts = {name: split(files[name]) if name in SECTIONED else Parts(files[name], {}) for name in CURATED}
    sizes = {name: estimate_tokens(parts[name].own) for name in CURATED}
    projects = {key for part in parts.values() for key in part.sections}
    sections = [sum(estimate_tokens(part.sections.get(key, "")) for part in parts.values()) for key in projects]
    total = sum(sizes.values()) + max(sections, default=0)
    if total <= CURATED_TOKENS:
        return None
    return f"the four curated files {have} about {total} tokens together; {CURATED_TOKENS} are allowed"


@cache
def template(name: str) -> str:
    """Return the file's shipped content."""
    return resources.files("sprite.memory").joinpath("templates", name).read_text(encoding="utf-8")


class MemoryFiles:
    """Read and write the folder with the six files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, str] = {}

    def ensure(self) -> None:
        """Update soul.md and os.md to this version, except for files with manual edits.

        Memory restores a missing curated file. A template written here would pass for a manual edit.
        """
        for name in DEPLOYED:
            self.set_aside_the_unusable(name)
        shipped, edited = self._shipped(), self.edited()
        # An interrupted turn may have changed the files. They are checked first; the next start updates them.
        was_at_work = (self._folder / AT_WORK).exists()
        for name in DEPLOYED:
            if self.exists(name) and (name in edited or was_at_work):
                continue
            content = template(name)
            if not self.exists(name) or self.on_disk(name) != content:
                self.write(name, content)
            if shipped.get(name) != sha256(content):
                shipped[name] = sha256(content)
                self.write(SHIPPED, json.dumps(shipped))

    def edited(self) -> list[str]:
        """Return the deployed files with manual edits, which updates do not replace."""
        shipped = self._shipped()
        return [
            name
            for name in DEPLOYED
            if self.exists(name)
            and (content := self.on_disk(name)) != template(name)
            and sha256(content) != shipped.get(name)
        ]

    def _shipped(self) -> dict[str, str]:
        try:
            noted = json.loads((self._folder / SHIPPED).read_bytes())
        except (OSError, ValueError):
            # Without the record every difference counts as a manual edit, which is kept.
            return {}
        return {name: digest for name, digest in noted.items() if name in DEPLOYED} if isinstance(noted, dict) else {}

    def read(self, name: str) -> str:
        """Return a file's content as memory has it: the held content, else the file on disk."""
        held = self._held.get(name)
        return self.on_disk(name) if held is None else held

    def hold(self, contents: Mapping[str, str]) -> None:
        """Make `read` return these contents by file name, and read all other files from disk."""
        self._held = dict(contents)

    def on_disk(self, name: str) -> str:
        """Return at most LARGEST_FILE_BYTES of a file, decoded with replacement characters.

        A missing file, or anything but a regular file, reads as its template.
        """
        try:
            # Do not block on a pipe.
            descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                return template(name)
            with os.fdopen(descriptor, "rb") as stream:
                return stream.read(LARGEST_FILE_BYTES).decode("utf-8", errors="replace")
        except FileNotFoundError:
            return template(name)
        except OSError as error:
            raise StorageError(f"{self._folder / name} cannot be read ({error.strerror}).") from error

    def free_bytes(self) -> int:
        """Return the free bytes of the disk that holds the folder."""
        return shutil.disk_usage(self._folder).free

    def exists(self, name: str) -> bool:
        """Return whether the memory file exists."""
        return (self._folder / name).is_file()

    def set_aside_the_unusable(self, name: str) -> str | None:
        """Quarantine a file that is too large or no regular file, with its content. Return what happened, or None."""
        path = self._folder / name
        try:
            found = path.stat()
        except OSError:
            # The file is missing, or a dangling link: both get written again.
            return None
        if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST_FILE_BYTES:
            return None
        if stat.S_ISREG(found.st_mode):
            why = f"has {found.st_size} bytes, and a memory file at most {LARGEST_FILE_BYTES}"
            plain = path.with_name(f"{name}.too-large")
            aside = name_aside(path, "too-large") if os.path.lexists(plain) else plain
        else:
            why, aside = "was not a file", name_aside(path, "no-file")
        try:
            path.replace(aside)
        except OSError as error:
            raise StorageError(f"{path} could not be moved out of the way ({error.strerror}).") from error
        words = f"{name} {why}: it was moved to {aside.name}, and restored from memory."
        log.warning("%s", words)
        return words

    def keep_copy(self, name: str, aside: Path) -> None:
        """Copy a memory file to `aside` as it is, if it exists."""
        if not self.exists(name):
            return
        try:
            shutil.copy2(self._folder / name, aside)
        except OSError as error:
            raise StorageError(f"{aside.name} could not be written ({error.strerror}).") from error

    def state(self) -> tuple[object, ...]:
        """Return a fingerprint of the files on disk. Every write changes it, because no program can set ctime."""
        return tuple(self._state(self._folder / name) for name in BOOT_ORDER)

    @staticmethod
    def _state(path: Path) -> object:
        try:
            found = path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    # --- while the agent works ---

    def note_work(self, deployed: Mapping[str, str]) -> None:
        """Write the marker that the agent works, with the current contents of the deployed files."""
        try:
            # Not synced: it must outlive this process but not the machine, and a turn waits for it.
            (self._folder / AT_WORK).write_text(json.dumps(deployed), encoding="utf-8")
        except OSError as error:
            raise StorageError(f"The memory folder cannot be written to ({error.strerror}).") from error

    def note_rest(self) -> None:
        """Remove the marker that the agent works."""
        (self._folder / AT_WORK).unlink(missing_ok=True)

    def before_work(self) -> dict[str, str] | None:
        """Return the deployed files' contents from before the agent's work, or None if the agent is not working."""
        try:
            noted = json.loads((self._folder / AT_WORK).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            # The marker is damaged, but it exists. The curated files have their own record of earlier contents.
            return {}
        return {name: text for name, text in noted.items() if name in DEPLOYED} if isinstance(noted, dict) else {}

    def modified_at(self, name: str) -> float | None:
        """Return the time of the last write to a memory file in Unix seconds, or None if the file is missing."""
        try:
            return (self._folder / name).stat().st_mtime
        except FileNotFoundError:
            return None

    def write(self, name: str, content: str) -> None:
        """Replace a memory file atomically: readers and crashes see old or new content. StorageError on failure."""
        if name in self._held:
            self._held[name] = content
        try:
            replace_file(self._folder / name, content.encode())
        except OSError as error:
            raise StorageError(f"{name} could not be written ({error.strerror}).") from error
