"""Where a browser goes after it logged in: a path of ours, whatever a link said. Pure."""

from __future__ import annotations

import re
from urllib.parse import quote

_MAX_CHARACTERS = 500
#: Browsers take a backslash for a slash, and drop tabs and ends of lines: `/\\host` and `/<tab>/host` lead elsewhere.
_PATH = re.compile(r"/(?:[^/\\\x00-\x20\x7f-\U0010ffff][^\\\x00-\x20\x7f-\U0010ffff]*)?")
#: What acts, or would begin anew.
_NOT_BACK = ("/login", "/logout", "/oidc/", "/ws")


def return_path(asked: str) -> str:
    """The path that was asked for, with its query, or `/`."""
    if len(asked) > _MAX_CHARACTERS or _PATH.fullmatch(asked) is None or asked.startswith(_NOT_BACK):
        return "/"
    return asked


def back_to(path: str) -> str:
    """The query that brings a browser back to a path after it logged in, such as `?to=/operator`; "" for `/`."""
    path = return_path(path)
    return "" if path == "/" else f"?to={quote(path, safe='/')}"
