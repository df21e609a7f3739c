"""What handlers note on a request for its log line. Keys only, so that every module may know them."""

from __future__ import annotations

from typing import Final

from aiohttp import web

PERSON: Final = web.RequestKey("person", str)
SPRITE: Final = web.RequestKey("sprite", str)
