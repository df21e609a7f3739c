"""Skills: folders of `skills/`, each with a SKILL.md in the common format.

The agent gets name, description and path, and reads the rest when needed. The CLI must not list them: it would run the
hooks and commands named in a SKILL.md, without any check.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILE = "SKILL.md"
#: Skills that are listed; the folder can hold more.
MAX_SKILLS = 50
#: Bytes read of a SKILL.md: its head has all listed fields.
HEAD_BYTES = 8 * 1024
MAX_DESCRIPTION_CHARS = 500
MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class Skill:
    """A listed skill; `path` is its SKILL.md relative to the workspace."""

    name: str
    description: str
    path: str


def skills_in(folder: Path) -> list[Skill]:
    """Return the skills of a folder by name. Entries without a SKILL.md and a description are skipped."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
    found: list[Skill] = []
    for name in names:
        head = _head(folder / name / FILE) if len(name) <= MAX_NAME_CHARS and name.isprintable() else ""
        description = dict(_fields(head)).get("description", "")
        if description:
            path = f"{folder.name}/{name}/{FILE}"
            found.append(Skill(name, description[:MAX_DESCRIPTION_CHARS], path))
        if len(found) == MAX_SKILLS:
            break
    return found


def _head(path: Path) -> str:
    """Read the file's beginning. Links are not followed (they could lead into `.os/`), and a pipe does not block."""
    if path.parent.is_symlink():
        return ""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, HEAD_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """Yield the fields between the first two `---` lines; indented lines continue a field."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != "---":
        return
    name = ""
    words: list[str] = []
    for line in lines[1:]:
        if line.strip() == "---":
            if name:
                yield name, _plain(words)
            return
        if line[:1].isspace():
            words.append(line)
            continue
        if name:
            yield name, _plain(words)
        name, _, value = line.partition(":")
        words = [value]


def _plain(words: list[str]) -> str:
    """Return a value without YAML's signs for folded text and quotes, and without line breaks."""
    first, *rest = words
    if first.strip() in {">", ">-", "|", "|-"}:
        first = ""
    text = " ".join(" ".join([first, *rest]).split())
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text
