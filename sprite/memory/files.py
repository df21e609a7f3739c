"""The six memory files: their names, limits and templates, and writing them so that no crash tears one.

Knows the folder they live in; knows neither databases nor models. Who reads a file gets what memory has: that is not
always what stands on disk.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, Literal

from sprite.errors import StorageError
from sprite.memory.limits import CURATED_TOKENS
from sprite.memory.sections import Parts, shown, split, views
from sprite.memory.set_aside import name_aside
from sprite.memory.tokens import estimate_tokens

log = logging.getLogger(__name__)

#: Most lines a file may have (from the memory design): a limit forces what matters to the top.
LINE_LIMITS: Final[dict[str, int]] = {
    "soul.md": 200,
    "os.md": 200,
    "tools.md": 150,
    "user.md": 200,
    "files.md": 200,
    "context.md": 200,
}
#: Most bytes a curated file may have: 200 lines of 80 characters. Without it one line could fill the prompt.
BYTE_LIMIT: Final = 16_000
DEPLOYED: Final = ("soul.md", "os.md")
CURATED: Final = ("tools.md", "user.md", "files.md", "context.md")
#: In these a project has a section of its own.
SECTIONED: Final = ("tools.md", "files.md", "context.md")
#: Lines and bytes are limited as a session is shown them: the person's part with one project's section. A file with
#: the sections of all projects may have so much.
WHOLE_BYTE_LIMIT: Final = 128 * 1024
#: A larger file is no memory file. What a hand or a program made so large is set aside, never read.
LARGEST_FILE_BYTES: Final = 256 * 1024
#: Stands in the folder while the agent works, and after it was killed at that.
AT_WORK: Final = ".agent-at-work"
#: Stands in the folder: the hash of each deployed file as it was shipped last.
SHIPPED: Final = "shipped.json"
#: As they stand in the boot prompt: what changes least comes first, so that prompt caching reaches far.
BOOT_ORDER: Final = (*DEPLOYED, *CURATED)


def sha256(content: str) -> str:
    """The hash by which a hand's edit is noticed."""
    return hashlib.sha256(content.encode()).hexdigest()


def line_count(content: str) -> int:
    """Lines as every limit and gauge counts them."""
    return content.rstrip("\n").count("\n") + 1 if content.strip() else 0


def managed_by(name: str) -> Literal["deploy", "curated"]:
    """Who writes the file: the deployer, or the curator."""
    return "deploy" if name in DEPLOYED else "curated"


def over_limit(name: str, content: str, *, has: str = "would have") -> str | None:
    """Why this content may not become the file, or None if it may.

    The limits hold for what one session is shown: the person's part with one project's section.
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
    """The most lines of a file that one session is shown, as its limit counts them."""
    return max(map(line_count, _views(name, content)))


def shown_to(name: str, content: str, projects: Iterable[str]) -> str:
    """What a session of these projects is shown of a file: the person's part, and as many sections as fit its limits.

    A single project's section always does, unless a hand made the file too large.
    """
    if name not in SECTIONED:
        return content
    return shown(content, projects, lambda view: _over(name, view, "has") is None)


def within_limits(name: str, content: str) -> tuple[str, str | None]:
    """As much of what a session is shown as may be read into a prompt, and in words what is left out; None if nothing.

    What a hand wrote stands on disk whatever its size; a prompt has room for so much.
    """
    over = _over(name, content, "has")
    if over is None:
        return content, None
    kept = "\n".join(content.split("\n")[: LINE_LIMITS[name]]).encode()[:BYTE_LIMIT].decode(errors="ignore")
    return kept, f"{over}: what is over that is on disk and not shown here"


def over_together(name: str, content: str, files: Mapping[str, str]) -> str | None:
    """Why this content would make the curated files too much for one answer, or None; `files` are all as they are.

    What is over the limit already may shrink.
    """
    if estimate_tokens(content) < estimate_tokens(files[name]):
        return None
    return _together({**files, name: content}, "would have")


def over_limits(files: Mapping[str, str]) -> list[str]:
    """What of the files, as they are, is over a limit: an older Sprite, or a person's hand, made it so."""
    found = [over_limit(name, content, has="has") for name, content in files.items()] + [_together(files, "have")]
    return [words for words in found if words is not None]


def _together(files: Mapping[str, str], have: str) -> str | None:
    """Why the files are too much together, as a session is shown them: with the sections of one project, or of none."""
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
    """The file as shipped."""
    return resources.files("sprite.memory").joinpath("templates", name).read_text(encoding="utf-8")


class MemoryFiles:
    """The folder with the six files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, str] = {}

    def ensure(self) -> None:
        """Brings soul.md and os.md to this version, as an update of a VM does; one that a hand changed stays.

        A curated file that is missing comes from memory: made here from its template, it would pass for a hand's edit.
        """
        for name in DEPLOYED:
            self.set_aside_the_unusable(name)
        shipped, edited = self._shipped(), self.edited()
        # What a turn that was cut off may have changed is looked into first; the next start sees to it.
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
        """The deployed files that a hand changed: they are not replaced by newer ones."""
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
            # Without a note every change passes for a person's, which keeps it.
            return {}
        return {name: digest for name, digest in noted.items() if name in DEPLOYED} if isinstance(noted, dict) else {}

    def read(self, name: str) -> str:
        """A file's content as memory has it: what is held for it, else what stands on disk."""
        held = self._held.get(name)
        return self.on_disk(name) if held is None else held

    def hold(self, contents: Mapping[str, str]) -> None:
        """From now on these are read, whatever comes to stand on disk; other files are read from there."""
        self._held = dict(contents)

    def on_disk(self, name: str) -> str:
        """What stands in a file, as far as a memory file goes; damaged bytes are shown as such.

        A missing file is as shipped, and so is what is no file.
        """
        try:
            # Not to wait for the writer of a pipe.
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
        """What the disk under the folder has left."""
        return shutil.disk_usage(self._folder).free

    def exists(self, name: str) -> bool:
        """Whether the file is there."""
        return (self._folder / name).is_file()

    def set_aside_the_unusable(self, name: str) -> str | None:
        """Moves what is too large to be memory, or no file at all, out of the way; says so in words, None if it is not.

        Nothing of it is lost, and nothing that was set aside before is written over.
        """
        path = self._folder / name
        try:
            found = path.stat()
        except OSError:
            # Missing, or a link that leads nowhere: both are written anew.
            return None
        if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST_FILE_BYTES:
            return None
        if stat.S_ISREG(found.st_mode):
            why = f"has {found.st_size} bytes, and a memory file at most {LARGEST_FILE_BYTES}"
            plain = path.with_name(f"{name}.too-large")
            aside = name_aside(path, "too-large") if os.path.lexists(plain) else plain
        else:
            why, aside = "was no file", name_aside(path, "no-file")
        try:
            path.replace(aside)
        except OSError as error:
            raise StorageError(f"{path} could not be moved out of the way ({error.strerror}).") from error
        words = f"{name} {why}: it was moved to {aside.name}, and is again as memory has it."
        log.warning("%s", words)
        return words

    def keep_copy(self, name: str, aside: Path) -> None:
        """Copies a file as it is, if it is there."""
        if not self.exists(name):
            return
        try:
            shutil.copy2(self._folder / name, aside)
        except OSError as error:
            raise StorageError(f"{aside.name} could not be written ({error.strerror}).") from error

    def state(self) -> tuple[object, ...]:
        """Which bytes stand on disk, without reading them: any change gives another value (none sets ctime)."""
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
        """Says on disk that the agent is at work, and how the deployed files were before."""
        try:
            # Not synced: it has to outlive this process, not the machine, and a turn waits for it.
            (self._folder / AT_WORK).write_text(json.dumps(deployed), encoding="utf-8")
        except OSError as error:
            raise StorageError(f"The memory folder cannot be written to ({error.strerror}).") from error

    def note_rest(self) -> None:
        """Takes that back."""
        (self._folder / AT_WORK).unlink(missing_ok=True)

    def before_work(self) -> dict[str, str] | None:
        """The deployed files as they were when the agent began to work; None if it is not at work."""
        try:
            noted = json.loads((self._folder / AT_WORK).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            # Damaged, but it was there: the curated files have their own record of what they were.
            return {}
        return {name: text for name, text in noted.items() if name in DEPLOYED} if isinstance(noted, dict) else {}

    def modified_at(self, name: str) -> float | None:
        """When the file was last written, in Unix seconds."""
        try:
            return (self._folder / name).stat().st_mtime
        except FileNotFoundError:
            return None

    def write(self, name: str, content: str) -> None:
        """Replaces a file in one step: a reader, or a crash, sees the old or the new one, never a part."""
        if name in self._held:
            self._held[name] = content
        try:
            descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=self._folder)
        except OSError as error:
            raise StorageError(f"{name} could not be written ({error.strerror}).") from error
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(self._folder / name)
        except BaseException as error:
            Path(temporary).unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise StorageError(f"{name} could not be written ({error.strerror}).") from error
            raise
