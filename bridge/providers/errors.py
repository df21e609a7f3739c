"""Translate errors of the Sprites SDK into messages for users and retry advice; some differ only in their text."""

import json
import re
from dataclasses import dataclass
from typing import Any

import sprites
import websockets
from sprites.exceptions import APIError

_TOO_MANY, _SERVER_FAULT, _NOT_FOUND = 429, 500, 404
#: Errors that may be temporary; 501 and similar ones are not.
_PASSING_FAULTS = frozenset({500, 502, 503, 504})
_REFUSED = frozenset({401, 403})
_TOKEN_MESSAGE = "The Sprites API refuses the token: check SPRITES_TOKEN."  # noqa: S105 - no token
_DISK_MESSAGE = "The VM's disk is full. Free some space there (its owner can ask the agent to), then try again."
_STATUS_IN_TEXT = re.compile(r"\(status (\d{3})\)(?::\s*(.*))?$", re.DOTALL)
_LONGEST_MESSAGE = 300
#: Longest delay before users are informed.
_LONGEST_ASKED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Fault:
    """An API error. `again`: retry now, after the `after` seconds the API asks for; `retryable`: later may help."""

    message: str
    status: int | None = None
    after: float | None = None
    again: bool = False
    retryable: bool = True


def fault_of(error: Exception, what: str, seconds: float) -> Fault:
    """Classify an error of the operation `what`, such as "creating the VM", which had a timeout of `seconds`."""
    if isinstance(error, TimeoutError):
        # An immediate retry of a slow call would be slow again.
        return Fault(f"{sentence(what)} took longer than {seconds:.0f} seconds.")
    if isinstance(error, sprites.FilesystemError):
        if is_full_disk(str(error)):
            return Fault(_DISK_MESSAGE, retryable=False)
        # The SDK's network and busy errors have no code.
        return Fault(f"{sentence(what)} failed: {_short(str(error))}", again=not error.code)
    answer = _answer(error)
    if answer is None:
        return Fault(f"{sentence(what)} failed: the Sprites API cannot be reached.", again=True)
    status, body, after = answer
    return status_fault(status, body, what, after)


def sentence(what: str) -> str:
    """Return the text with a capital first letter."""
    return what[:1].upper() + what[1:]


def is_full_disk(message: str) -> bool:
    """Return whether a message reports a full disk."""
    return "ENOSPC" in message or "no space left" in message.lower()


def _answer(error: Exception) -> tuple[int, str, float | None] | None:
    """Return the HTTP response behind an error, with the delay of its header in seconds, or None if there was none."""
    if isinstance(error, sprites.AuthenticationError):
        return 401, "", None
    if isinstance(error, sprites.NotFoundError):
        return _NOT_FOUND, "it does not exist", None
    if isinstance(error, APIError) and error.status_code is not None:
        return error.status_code, error.response or "", error.get_retry_after_seconds()
    if isinstance(error, websockets.InvalidStatus):
        asked = error.response.headers.get("retry-after", "")
        body = (error.response.body or b"").decode(errors="replace")
        return error.response.status_code, body, int(asked) if asked.isdecimal() else None
    found = _STATUS_IN_TEXT.search(str(error))
    return (int(found[1]), found[2] or "", None) if found else None


def status_fault(status: int, body: str, what: str, after: float | None = None) -> Fault:
    """Classify an HTTP error response to the operation `what`; `after` is the delay of its header in seconds."""
    said = _said(body)
    asked = after or said.get("retry_after_seconds")
    after = min(float(asked), _LONGEST_ASKED_SECONDS) if isinstance(asked, int | float) and asked > 0 else None
    if status == _TOO_MANY:
        wait = f" It asks to wait {after:.0f} seconds." if after else ""
        return Fault(f"{sentence(what)} failed: the Sprites API is too busy (429).{wait}", status, after, again=True)
    if status >= _SERVER_FAULT:
        if is_full_disk(body):
            return Fault(_DISK_MESSAGE, status, retryable=False)
        message = f"{sentence(what)} failed: the Sprites API has an error ({status})."
        return Fault(message, status, after, again=status in _PASSING_FAULTS)
    if status in _REFUSED:
        return Fault(_TOKEN_MESSAGE, status, retryable=False)
    reason = _short(str(said.get("message") or said.get("error") or body))
    return Fault(f"{sentence(what)} was refused ({status}){': ' + reason if reason else ''}.", status, retryable=False)


def _said(body: str) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _short(message: str) -> str:
    return " ".join(message.split())[:_LONGEST_MESSAGE].rstrip(".")
