"""The page's message types match the protocol."""

from __future__ import annotations

import pytest

from tools.page_types import GENERATOR, TYPES, types


@pytest.mark.skipif(not GENERATOR.exists(), reason="the page's checkers are not installed: make lint")
def test_generated_page_types_are_current() -> None:
    assert TYPES.read_text() == types(), "the protocol has changed: make types"
