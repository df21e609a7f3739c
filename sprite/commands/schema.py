"""`schema`: print the wire protocol as JSON Schema for other programs. Needs no workspace."""

from __future__ import annotations

from sprite.commands.output import say_json
from sprite.protocol.frames import json_schema


async def schema() -> int:
    """Print the schema of every message."""
    say_json(json_schema())
    return 0
