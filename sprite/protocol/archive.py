"""Layout of an archive: its files, their names and meaning, and the manifest (pure).

A ZIP file of JSON Lines and Markdown. `manifest.json`, its last entry, lists every other file with size and
SHA-256. A row of a table is one JSON object of its columns; a value that is not text is `{"base64": ...}`. A sprite
writes and reads archives; the bridge creates one from a replicated log.
"""

from __future__ import annotations

import hashlib
import stat
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final, Literal, Self, cast

import msgspec

#: A column's value, and a row by its columns.
Value = str | int | float | bytes | None
Row = Mapping[str, Value]

#: Increased when current readers could no longer read an archive.
FORMAT: Final = 1
README: Final = "README.md"
MANIFEST: Final = "manifest.json"
#: The uncompressed start of the first entry. It identifies an archive by its first bytes, even a truncated one.
TITLE: Final = "# A sprite's archive\n"
FILES: Final = "files"
MEMORY: Final = "memory"
#: Limit for a row as JSON. The log cuts tool results, but a person may paste a book.
LONGEST_ROW: Final = 256 * 1024 * 1024

#: Linux's limit for a path.
LONGEST_PATH: Final = 4096
#: Limit for a file name in an archive, in bytes: an import prepends its own folders.
LONGEST_KEPT_PATH: Final = 3500
_LONGEST_NAME: Final = 255
#: Limit for the files of an archive.
MOST_ENTRIES: Final = 2_000_000
MOST_DEEP: Final = 100
#: Sprite's folder in a workspace.
OURS: Final = ".os"
#: Ordinary permission bits, without set-user-id and the like; and the latest time that a disk can store.
MOST_MODE: Final = 0o777
LATEST_NS: Final = 2**62

DatabaseName = Literal["transcript.db", "workspace.db"]


@dataclass(frozen=True, slots=True)
class Part:
    """A table and the archive's file that holds its rows, in the order in which they were written."""

    path: str
    database: DatabaseName
    table: str
    words: str
    order: str = "rowid"


#: In the order in which an import fills them: referenced tables come first.
PARTS: Final = (
    Part("log/identity.jsonl", "transcript.db", "log_identity", "which log this is, for good"),
    Part("log/sessions.jsonl", "transcript.db", "sessions", "conversations, from their first message to their end"),
    Part(
        "log/observations.jsonl",
        "transcript.db",
        "observations",
        "turns: what was said, every tool call, the reply, how it ended, of which project and from which program",
    ),
    Part("log/journal.jsonl", "transcript.db", "turn_journal", "the events of a turn that has not ended"),
    Part(
        "log/curations.jsonl",
        "transcript.db",
        "curations",
        "everything that changed memory: the curator's answers as they came and the decisions about them, edits by "
        "hand, rules about tool calls, what was forgotten",
    ),
    Part("log/lost_calls.jsonl", "transcript.db", "lost_calls", "calls that were paid for and gave no answer"),
    Part(
        "log/disk_entries.jsonl",
        "transcript.db",
        "disk_entries",
        "the person's files as the log knew them last",
        order="path",
    ),
    Part("log/disk_look.jsonl", "transcript.db", "disk_look", "when the log looked at them last"),
    Part(
        "log/file_deeds.jsonl", "transcript.db", "file_deeds", "what the person did to files that no turn tells of yet"
    ),
    Part("canvas/stacks.jsonl", "workspace.db", "stacks", "the stacks of the canvas"),
    Part("canvas/cards.jsonl", "workspace.db", "cards", "the cards, with their blocks"),
    Part(
        "canvas/changes.jsonl", "workspace.db", "canvas_changes", "what the person did there that no turn tells of yet"
    ),
    Part("chat/messages.jsonl", "workspace.db", "chat_messages", "the lines of the chat, as people saw them"),
    Part("chat/missions.jsonl", "workspace.db", "missions", "the messages taken, and how each ended"),
    Part(
        "chat/sessions.jsonl", "workspace.db", "session_titles", "the titles that the person gave", order="session_id"
    ),
    Part("network/rules.jsonl", "workspace.db", "host_rules", "the hosts that the person always allows"),
    Part("network/connections.jsonl", "workspace.db", "host_connections", "the newest connections of the agent"),
)

#: The files of the memory folder by their name on disk, and their names in an archive.
MEMORY_FILES: Final = {
    **{name: name for name in ("soul.md", "os.md", "tools.md", "user.md", "files.md", "context.md")},
    "shipped.json": "shipped.json",
    ".agent-at-work": "agent-at-work.json",
}


class Blob(msgspec.Struct):
    """Bytes as base64 in JSON."""

    base64: bytes


class TableFile(msgspec.Struct, frozen=True):
    """An archive's file with the rows of a table."""

    path: str
    size: int
    sha256: str
    rows: int


class PlainFile(msgspec.Struct, frozen=True):
    """An archive's file as on disk; `mode` are its permission bits, `modified_ns` is in nanoseconds since 1970."""

    path: str
    size: int
    sha256: str
    mode: int
    modified_ns: int


class Folder(msgspec.Struct, frozen=True):
    """A folder below `files/` in an archive."""

    path: str
    mode: int
    modified_ns: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List of all files in an archive except itself and the README."""

    #: First, so that a reader of an older format stops here.
    format: int
    #: Number of migrations of each database.
    schemas: dict[DatabaseName, int]
    tables: list[TableFile]
    memory: list[PlainFile]
    files: list[PlainFile]
    folders: list[Folder]

    @property
    def everything(self) -> list[TableFile | PlainFile]:
        """Return the entries of all files that the archive must contain, except the manifest and the README."""
        return [*self.tables, *self.memory, *self.files]


class FormatOnly(msgspec.Struct, frozen=True):
    """The format number of a manifest, the one field that every version of the archive format has."""

    format: int


_ROWS: Final = msgspec.json.Decoder(dict[str, str | int | float | Blob | None])


def to_line(row: Row) -> bytes:
    """Return a row as a line of JSON with its newline. Raises ValueError for a number that JSON lacks."""
    if any(isinstance(value, float) and value - value != 0 for value in row.values()):
        raise ValueError("a number is infinite, which JSON does not have")
    return msgspec.json.encode({k: Blob(v) if isinstance(v, bytes) else v for k, v in row.items()}) + b"\n"


def from_line(line: bytes) -> dict[str, Value]:
    """Return the row of a line. Raises ValueError with the reason if it is invalid."""
    try:
        row = _ROWS.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    return {name: value.base64 if isinstance(value, Blob) else value for name, value in row.items()}


def is_plain(path: str) -> bool:
    """Return whether a path has no part that is empty, `.` or `..`, no NUL, and no excessive length."""
    return (
        len(path) <= LONGEST_PATH and "\0" not in path and all(part not in {"", ".", ".."} for part in path.split("/"))
    )


def is_ours(path: str) -> bool:
    """Return whether a path leads into `.os/`, even on a case-insensitive disk."""
    return folded(path.split("/", maxsplit=1)[0]) == OURS


def folded(path: str) -> str:
    """Return a path in the form that a disk may use for comparison, ignoring case and composition."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def why_not_kept(path: str) -> str | None:
    """Return why a person's file cannot be in an archive under this path, or None if it can.

    An agent may use any file name, and a foreign path may lead anywhere.
    """
    try:
        longest = max(len(part.encode()) for part in path.split("/"))
    except UnicodeEncodeError:
        return "its name is no text"
    if len(path.encode()) > LONGEST_KEPT_PATH or longest > _LONGEST_NAME:
        return "its name is too long"
    if path.count("/") > MOST_DEEP:
        return "too deep"
    return None if is_plain(path) and not is_ours(path) else "its name leads elsewhere"


def kept_mode(mode: int) -> int:
    """Return a file's permission bits as an archive stores them: without setuid and other special bits."""
    return mode & MOST_MODE


def kept_time(modified_ns: int) -> int:
    """Return a file's time as an archive stores it, limited to the readable range.

    A file may claim the year 9999.
    """
    return max(-LATEST_NS, min(modified_ns, LATEST_NS))


def readme() -> str:
    """Return the README for people who open an archive without a sprite."""
    return "\n".join(
        [
            TITLE,
            "Everything that an agent remembers, and its person's files, as plain text. Nothing here needs a program:",
            "`.jsonl` files have one JSON object a line, a row of a table each; times are seconds since 1970, in UTC.",
            "",
            "To have an agent go on from here: `python -m sprite import THIS_FILE --workspace AN_EMPTY_FOLDER`.",
            "",
            *(f"- `{part.path}`: {part.words}" for part in PARTS),
            "- `memory/*.md`: the six memory files; `shipped.json`, `agent-at-work.json`: what is known of them",
            f"- `{FILES}/`: the person's folders",
            f"- `{MANIFEST}`: every file with its size and SHA-256; format {FORMAT}",
            "",
            "Not in here: tokens and keys, the program itself, what it makes of the log, such as learnings. What is",
            "forgotten in the agent later is still in here: delete what you no longer need.",
            "",
        ]
    )


#: Size of pieces in which rows are compressed and files should be passed.
CHUNK_BYTES: Final = 1 << 18
#: The earliest time that a ZIP file can represent.
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
#: Entries from this size on use 64-bit lengths; compressed data may be slightly longer than its source.
_LARGE_BYTES: Final = 2_000_000_000


class _Forwards:
    """A write-only stream without seeking, so that `zipfile` writes the same bytes to a file and to a pipe."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def write(self, data: bytes) -> int:
        self._raw.write(data)
        return len(data)

    def flush(self) -> None:
        self._raw.flush()


class Entry:
    """A file of an archive while it is being written; it counts and hashes the bytes."""

    def __init__(self, out: BinaryIO) -> None:
        self.size = 0
        self._out = out
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The SHA-256 (hex) of the written bytes."""
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._out.write(data)
        self._digest.update(data)
        self.size += len(data)


class Rows:
    """Write the rows of one table into an archive, one JSON line per row."""

    def __init__(self, entry: Entry) -> None:
        #: The number of rows given.
        self.count = 0
        self._entry = entry
        self._held = list[bytes]()
        self._held_bytes = 0

    def add(self, line: bytes) -> bool:
        """Add a row, as a line from `to_line`. Return whether the collected rows were written to the archive now."""
        self._held.append(line)
        self._held_bytes += len(line)
        self.count += 1
        if self._held_bytes < CHUNK_BYTES:
            return False
        self.flush()
        return True

    def flush(self) -> None:
        """Write the rows that `add` has collected and not written yet."""
        if self._held:
            self._entry.write(b"".join(self._held))
        self._held, self._held_bytes = [], 0


class ArchiveWriter:
    """Write an archive: `with ArchiveWriter(stream) as archive:`.

    Then call `table`, `memory`, `file`, `folder` and `end`, in this order.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._zip = zipfile.ZipFile(cast("BinaryIO", _Forwards(stream)), "w")
        self._tables, self._memory = list[TableFile](), list[PlainFile]()
        self._files, self._folders = list[PlainFile](), list[Folder]()

    def __enter__(self) -> Self:
        self._zip.writestr(_entry(README, zipfile.ZIP_STORED), readme())
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    @contextmanager
    def table(self, path: str) -> Iterator[Rows]:
        """Open the next table, in the order of PARTS."""
        with self._open(path, is_large=True) as entry:
            rows = Rows(entry)
            yield rows
            rows.flush()
        self._tables.append(TableFile(path, entry.size, entry.sha256, rows.count))

    def memory(self, name: str, content: bytes, mode: int, modified_ns: int) -> None:
        """Add a file of the memory folder by its name there, in the order of MEMORY_FILES."""
        path = f"{MEMORY}/{MEMORY_FILES[name]}"
        self._zip.writestr(_entry(path), content)
        digest = hashlib.sha256(content).hexdigest()
        self._memory.append(PlainFile(path, len(content), digest, kept_mode(mode), kept_time(modified_ns)))

    @contextmanager
    def file(self, path: str, size: int, mode: int, modified_ns: int) -> Iterator[Entry]:
        """Open one of the person's files by its path in the workspace; `size` is its approximate length."""
        name = f"{FILES}/{path}"
        with self._open(name, is_large=size > _LARGE_BYTES) as entry:
            yield entry
        self._files.append(PlainFile(name, entry.size, entry.sha256, kept_mode(mode), kept_time(modified_ns)))

    def folder(self, folder: Folder) -> None:
        """Add one of the person's folders; it may be empty."""
        self._folders.append(Folder(folder.path, kept_mode(folder.mode), kept_time(folder.modified_ns)))

    def end(self, schemas: Mapping[DatabaseName, int]) -> Manifest:
        """Write the manifest and end the archive. `schemas` has the number of migrations of each database."""
        manifest = Manifest(FORMAT, dict(schemas), self._tables, self._memory, self._files, self._folders)
        self._zip.writestr(_entry(MANIFEST), msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        return manifest

    @contextmanager
    def _open(self, path: str, *, is_large: bool) -> Iterator[Entry]:
        with self._zip.open(_entry(path), "w", force_zip64=is_large) as out:
            yield Entry(cast("BinaryIO", out))


def _entry(path: str, compression: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, _NO_TIME)
    info.create_system, info.compress_type = _UNIX, compression
    info.external_attr = (stat.S_IFREG | 0o600) << 16
    return info
