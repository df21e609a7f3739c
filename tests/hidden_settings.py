"""Settings for tests only. The servers of a test read them from their environments, under the names below."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

_FIELDS = {
    "TESTS_VM_SOCKET": ("vm_socket", Path),
    "TESTS_SPRITES_URL": ("sprites_url", str),
    # With this prefix, a bridge passes it on to its sprites.
    "SPRITE_TESTS_EGRESS_INSIDE": ("egress_inside", bool),
    "TESTS_PUSH_INSIDE": ("push_inside", bool),
}


def read_hidden_settings() -> None:
    """Let both programs read them."""
    from sprite.common import settings

    read = settings.read

    def read_all(kind: type, flags: Mapping[str, Any]) -> dict[str, Any]:
        names = {field.name for field in fields(kind)}
        given = {field: parse(os.environ[name]) for name, (field, parse) in _FIELDS.items() if name in os.environ}
        return read(kind, flags) | {field: value for field, value in given.items() if field in names}

    settings.read = read_all
