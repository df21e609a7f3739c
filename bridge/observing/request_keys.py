"""What handlers note on a request for its log line. Keys only, so that every module may know them."""

from __future__ import annotations

from typing import Final

from aiohttp import web

PERSON: Final = web.RequestKey("person", str)
SPRITE: Final = web.RequestKey("sprite", str)
#: By which the log knows it, at each bridge that it passes.
REQUEST_ID: Final = web.RequestKey("request_id", str)
