"""Build the release archive for a VM: the sprite's code and requirements, reproducible byte for byte.

This module handles files and hashes only, no network.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: Python writes this folder beside the code.
_LEFT_OUT = "__pycache__"
_SUFFIXES = frozenset({".py", ".md", ".json", ".toml"})
_DIGEST_CHARS = 12
#: Far above the size of a release; bounds the archives that an untrusted VM sends.
_MAX_ARCHIVE_BYTES = 64 * 1024 * 1024
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Archive:
    """A release. `digest` identifies code and requirements, `environment` the requirements alone (12 hex digits)."""

    version: str
    digest: str
    environment: str
    #: SHA-256 of each file, by its path in the archive.
    hashes: Mapping[str, str] = field(repr=False)
    #: A gzipped tar, with the same bytes for the same files.
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, root: Path) -> Archive:
        """Build the archive from a checkout: `sprite/`, its requirements, and the tested versions."""
        contents = {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted((root / "sprite").rglob("*"))
            if path.suffix in _SUFFIXES and _LEFT_OUT not in path.parts
        }
        contents["requirements.txt"] = (root / "sprite" / "requirements.txt").read_bytes()
        contents["constraints.txt"] = (root / "constraints.txt").read_bytes()
        found = _VERSION.search(contents["sprite/__init__.py"].decode())
        hashes = {name: _sha256(content) for name, content in contents.items()}
        return cls(
            version=found[1] if found else "0",
            digest=_digest_of(hashes),
            environment=_digest_of({name: hashes[name] for name in ("requirements.txt", "constraints.txt")}),
            hashes=hashes,
            data=_packed(contents),
        )


def contents_of(archive: bytes) -> dict[str, bytes]:
    """Return the files of a gzipped tar from a VM, without links and devices. ValueError if it is invalid."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(_inflated(archive)), mode="r:") as tar:
            for member in tar:
                # A sparse member may claim any size.
                if member.isreg() and not member.issparse() and (stream := tar.extractfile(member)) is not None:
                    contents[member.name.removeprefix("./")] = stream.read()
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(f"The VM's files cannot be read: {error}") from error
    return contents


def _inflated(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    plain = unpacker.decompress(data, _MAX_ARCHIVE_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError("far more than the code can be")
    return plain


def hashes_of(contents: Mapping[str, bytes], folder: str) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by its relative path."""
    prefix = f"{folder}/"
    found = {name.removeprefix(prefix): data for name, data in contents.items() if name.startswith(prefix)}
    return {name.removeprefix("./"): _sha256(data) for name, data in found.items()}


def _packed(contents: Mapping[str, bytes]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in contents.items():
            # The archive must not depend on this machine, its clock or its users.
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def _digest_of(hashes: Mapping[str, str]) -> str:
    lines = "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return _sha256(lines.encode())[:_DIGEST_CHARS]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
