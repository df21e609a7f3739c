"""Fixtures: a model on loopback, and an empty workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge.offline_model import OfflineModel


@pytest.fixture
async def model() -> AsyncIterator[OfflineModel]:
    async with OfflineModel() as model:
        yield model


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path
