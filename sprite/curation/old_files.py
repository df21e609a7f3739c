"""Remove lines of files.md about files that nobody has needed for a long time and that are gone.

The decision about a batch gets the new version of the file. So a rebuild reads neither the disk nor the turns.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from sprite.log.curations import Curation
from sprite.log.transcript import TranscriptDB
from sprite.memory.database import FileVersion, MemoryDB
from sprite.memory.decision import REPORT_CHARS, Refusal, Written, read_decision
from sprite.memory.sections import PIN, UNPIN, project_of

NAME = "files.md"
AFTER_DAYS = 60
_AFTER_SECONDS = AFTER_DAYS * 86_400.0
#: Folders whose files nobody is meant to keep.
_PASSING = frozenset({"tmp", "temp", "downloads", "download"})
_ROOTS = ("/", "~/", "documents/", "ocr/", "extractions/", "artifacts/")
#: The names before a line's explanation: `- ~/a.docx and .pdf: ...`.
_HEAD = re.compile(r"[-*] \**(.+?)\**(?:: | \(| [-\u2013] |$)")
_BETWEEN = re.compile(r", (?:and )?| and |; ")
_SUFFIX = re.compile(r"\.\w{1,10}")


async def without_old_files(answer: Curation, memory: MemoryDB, transcript: TranscriptDB, workspace: Path) -> Curation:
    """Return a decided batch whose decision also removes the old lines of files.md."""
    parts = read_decision(answer.decision_json or "[]")
    # The decision's own version of the file is not in memory yet.
    written = [part.content for part in parts if isinstance(part, Written) and part.name == NAME]
    versions = await memory.versions(NAME)
    if not versions:
        return answer
    content = [versions[-1].content, *written][-1]
    since = answer.created_at - _AFTER_SECONDS
    stood = _standing_since(versions, since)
    gone = [
        line
        for line in _own_entries(content)
        if line in stood and await _is_old(named_files(line), transcript, workspace, since)
    ]
    if not gone:
        return answer
    left = "\n".join(line for line in content.split("\n") if line not in gone)
    words = f"{NAME}: not mentioned for {AFTER_DAYS} days, and gone: {'; '.join(gone)}"
    parts += [Written(NAME, left), Refusal("aged", words[:REPORT_CHARS])]
    return replace(answer, decision_json=msgspec.json.encode(parts).decode())


def _standing_since(versions: Sequence[FileVersion], since: float) -> frozenset[str]:
    """Return the lines that files.md already had at a time, without those of a person, which stay."""
    old: frozenset[str] = frozenset()
    persons: set[str] = set()
    before: frozenset[str] = frozenset()
    for version in versions:
        lines = frozenset(version.content.split("\n"))
        if version.source == "person":
            persons |= lines - before
        if version.created_at <= since:
            old = lines
        before = lines
    return old - persons


def _own_entries(content: str) -> list[str]:
    """Return the list entries of the user's part, without pinned ones.

    Entries in a project's section are left out: their files may be on another computer.
    """
    found: list[str] = []
    is_own, is_pinned = True, False
    lines = content.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith(("# ", "## ")):
            is_own = project_of(line) is None
        is_pinned = line.strip() != UNPIN and (is_pinned or line.strip() == PIN)
        if is_own and not is_pinned and line.startswith(("- ", "* ")) and not following.startswith((" ", "\t")):
            found.append(line)
    return found


def named_files(line: str) -> list[str]:
    """Return the paths that an entry is about; none if it names anything else, or nothing clearly."""
    head = _HEAD.match(line)
    names = [name.strip("` ") for name in _BETWEEN.split(head[1])] if head else []
    paths: list[str] = []
    for name in names:
        if name.startswith(_ROOTS):
            paths.append(name)
        elif paths and _SUFFIX.fullmatch(name):
            # `report.docx and .pdf`
            paths.append(f"{paths[-1].removesuffix(Path(paths[-1]).suffix)}{name}")
        else:
            return []
    return paths


async def _is_old(paths: Sequence[str], transcript: TranscriptDB, workspace: Path, since: float) -> bool:
    """Return whether none of the files is kept on disk, and no turn since a time mentions any of them."""
    if not paths or await asyncio.to_thread(lambda: any(_is_kept(workspace, path) for path in paths)):
        return False
    return not await transcript.mentions({path.rstrip("/").rpartition("/")[2] for path in paths}, since)


def _is_kept(workspace: Path, path: str) -> bool:
    """Return whether a file exists outside temporary and download folders; True if the disk does not answer."""
    if any(folder.casefold() in _PASSING for folder in path.split("/")[:-1]):
        return False
    try:
        os.lstat(workspace / Path(path).expanduser())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, RuntimeError):
        return True
    return True
