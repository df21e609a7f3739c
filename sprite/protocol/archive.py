"""Layout of an archive: its files, their names and meaning, and the manifest (pure).

A ZIP file of JSON Lines and Markdown. `manifest.json`, its last entry, lists every other file with size and
SHA-256. A row of a table is one JSON object of its columns; a value that is not text is `{"base64": ...}`. A sprite
writes and reads archives; the bridge creates one from a replicated log.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

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

DatabaseName = Literal["transcript.db", "workspace.db", "memory.db"]


@dataclass(frozen=True, slots=True)
class Part:
    """A table, and the file of the archive with its rows in the order in which they were written.

    A `derived` part is for readers only: an import rebuilds it from the log.
    """

    path: str
    database: DatabaseName
    table: str
    words: str
    order: str = "rowid"
    #: Columns that describe this machine's disk only.
    left_out: tuple[str, ...] = ()
    derived: bool = False
    #: Columns added after rows had been replicated. Older replicas lack them; they become null.
    later: tuple[str, ...] = ()


#: In the order in which an import fills them: referenced tables come first.
PARTS: Final = (
    Part("log/identity.jsonl", "transcript.db", "log_identity", "which log this is, for good"),
    Part("log/sessions.jsonl", "transcript.db", "sessions", "conversations, from their first message to their end"),
    Part(
        "log/observations.jsonl",
        "transcript.db",
        "observations",
        "turns: what was said, every tool call, the reply, how it ended, of which project and from which program",
        later=("asked_by",),
    ),
    Part("log/journal.jsonl", "transcript.db", "turn_journal", "the events of a turn that has not ended"),
    Part(
        "log/curations.jsonl",
        "transcript.db",
        "curations",
        "everything that changed memory: the curator's answers as they came and the decisions about them, edits by "
        "hand, what was forgotten",
    ),
    Part("log/lost_calls.jsonl", "transcript.db", "lost_calls", "calls that were paid for and gave no answer"),
    Part(
        "log/disk_entries.jsonl",
        "transcript.db",
        "disk_entries",
        "the person's files as the log knew them last",
        order="path",
        left_out=("changed_ns", "inode"),
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
    Part(
        "chat/messages.jsonl",
        "workspace.db",
        "chat_messages",
        "the lines of the chat, as people saw them",
        later=("asked_by",),
    ),
    Part(
        "chat/missions.jsonl", "workspace.db", "missions", "the messages taken, and how each ended", later=("asked_by",)
    ),
    Part(
        "memory/written.jsonl",
        "memory.db",
        "written_files",
        "which version of a memory file was written to disk last",
        order="name",
    ),
    Part(
        "memory/learnings.jsonl",
        "memory.db",
        "learnings",
        "what was learned, each with the turn it rests on",
        derived=True,
    ),
    Part("memory/actions.jsonl", "memory.db", "pending_actions", "what is to be done, and was", derived=True),
    Part("memory/versions.jsonl", "memory.db", "file_versions", "every version of the memory files", derived=True),
)

#: The files of the memory folder by their name on disk, and their names in an archive.
MEMORY_FILES: Final = {
    **{name: name for name in ("soul.md", "os.md", "tools.md", "user.md", "files.md", "context.md")},
    "shipped.json": "shipped.json",
    ".agent-at-work": "agent-at-work.json",
}


class Blob(msgspec.Struct):
    """Bytes in JSON."""

    base64: bytes


class TableFile(msgspec.Struct, frozen=True):
    """A file of rows."""

    path: str
    size: int
    sha256: str
    rows: int


class PlainFile(msgspec.Struct, frozen=True):
    """A file as on disk; `mode` are its permission bits, `modified_ns` is in nanoseconds since 1970."""

    path: str
    size: int
    sha256: str
    mode: int
    modified_ns: int


class Folder(msgspec.Struct, frozen=True):
    """A folder below `files/`."""

    path: str
    mode: int
    modified_ns: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List of all files in an archive except itself and the README."""

    #: First, so that a reader of an older format stops here.
    format: int
    #: Number of migrations of each database.
    schemas: dict[DatabaseName, int]
    #: All tables, or all that are not derived: a bridge has only the log and cannot include the others.
    tables: list[TableFile]
    memory: list[PlainFile]
    files: list[PlainFile]
    folders: list[Folder]

    @property
    def everything(self) -> list[TableFile | PlainFile]:
        """All files that must exist."""
        return [*self.tables, *self.memory, *self.files]


class FormatOnly(msgspec.Struct, frozen=True):
    """The part of a manifest that every format has."""

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
    """Return whether a path leads only downwards and has one meaning."""
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
    """Return why a person's file cannot be in an archive under this path; None if it can.

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
    """Return permission bits as stored in an archive."""
    return mode & MOST_MODE


def kept_time(modified_ns: int) -> int:
    """Return a time as stored in an archive, limited to the readable range. A file may claim the year 9999."""
    return max(-LATEST_NS, min(modified_ns, LATEST_NS))


def readme(*, shows_derived: bool = True) -> str:
    """Return the README for people who open an archive without a sprite."""
    derived = " (made of the log; an import makes it anew)"
    tables = [
        f"- `{part.path}`: {part.words}{derived if part.derived else ''}"
        for part in PARTS
        if shows_derived or not part.derived
    ]
    return "\n".join(
        [
            TITLE,
            "Everything that an agent remembers, and its person's files, as plain text. Nothing here needs a program:",
            "`.jsonl` files have one JSON object a line, a row of a table each; times are seconds since 1970, in UTC.",
            "",
            "To have an agent go on from here: `python -m sprite import THIS_FILE --workspace AN_EMPTY_FOLDER`.",
            "",
            *tables,
            "- `memory/*.md`: the six memory files; `shipped.json`, `agent-at-work.json`: what is known of them",
            f"- `{FILES}/`: the person's folders",
            f"- `{MANIFEST}`: every file with its size and SHA-256; format {FORMAT}",
            "",
            "Not in here: tokens and keys, the program itself, what it can make anew. What is forgotten in the agent",
            "later is still in here: delete what you no longer need.",
            "",
        ]
    )
