"""What stands where in an archive: its files, their names and meaning, and the manifest (pure).

A ZIP file of JSON Lines and Markdown. `manifest.json`, its last entry, names every other one with size and SHA-256.
A row of a table is one JSON object of its columns; a value that is no text is `{"base64": ...}`.

A sprite writes archives and reads them; the bridge makes one of a log that was shipped to it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

#: What a column holds, and a row by its columns.
Value = str | int | float | bytes | None
Row = Mapping[str, Value]

#: Raised when a reader of today could not make sense of an archive any more.
FORMAT: Final = 1
README: Final = "README.md"
MANIFEST: Final = "manifest.json"
#: The first entry begins with it, uncompressed: so an archive is known by its first bytes, also where it was cut off.
TITLE: Final = "# A sprite's archive\n"
FILES: Final = "files"
MEMORY: Final = "memory"
#: The longest row, as JSON. The log cuts what tools said; a person may paste a book.
LONGEST_ROW: Final = 256 * 1024 * 1024

#: Linux opens no longer one.
LONGEST_PATH: Final = 4096
#: What of a file's name is put into an archive, in bytes: an import makes it below folders of its own.
LONGEST_KEPT_PATH: Final = 3500
_LONGEST_NAME: Final = 255
#: No archive has more files.
MOST_ENTRIES: Final = 2_000_000
MOST_DEEP: Final = 100
#: What is ours of a workspace.
OURS: Final = ".os"
#: Permissions as people set them, with none that lend a file its owner's rights; and the times that a disk can keep.
MOST_MODE: Final = 0o777
LATEST_NS: Final = 2**62

DatabaseName = Literal["transcript.db", "workspace.db", "memory.db"]


@dataclass(frozen=True, slots=True)
class Part:
    """A table and the file of the archive that holds its rows, in the order in which they were written.

    What is `derived` is there to be read: an import makes it anew from the log.
    """

    path: str
    database: DatabaseName
    table: str
    words: str
    order: str = "rowid"
    #: Columns that say something of this machine's disk alone.
    left_out: tuple[str, ...] = ()
    derived: bool = False
    #: Columns that came when rows had been shipped already: what a store has from before is without them. Null, then.
    later: tuple[str, ...] = ()


#: In the order in which an import fills them: what is referred to comes first.
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
        *("log/disk_entries.jsonl", "transcript.db", "disk_entries"),
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
        *("chat/messages.jsonl", "workspace.db", "chat_messages", "the lines of the chat, as people saw them"),
        later=("asked_by",),
    ),
    Part(
        *("chat/missions.jsonl", "workspace.db", "missions", "the messages taken, and how each ended"),
        later=("asked_by",),
    ),
    Part(
        *("memory/written.jsonl", "memory.db", "written_files"),
        "which version of a memory file was written to disk last",
        order="name",
    ),
    Part(
        *("memory/learnings.jsonl", "memory.db", "learnings"),
        "what was learned, each with the turn it rests on",
        derived=True,
    ),
    Part("memory/actions.jsonl", "memory.db", "pending_actions", "what is to be done, and was", derived=True),
    Part("memory/versions.jsonl", "memory.db", "file_versions", "every version of the memory files", derived=True),
)

#: The files of the memory folder by their name on disk, and what they are called in an archive.
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
    """A file as it is on disk; `mode` are its permission bits, `modified_ns` is in nanoseconds since 1970."""

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
    """Everything that is in an archive beside itself and the README."""

    #: First, so that a reader who knows a lower number reads no further.
    format: int
    #: How many migrations each database had.
    schemas: dict[DatabaseName, int]
    #: All that there are, or all that are not derived: a bridge, which has the log alone, cannot show the others.
    tables: list[TableFile]
    memory: list[PlainFile]
    files: list[PlainFile]
    folders: list[Folder]

    @property
    def everything(self) -> list[TableFile | PlainFile]:
        """Every file that has to be there."""
        return [*self.tables, *self.memory, *self.files]


class FormatOnly(msgspec.Struct, frozen=True):
    """What a manifest of any format has."""

    format: int


_ROWS: Final = msgspec.json.Decoder(dict[str, str | int | float | Blob | None])


def to_line(row: Row) -> bytes:
    """A row as JSON, with its end of line. ValueError for a number that JSON does not have."""
    if any(isinstance(value, float) and value - value != 0 for value in row.values()):
        raise ValueError("a number is infinite, which JSON does not have")
    return msgspec.json.encode({k: Blob(v) if isinstance(v, bytes) else v for k, v in row.items()}) + b"\n"


def from_line(line: bytes) -> dict[str, Value]:
    """The row of a line; ValueError says what is wrong with it."""
    try:
        row = _ROWS.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    return {name: value.base64 if isinstance(value, Blob) else value for name, value in row.items()}


def is_plain(path: str) -> bool:
    """Whether a path leads down from where it starts, and to one place only."""
    return (
        len(path) <= LONGEST_PATH and "\0" not in path and all(part not in {"", ".", ".."} for part in path.split("/"))
    )


def is_ours(path: str) -> bool:
    """Return whether a path leads into `.os/`, also on a disk that does not tell `.OS` from it."""
    return folded(path.split("/", maxsplit=1)[0]) == OURS


def folded(path: str) -> str:
    """Return what paths have in common that a disk may take for the same: case and composition do not count."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def why_not_kept(path: str) -> str | None:
    """Why one of the person's files cannot be in an archive by this path from the workspace; None where it can.

    An agent makes files by any name; a path that comes from elsewhere may also lead anywhere.
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
    """Permission bits as an archive has them."""
    return mode & MOST_MODE


def kept_time(modified_ns: int) -> int:
    """A time as an archive has it: the nearest that a reader takes. Anybody can give a file one of a year 9999."""
    return max(-LATEST_NS, min(modified_ns, LATEST_NS))


def readme(*, shows_derived: bool = True) -> str:
    """What people read who open an archive without a sprite."""
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
