"""Fixtures of the tests that open databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.recording import Recording, recording


@pytest.fixture
async def rec(tmp_path: Path) -> AsyncIterator[Recording]:
    async with recording(tmp_path) as made:
        yield made
