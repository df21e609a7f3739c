"""The path to return to after a login: always on this bridge. Pure."""

from __future__ import annotations

import re
from urllib.parse import quote

_MAX_CHARACTERS = 500
#: Browsers treat a backslash as a slash and drop tabs and line ends: `/\\host` and `/<tab>/host` lead to other hosts.
_PATH = re.compile(r"/(?:[^/\\\x00-\x20\x7f-\U0010ffff][^\\\x00-\x20\x7f-\U0010ffff]*)?")
#: Paths with effects, or of another login.
_NOT_BACK = ("/login", "/logout", "/oidc/", "/ws")


def return_path(asked: str) -> str:
    """Return the requested path with its query if it is safe, else `/`."""
    if len(asked) > _MAX_CHARACTERS or _PATH.fullmatch(asked) is None or asked.startswith(_NOT_BACK):
        return "/"
    return asked


def back_to(path: str) -> str:
    """Return the query that leads back to a path after a login, such as `?to=/operator`; "" for `/`."""
    path = return_path(path)
    return "" if path == "/" else f"?to={quote(path, safe='/')}"
