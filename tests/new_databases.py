"""New databases as copies of a prepared one: making the tables takes ten times as long."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path

from bridge.db.open import open_database
from sprite.log.transcript import SCHEMA as TRANSCRIPT
from sprite.memory.database import SCHEMA as MEMORY
from sprite.storage.connection import filling


def put_memory(folder: Path) -> None:
    """Put an empty transcript.db and memory.db into a folder without a log."""
    if not (folder / TRANSCRIPT.name).exists():
        put_transcript(folder)
        if not (folder / MEMORY.name).exists():
            (folder / MEMORY.name).write_bytes(_image(MEMORY.name))


def put_transcript(folder: Path) -> None:
    """Put an empty log with a new identity into a folder without a log."""
    path = folder / TRANSCRIPT.name
    if path.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    image = _image(TRANSCRIPT.name)
    path.write_bytes(image.replace(_identity(), uuid.uuid4().hex.encode()))


def put_bridge(path: Path) -> None:
    """Put an empty bridge.db at a path."""
    path.write_bytes(_bridge_image())


@cache
def _image(name: str) -> bytes:
    schema = {MEMORY.name: MEMORY, TRANSCRIPT.name: TRANSCRIPT}[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / schema.name
        with filling(path, schema):
            pass
        return path.read_bytes()


@cache
def _identity() -> bytes:
    """Return the identity of the log in the image, where it occurs once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / TRANSCRIPT.name
        path.write_bytes(_image(TRANSCRIPT.name))
        with closing(sqlite3.connect(path)) as log:
            (found,) = log.execute("SELECT id FROM log_identity").fetchone()
    return str(found).encode()


@cache
def _bridge_image() -> bytes:
    async def make(path: Path) -> None:
        async with open_database(path):
            pass

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as thread:
        path = Path(folder) / "bridge.db"
        # Tests have their own event loop in this thread.
        thread.submit(asyncio.run, make(path)).result()
        return path.read_bytes()
