"""Reader for an export of claude.ai: `conversations.json`, or a zip that contains it.

No name in the zip is used for extraction: its one document is copied to an anonymous file, up to a limit.
"""

from __future__ import annotations

import struct
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sprite.imports.observed_turns import Conversation, Turn
from sprite.imports.reader import Surroundings, Tally, UnreadableError, decode, entries, moment, word
from sprite.log.transcript import ImportedTurn

SOURCE = "claude.ai"
_NAME = "conversations.json"
#: Larger than any export.
_MOST_BYTES = 4 * 1024**3
#: An export has a handful of files, so its file list is small.
_MOST_LIST_BYTES = 4 * 1024 * 1024
#: Text compresses to a twentieth at best; a higher ratio means a zip bomb.
_MOST_RATIO, _RATIO_FROM_BYTES = 200, 64 * 1024 * 1024
_COPY_BYTES = 1024 * 1024
#: End of a zip's file list: signature, ..., size of the list, its offset, length of the comment.
_END, _END_SIZE, _END_WITHIN = b"PK\x05\x06", 22, 22 + 65_535
_LOCATOR, _LOCATOR_SIZE, _END64, _END64_SIZE = b"PK\x06\x07", 20, b"PK\x06\x06", 56
#: Placeholder for a number that does not fit: the larger record has it.
_SEE_RECORD = 0xFFFFFFFF
#: The model's thoughts, and internal data of the page.
_PASSED_BLOCKS = frozenset({"thinking", "redacted_thinking", "token_budget", "flag"})


class ClaudeAiReader:
    """Read exports; each conversation becomes a session."""

    kind = SOURCE
    name = "claude.ai export"

    def recognises(self, path: Path, opening: bytes) -> bool:
        """Return whether this is a list of conversations, or a zip with one."""
        if opening.startswith(b"PK\x03\x04"):
            try:
                with _zip(path) as archive:
                    return _conversations(archive) is not None
            except (OSError, UnreadableError, zipfile.BadZipFile, NotImplementedError, ValueError):
                return False
        head = opening.removeprefix(b"\xef\xbb\xbf").lstrip()
        return head.startswith(b"[") and b'"chat_messages"' in opening and b'"uuid"' in opening

    def read(self, paths: list[Path], around: Surroundings, tally: Tally) -> Iterator[ImportedTurn]:
        """Yield the turns of each conversation, the oldest conversation first."""
        for path in paths:
            try:
                with _document(path, tally) as stream:
                    tally.files += 1
                    yield from _all(path, stream, around, tally)
            except OSError as error:
                tally.refuse(path, error)
            except (UnreadableError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
                tally.refuse(path, f"cannot be read: {error}")


def _all(path: Path, stream: BinaryIO, around: Surroundings, tally: Tally) -> Iterator[ImportedTurn]:
    places: list[tuple[float, int, int, int]] = []
    start = stream.tell()
    for number, (offset, data) in enumerate(entries(stream, _MOST_BYTES), start=1):
        try:
            value = decode(data)
        except UnreadableError as error:
            tally.damage(path, number, str(error))
            continue
        if isinstance(value, dict) and isinstance(value.get("chat_messages"), list):
            places.append((moment(value.get("created_at")) or 0.0, number, start + offset, len(data)))
        else:
            tally.damage(path, number, "wrong shape: no conversation")
    for _, number, offset, size in sorted(places):
        stream.seek(offset)
        around.on_bytes(size)
        yield from _turns(decode(stream.read(size)), number, path, around, tally)


def _turns(
    value: dict[str, Any], number: int, path: Path, around: Surroundings, tally: Tally
) -> Iterator[ImportedTurn]:
    conversation = Conversation(SOURCE, word(value.get("uuid")), path, around.now, tally)
    turns: list[Turn] = []
    #: The turn of each message: an answer belongs to its parent message, even in another branch.
    by_message: dict[str, Turn] = {}
    for message in value["chat_messages"]:
        if not isinstance(message, dict):
            tally.damage(path, number, "wrong shape: a message that is none")
            continue
        at, key = moment(message.get("created_at")), word(message.get("uuid"))
        sender = word(message.get("sender"))
        if sender == "human":
            if at is None:
                tally.damage(path, number, "no time at which this was said")
                continue
            turn = Turn(key, number, at, at)
            turns.append(turn)
            _heard(turn, message, tally)
        elif sender != "assistant":
            tally.passed_over(f"claude.ai messages of {sender[:60]!r}")
            continue
        else:
            before = by_message.get(word(message.get("parent_message_uuid"))) or (turns[-1] if turns else None)
            if before is None:
                tally.passed_over("claude.ai answers to nothing")
                continue
            turn = before
            _answered(turn, message, tally)
        turn.touch(at)
        by_message[key] = turn
    for turn in turns:
        if (finished := conversation.finished(turn)) is not None:
            yield finished


def _heard(turn: Turn, message: dict[str, Any], tally: Tally) -> None:
    """Add a person's message; attachments become tool results, since they are not the person's words."""
    turn.said.append("\n\n".join(text for _, text in _texts(message, tally)))
    for place, attached in enumerate([*_listed(message, "attachments"), *_listed(message, "files")]):
        key = f"attachment-{place}"
        turn.calls(key, "Attachment", {"file_name": word(attached.get("file_name"))})
        turn.answers(key, word(attached.get("extracted_content")) or "[not in the export]", is_error=False)
    turn.waits = True


def _answered(turn: Turn, message: dict[str, Any], tally: Tally) -> None:
    for block, text in _texts(message, tally):
        kind, key = word(block.get("type")), word(block.get("id")) or f"call-{len(turn.tools)}"
        if kind == "tool_use":
            turn.calls(key, word(block.get("name")), block.get("input"))
        elif kind == "tool_result":
            waiting = [name for name, call in turn.tools.items() if call.result is None and call.name != "Attachment"]
            key = word(block.get("tool_use_id")) or (waiting[0] if waiting else "")
            turn.answers(key, block.get("content"), is_error=block.get("is_error") is True)
        else:
            turn.says(text)


def _texts(message: dict[str, Any], tally: Tally) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the blocks of a message with their text; older exports have only text."""
    blocks = _listed(message, "content")
    if not blocks:
        yield {}, word(message.get("text"))
    for block in blocks:
        kind = word(block.get("type"))
        if kind in {"text", "tool_use", "tool_result"}:
            yield block, word(block.get("text"))
        elif kind not in _PASSED_BLOCKS:
            tally.passed_over(f"claude.ai blocks of type {kind[:60]!r}")


def _listed(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = value.get(name)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


# --- the zip ---


@contextmanager
def _document(path: Path, tally: Tally) -> Iterator[BinaryIO]:
    """Open the list of conversations at its beginning."""
    with path.open("rb") as stream:
        if stream.read(4) != b"PK\x03\x04":
            stream.seek(0)
            if stream.read(3) != b"\xef\xbb\xbf":
                stream.seek(0)
            yield stream
            return
    with _zip(path) as archive, tempfile.TemporaryFile() as copy:
        inside = _conversations(archive)
        if inside is None:
            raise UnreadableError(f"there is no {_NAME} in it")
        for other in archive.infolist():
            if other is not inside and not other.is_dir():
                tally.passed_over("other files in a claude.ai export")
        if inside.file_size > max(_RATIO_FROM_BYTES, _MOST_RATIO * inside.compress_size):
            raise UnreadableError(
                f"its {_NAME} is {inside.file_size:,} bytes out of {inside.compress_size:,}: no export"
            )
        with archive.open(inside) as packed:
            copied = 0
            while chunk := packed.read(_COPY_BYTES):
                copied += len(chunk)
                if copied > min(_MOST_BYTES, inside.file_size):
                    raise UnreadableError(f"its {_NAME} is longer than it says")
                copy.write(chunk)
        copy.seek(0)
        yield copy


@contextmanager
def _zip(path: Path) -> Iterator[zipfile.ZipFile]:
    with path.open("rb") as stream:
        # Python reads the whole file list when it opens a zip, so check its size first.
        size = _list_bytes(stream)
        if size > _MOST_LIST_BYTES:
            raise UnreadableError(f"its list of files alone takes {size:,} bytes: no export has so many")
        stream.seek(0)
        with zipfile.ZipFile(stream) as archive:
            yield archive


def _list_bytes(stream: BinaryIO) -> int:
    """Return the size of a zip's file list as stated by the zip."""
    length = stream.seek(0, 2)
    stream.seek(max(0, length - _END_WITHIN - _LOCATOR_SIZE - _END64_SIZE))
    tail = stream.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + _END_SIZE:
        raise UnreadableError("it is no whole zip")
    (size,) = struct.unpack_from("<I", tail, at + 12)
    if tail[max(0, at - _LOCATOR_SIZE) : at].startswith(_LOCATOR):
        (place,) = struct.unpack_from("<Q", tail, at - _LOCATOR_SIZE + 8)
        stream.seek(min(place, length))
        record = stream.read(_END64_SIZE)
        if len(record) < _END64_SIZE or not record.startswith(_END64):
            raise UnreadableError("it is no whole zip")
        size = max(size if size != _SEE_RECORD else 0, struct.unpack_from("<Q", record, 40)[0])
    return int(size)


def _conversations(archive: zipfile.ZipFile) -> zipfile.ZipInfo | None:
    """Return the document of an export, at the zip's top or in its one folder."""
    found = [entry for entry in archive.infolist() if entry.filename.split("/")[-1] == _NAME]
    return min(found, key=lambda entry: entry.filename.count("/"), default=None)
