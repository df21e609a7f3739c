"""An opened archive. All of its content is untrusted: names, lengths and rows are verified completely before use."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from sprite.backup.archive import SCHEMAS
from sprite.errors import OperatorError
from sprite.protocol import archive as layout

#: Limits for data that is read before it is verified.
LARGEST_MANIFEST: Final = 1 << 30
_CHUNK_BYTES = 1 << 18
_HEAD_BYTES = 256
_ZIP: Final = b"PK\x03\x04"
#: Errors of zipfile and zlib for damaged data; RuntimeError stands for an encrypted entry.
_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)


def is_archive(path: Path) -> bool:
    """Return whether a file begins like an archive, complete or not."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(_ZIP) and f"{layout.README}{layout.TITLE.rstrip()}".encode() in head


class Archive:
    """An open archive with a plausible manifest. Its contents are only trustworthy after `verify`."""

    def __init__(self, path: Path, file: zipfile.ZipFile, manifest: layout.Manifest, raw_manifest: bytes) -> None:
        self.path = path
        self.manifest = manifest
        self.raw_manifest = raw_manifest
        self._zip = file

    @property
    def size(self) -> int:
        """Total size of the content in the manifest, in bytes."""
        return sum(file.size for file in self.manifest.everything)

    def verify(self) -> Iterator[int]:
        """Read everything once and yield the number of bytes read. Raises OperatorError for damaged content."""
        for file in self.manifest.everything:
            digest, size = hashlib.sha256(), 0
            for chunk in self.chunks(file):
                digest.update(chunk)
                size += len(chunk)
                yield len(chunk)
            if (size, digest.hexdigest()) != (file.size, file.sha256):
                raise OperatorError(
                    f"{self.path.name} is damaged: {file.path} is not as it was written. Nothing was imported; use "
                    "another copy of the archive."
                )

    def chunks(self, file: layout.TableFile | layout.PlainFile) -> Iterator[bytes]:
        """Yield the bytes of one file of the archive. Raises OperatorError if it is longer than the manifest says."""
        left = file.size
        try:
            with self._zip.open(file.path) as entry:
                while chunk := entry.read(_CHUNK_BYTES):
                    left -= len(chunk)
                    if left < 0:
                        raise OperatorError(f"{self.path.name}: {file.path} is longer than its manifest says.")
                    yield chunk
        except _DAMAGE as error:
            raise _damaged(self.path, file.path, error) from error

    def rows(self, file: layout.TableFile) -> Iterator[layout.Row]:
        """Yield the rows of a file. Raises OperatorError naming an invalid line."""
        number = 0
        try:
            with self._zip.open(file.path) as entry:
                while line := entry.readline(layout.LONGEST_ROW):
                    number += 1
                    if number > file.rows or not line.endswith(b"\n"):
                        raise self.bad_row(file, number, "the line is incomplete, or the file has one line too many")
                    try:
                        row = layout.from_line(line)
                    except ValueError as error:
                        raise self.bad_row(file, number, str(error)) from error
                    yield row
        except _DAMAGE as error:
            raise _damaged(self.path, file.path, error) from error
        if number != file.rows:
            raise self.bad_row(file, number + 1, f"the line is missing: {file.rows} lines are expected")

    def bad_row(self, file: layout.TableFile, number: int, why: str) -> OperatorError:
        """Return the OperatorError for a row that cannot be used: its file, line number and the reason."""
        return OperatorError(f"{self.path.name}: {file.path}, line {number}: {why}. Nothing was imported.")


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """Open an archive and check its manifest. Raises OperatorError with a text for people."""
    try:
        file = zipfile.ZipFile(path)
    except _DAMAGE as error:
        raise _damaged(path, "its list of contents", error) from error
    with file:
        entries = file.infolist()
        _check_entries(path, entries)
        names = {entry.filename: entry for entry in entries}
        if layout.MANIFEST not in names:
            raise OperatorError(
                f"{path.name} has no {layout.MANIFEST}: it is not complete. Use another copy of the archive."
            )
        if names[layout.MANIFEST].file_size > LARGEST_MANIFEST:
            raise OperatorError(f"{path.name}: its {layout.MANIFEST} is too long.")
        try:
            raw = file.read(layout.MANIFEST)
        except _DAMAGE as error:
            raise _damaged(path, layout.MANIFEST, error) from error
        manifest = _manifest(path, raw)
        _check_manifest(path, manifest, names)
        yield Archive(path, file, manifest, raw)


def _check_entries(path: Path, entries: list[zipfile.ZipInfo]) -> None:
    if len(entries) > layout.MOST_ENTRIES:
        raise OperatorError(f"{path.name} has {len(entries)} files; an archive has at most {layout.MOST_ENTRIES}.")
    if len({entry.filename for entry in entries}) != len(entries):
        raise OperatorError(f"{path.name} has the same file twice: it was not written by a sprite.")
    # Entries that share their bytes can unpack to any size; those of an archive do not overlap.
    if sum(entry.compress_size for entry in entries) > path.stat().st_size:
        raise OperatorError(
            f"{path.name} claims more content than its size allows: the archive was not written by a sprite."
        )


def _manifest(path: Path, raw: bytes) -> layout.Manifest:
    try:
        number = msgspec.json.decode(raw, type=layout.FormatOnly).format
        if number > layout.FORMAT:
            raise OperatorError(
                f"{path.name} was written by a newer Sprite (format {number}, known {layout.FORMAT}). Update Sprite."
            )
        manifest = msgspec.json.decode(raw, type=layout.Manifest)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise _damaged(path, layout.MANIFEST, error) from error
    for name, schema in SCHEMAS.items():
        version, known = manifest.schemas.get(name, 0), len(schema.migrations)
        if version > known:
            raise OperatorError(
                f"{path.name} was written by another version of Sprite ({name} of version {version}; this one has "
                f"{known}). Import it with that version."
            )
        if version < 1:
            raise OperatorError(f"{path.name}: its {layout.MANIFEST} lacks the version of {name}.")
    return manifest


def _check_manifest(path: Path, manifest: layout.Manifest, names: dict[str, zipfile.ZipInfo]) -> None:
    """Check that the manifest lists exactly the files of the archive, and each at a valid path."""
    told = {file.path: file.size for file in manifest.everything}
    if len(told) != len(manifest.everything):
        raise OperatorError(f"{path.name}: its {layout.MANIFEST} names a file twice.")
    for name, size in told.items():
        if name not in names or names[name].file_size != size:
            raise OperatorError(
                f"{path.name} is damaged: {name[:200]!r} is missing, or not as long as its manifest says."
            )
    if extra := names.keys() - told.keys() - {layout.README, layout.MANIFEST}:
        raise OperatorError(f"{path.name} has a file that its {layout.MANIFEST} does not name: {min(extra)[:200]!r}.")
    if [table.path for table in manifest.tables] != [part.path for part in layout.PARTS]:
        raise OperatorError(f"{path.name}: its {layout.MANIFEST} does not list the tables of format {layout.FORMAT}.")
    _check_places(path, manifest)


def _check_places(path: Path, manifest: layout.Manifest) -> None:
    """Check that each file's path stays in its folder, and that permissions and times are valid."""
    if not {file.path for file in manifest.memory} <= {
        f"{layout.MEMORY}/{name}" for name in layout.MEMORY_FILES.values()
    }:
        raise OperatorError(f"{path.name} contains an unknown memory file.")
    if any(not file.path.startswith(f"{layout.FILES}/") for file in manifest.files):
        raise OperatorError(f"{path.name}: its {layout.MANIFEST} names a file outside {layout.FILES}/.")
    files = [file.path.removeprefix(f"{layout.FILES}/") for file in manifest.files]
    folders = [folder.path for folder in manifest.folders]
    for place in [*files, *folders]:
        if not layout.is_plain(place) or layout.is_ours(place):
            raise OperatorError(f"{path.name}: {place[:200]!r} is not a valid name for a person's file.")
    above = {place[:at] for place in [*files, *folders] for at, sign in enumerate(place) if sign == "/"}
    if both := (above | set(folders)) & set(files):
        raise OperatorError(f"{path.name}: {min(both)[:200]!r} cannot be a file and a folder.")
    entries: list[layout.PlainFile | layout.Folder] = [*manifest.memory, *manifest.files, *manifest.folders]
    if any(not 0 <= entry.mode <= layout.MOST_MODE or abs(entry.modified_ns) > layout.LATEST_NS for entry in entries):
        raise OperatorError(f"{path.name}: its {layout.MANIFEST} has invalid permissions or times.")


def _damaged(path: Path, what: str, error: BaseException) -> OperatorError:
    why = str(error) or type(error).__name__
    return OperatorError(
        f"{path.name} is damaged: {what} cannot be read ({why[:300]}). Nothing was imported; use another copy."
    )
