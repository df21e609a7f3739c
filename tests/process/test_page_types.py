"""The page's types of messages are those of the protocol."""

from __future__ import annotations

import pytest

from tools.page_types import GENERATOR, TYPES, types


@pytest.mark.skipif(not GENERATOR.exists(), reason="the page's checkers are not installed: make lint")
def test_the_types_of_the_pages_messages_are_current() -> None:
    assert TYPES.read_text() == types(), "the protocol has changed: make types"
