"""Keys under which handlers store request data for the log line. Only keys, so that every module may import them."""

from __future__ import annotations

from typing import Final

from aiohttp import web

PERSON: Final = web.RequestKey("person", str)
SPRITE: Final = web.RequestKey("sprite", str)
#: Identifies the request in the log of each bridge that it passes.
REQUEST_ID: Final = web.RequestKey("request_id", str)
