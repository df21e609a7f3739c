"""Fixtures of the tests that open databases."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.fast_disk import FAST_DISK
from tests.recording import Recording, recording


@pytest.fixture(autouse=True)
def use_fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", FAST_DISK)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sprite-test-", dir=FAST_DISK) as folder:
        yield Path(folder)


@pytest.fixture
async def rec(tmp_path: Path) -> AsyncIterator[Recording]:
    async with recording(tmp_path) as made:
        yield made
